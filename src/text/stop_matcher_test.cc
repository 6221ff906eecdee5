#include "text/stop_matcher.h"

#include <gtest/gtest.h>

#include <random>

namespace masu {
namespace {

struct Expected {
  std::string text;
  std::optional<StopMatch> match;
};

// The definition: the smallest str.find over the full text, the earlier stop on a tie.
Expected BruteForce(const std::string& text, const std::vector<std::string>& stops,
                    bool include_stop) {
  Expected expected{text, std::nullopt};
  for (size_t i = 0; i < stops.size(); ++i) {
    if (stops[i].empty()) continue;
    const size_t at = text.find(stops[i]);
    if (at == std::string::npos) continue;
    if (!expected.match || at < expected.match->begin) expected.match = StopMatch{i, at};
  }
  if (expected.match) {
    const StopMatch& match = *expected.match;
    expected.text =
        text.substr(0, match.begin + (include_stop ? stops[match.stop_index].size() : 0));
  }
  return expected;
}

void Check(const std::vector<std::string>& pieces, const std::vector<std::string>& stops,
           bool include_stop) {
  std::string full;
  std::string released;
  StopMatcher matcher(stops, include_stop);
  for (const std::string& piece : pieces) {
    full += piece;
    released += matcher.Push(piece);
    ASSERT_TRUE(full.starts_with(released));
  }
  released += matcher.Flush();
  const Expected expected = BruteForce(full, stops, include_stop);
  ASSERT_EQ(released, expected.text) << full;
  ASSERT_EQ(matcher.match().has_value(), expected.match.has_value()) << full;
  if (!expected.match) return;
  ASSERT_EQ(matcher.match()->begin, expected.match->begin) << full;
  ASSERT_EQ(matcher.match()->stop_index, expected.match->stop_index) << full;
}

TEST(StopMatcher, TheReportedCases) {
  const std::vector<std::string> pieces = {"alpha", " be", "ta ga", "mma del", "ta"};
  const std::vector<std::string> stops = {"ta", "a ga", "beta", " gamma", "m"};
  for (const bool include : {false, true}) {
    Check(pieces, stops, include);
    for (const std::string& stop : stops) Check(pieces, {stop}, include);
  }
}

TEST(StopMatcher, RandomTextsEqualBruteForce) {
  std::mt19937 random(11);
  const auto text = [&](size_t length) {
    std::string out;
    for (size_t i = 0; i < length; ++i) out += static_cast<char>('a' + random() % 3);
    return out;
  };
  for (int round = 0; round < 20'000; ++round) {
    std::vector<std::string> stops(random() % 4);
    for (std::string& stop : stops) stop = text(random() % 5);
    std::vector<std::string> pieces(1 + random() % 8);
    for (std::string& piece : pieces) piece = text(random() % 5);
    Check(pieces, stops, random() % 2 == 0);
    if (HasFatalFailure()) return;
  }
}

TEST(StopMatcher, HoldsBackNoMoreThanNeeded) {
  StopMatcher matcher({"</s>", "stop"});
  EXPECT_EQ(matcher.Push("Hello <"), "Hello ");
  EXPECT_EQ(matcher.Push("b> s"), "<b> ");
  EXPECT_EQ(matcher.Push("to"), "");
  EXPECT_EQ(matcher.Push("ne st"), "stone ");
  EXPECT_EQ(matcher.Push("op!"), "");
  ASSERT_TRUE(matcher.match().has_value());
  EXPECT_EQ(matcher.match()->begin, 16u);
  EXPECT_EQ(matcher.Push("more"), "");
  EXPECT_EQ(matcher.Flush(), "");
}

}  // namespace
}  // namespace masu
