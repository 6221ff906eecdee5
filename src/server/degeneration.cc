#include "server/degeneration.h"

#include <algorithm>

#include "checkpoint/json_text.h"
#include "quality/repetition.h"

namespace masu {
namespace {

constexpr std::string_view kSpace = " \t\r\n";

std::string_view SkipSpace(std::string_view text) {
  return text.substr(std::min(text.find_first_not_of(kSpace), text.size()));
}

// What has to be JSON; nullopt if the answer does not begin so.
std::optional<std::string_view> ClaimedJson(std::string_view text) {
  constexpr std::string_view kFence = "```";
  text = SkipSpace(text);
  if (text.starts_with(kFence)) {
    text.remove_prefix(kFence.size());
    if (text.starts_with("json")) text.remove_prefix(4);
    const std::string_view body = SkipSpace(text);
    // Another language's fence, or a word that begins with "json".
    if (body.size() == text.size()) return std::nullopt;
    text = body.substr(0, body.find("\n```"));
  }
  if (!text.starts_with('{') && !text.starts_with('[')) return std::nullopt;
  return text;
}

bool Loops(std::span<const TokenOutput> tokens) {
  LoopDetector detector;
  return std::ranges::any_of(
      tokens, [&](const TokenOutput& output) { return detector.Push(output.token); });
}

}  // namespace

const char* DegenerationName(Degeneration degeneration) {
  return degeneration == Degeneration::kRepetition ? "repetition" : "json";
}

std::optional<Degeneration> FindDegeneration(const FinishedAnswer& answer) {
  if (Loops(answer.tokens)) return Degeneration::kRepetition;
  if (answer.finish != FinishReason::kStop) return std::nullopt;  // cut off, perhaps in good order
  const auto json = ClaimedJson(answer.text);
  if (json && !ParseStrictJson(*json).ok()) return Degeneration::kJson;
  return std::nullopt;
}

}  // namespace masu
