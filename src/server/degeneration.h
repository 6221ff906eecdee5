// What --retry-on-degeneration looks for in a finished answer. Pure.
#pragma once

#include <optional>
#include <span>
#include <string_view>

#include "engine/request.h"

namespace masu {

enum class Degeneration { kRepetition, kJson };
inline constexpr size_t kNumDegenerations = 2;
const char* DegenerationName(Degeneration degeneration);  // "repetition", "json"

struct FinishedAnswer {
  std::span<const TokenOutput> tokens;
  std::string_view text;
  FinishReason finish = FinishReason::kStop;
};

// A text that loops (quality/repetition.h), or that began as JSON, ended with "stop" and is not
// JSON (a key twice in one object counts as broken too). No request can ask for JSON yet, so an
// answer speaks for itself: it begins as JSON if its first character is { or [, perhaps after a
// line ```json or ```. With a fence, what stands before the closing one counts; without, all of it,
// and text after the JSON breaks it.
std::optional<Degeneration> FindDegeneration(const FinishedAnswer& answer);

}  // namespace masu
