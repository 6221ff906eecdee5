#include "text/special_tokens.h"

#include <algorithm>

namespace masu {

SpecialTokens::SpecialTokens(const Vocabulary& vocabulary) {
  for (size_t i = 0; i < vocabulary.pieces.size(); ++i) {
    const auto id = static_cast<TokenId>(i);
    const std::string_view text = vocabulary.pieces[i];
    const bool control = vocabulary.IsControl(id);
    if (text.empty() || (!control && vocabulary.kinds[i] != TokenKind::kUserDefined)) continue;
    buckets_[static_cast<uint8_t>(text[0])].push_back({text, id, control});
  }
  for (auto& bucket : buckets_) {
    std::stable_sort(bucket.begin(), bucket.end(),
                     [](const Entry& a, const Entry& b) { return a.text.size() > b.text.size(); });
  }
}

namespace {

// Adjacent runs of equal trust become one: a token may be written by several pieces of a template.
std::vector<TrustRun> Joined(std::span<const TrustRun> runs) {
  std::vector<TrustRun> joined;
  for (const TrustRun& run : runs) {
    if (!joined.empty() && joined.back().trusted == run.trusted) {
      joined.back().end = run.end;
    } else {
      joined.push_back(run);
    }
  }
  return joined;
}

}  // namespace

TrustedText JoinSegments(std::span<const TextSegment> segments) {
  TrustedText joined;
  for (const TextSegment& segment : segments) {
    joined.text += segment.text;
    joined.runs.push_back({joined.text.size(), segment.trusted});
  }
  return joined;
}

std::vector<SpecialMatch> SpecialTokens::Find(std::string_view text,
                                              std::span<const TrustRun> runs) const {
  const std::vector<TrustRun> joined = Joined(runs);
  std::vector<SpecialMatch> matches;
  size_t run = 0;
  size_t position = 0;
  while (position < text.size()) {
    while (run < joined.size() && joined[run].end <= position) ++run;
    const bool trusted = run < joined.size() && joined[run].trusted;
    const size_t trusted_end = trusted ? joined[run].end : position;
    const std::string_view rest = text.substr(position);
    const Entry* hit = nullptr;
    for (const Entry& entry : buckets_[static_cast<uint8_t>(text[position])]) {
      if (entry.needs_trust && position + entry.text.size() > trusted_end) continue;
      if (!rest.starts_with(entry.text)) continue;
      hit = &entry;
      break;
    }
    if (hit == nullptr) {
      ++position;
      continue;
    }
    matches.push_back({position, position + hit->text.size(), hit->id});
    position += hit->text.size();
  }
  return matches;
}

}  // namespace masu
