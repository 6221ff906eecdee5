// Finds stop strings in text that arrives in pieces, and holds back no more than what may still
// become one. One per sequence; not thread-safe.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace masu {

struct StopMatch {
  size_t stop_index = 0;  // in the list given to the constructor
  size_t begin = 0;       // byte offset of the stop string in the full text
};

class StopMatcher {
 public:
  // Empty stop strings are ignored. With `include_stop` the stop string itself is released too.
  explicit StopMatcher(std::vector<std::string> stops, bool include_stop = false);

  // Takes the next piece and returns what can be released now. The match is the one with the
  // smallest begin in the full text (as the minimum of str.find over all stops), the earlier in the
  // list where two begin at the same place. All releases together are the full text cut there,
  // however it was split. Nothing is released after the match.
  std::string Push(std::string_view piece);
  // The end of the text: decides what was still open and releases the rest.
  std::string Flush();

  const std::optional<StopMatch>& match() const { return match_; }

 private:
  std::optional<StopMatch> FirstMatch() const;
  size_t FirstOpenPosition() const;
  std::string Release(size_t count);
  std::string Finish(const StopMatch& found);

  std::vector<std::string> stops_;
  bool include_stop_;
  size_t longest_ = 0;
  std::string held_;     // text that is not released yet
  size_t released_ = 0;  // bytes released so far: the offset of held_ in the full text
  std::optional<StopMatch> match_;
};

}  // namespace masu
