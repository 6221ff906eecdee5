#include "text/stop_matcher.h"

#include <algorithm>
#include <utility>

namespace masu {

StopMatcher::StopMatcher(std::vector<std::string> stops, bool include_stop)
    : stops_(std::move(stops)), include_stop_(include_stop) {
  for (const std::string& stop : stops_) longest_ = std::max(longest_, stop.size());
}

std::string StopMatcher::Push(std::string_view piece) {
  if (match_) return {};
  held_.append(piece);
  const std::optional<StopMatch> found = FirstMatch();
  const size_t open = FirstOpenPosition();
  // A stop that is still incomplete but began no later than the one found would win over it: with
  // stops "abcd" and "bc", "abc" may yet be cut at "a".
  if (found && found->begin - released_ < open) return Finish(*found);
  if (found && found->begin - released_ == open) {
    // Both begin at the same place; only an earlier entry in the list could still win.
    const std::string_view tail = std::string_view(held_).substr(open);
    bool earlier_is_open = false;
    for (size_t i = 0; i < found->stop_index; ++i) {
      earlier_is_open |= stops_[i].size() > tail.size() && stops_[i].starts_with(tail);
    }
    if (!earlier_is_open) return Finish(*found);
  }
  return Release(open);
}

std::string StopMatcher::Flush() {
  if (match_) return {};
  if (const std::optional<StopMatch> found = FirstMatch()) return Finish(*found);
  return Release(held_.size());
}

std::optional<StopMatch> StopMatcher::FirstMatch() const {
  std::optional<StopMatch> best;
  for (size_t i = 0; i < stops_.size(); ++i) {
    if (stops_[i].empty()) continue;
    const size_t begin = held_.find(stops_[i]);
    if (begin == std::string::npos) continue;
    if (!best || begin + released_ < best->begin) best = StopMatch{i, begin + released_};
  }
  return best;
}

// The first position in held_ from which everything up to the end is a proper prefix of a stop.
size_t StopMatcher::FirstOpenPosition() const {
  const std::string_view held = held_;
  size_t position = held.size() - std::min(held.size(), longest_ == 0 ? 0 : longest_ - 1);
  for (; position < held.size(); ++position) {
    const std::string_view tail = held.substr(position);
    for (const std::string& stop : stops_) {
      if (stop.size() > tail.size() && stop.starts_with(tail)) return position;
    }
  }
  return held.size();
}

std::string StopMatcher::Release(size_t count) {
  std::string out = held_.substr(0, count);
  held_.erase(0, count);
  released_ += count;
  return out;
}

std::string StopMatcher::Finish(const StopMatch& found) {
  match_ = found;
  const size_t end = found.begin + (include_stop_ ? stops_[found.stop_index].size() : 0);
  std::string out = Release(end - released_);
  held_.clear();
  return out;
}

}  // namespace masu
