#include "text/regex.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>

namespace masu {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::vector<std::string> Matches(const std::string& pattern, const std::string& text) {
  const auto regex = Regex::Compile(pattern);
  EXPECT_TRUE(regex.ok()) << (regex.ok() ? "" : regex.error().message);
  std::vector<std::string> found;
  if (!regex.ok()) return found;
  for (const TextRange& match : (*regex)->FindAll(text)) {
    found.push_back(text.substr(match.begin, match.end - match.begin));
  }
  return found;
}

TEST(Regex, MeansWhatOnigurumaMeans) {
  // Not a space in Unicode since 6.3, but one of PCRE2's \s.
  EXPECT_THAT(Matches(R"(\s)", "a\u180E \u3000"), ElementsAre(" ", "\u3000"));
  EXPECT_THAT(Matches(R"([^\S]+)", "a\t\u00A0b"), ElementsAre("\t\u00A0"));
  EXPECT_THAT(Matches(R"(\w+)", "e\u0301_1-b"), ElementsAre("e\u0301_1", "b"));
  EXPECT_THAT(Matches(R"([\p{L}&&[^\p{Han}]]+)", "ab日cd"), ElementsAre("ab", "cd"));
  EXPECT_THAT(Matches(R"(^a$)", "a\na"), ElementsAre("a", "a"));  // lines, as in Ruby
  EXPECT_THAT(Matches(R"((?m:a.b))", "a\nb"), ElementsAre("a\nb"));
  EXPECT_THAT(Matches(R"((?i:'s))", "'S's"), ElementsAre("'S", "'s"));
  EXPECT_THAT(Matches(R"(a{,2})", "aaa"), ElementsAre("aa", "a"));
  EXPECT_THAT(Matches(R"([a-c\-\]]+)", "a-]d"), ElementsAre("a-]"));
  EXPECT_THAT(Matches(R"(\u65e5|\x{672c}|\x41)", "日本A"), ElementsAre("日", "本", "A"));
  EXPECT_THAT(Matches(R"(\s+$)", "a  \nb  "), ElementsAre("  ", "  "));
}

TEST(Regex, RefusesWhatItCannotTranslate) {
  for (const char* pattern : {R"((?<n>a))", R"(\h)", R"(\b)", R"(a{2}+)", R"([[:alpha:]])", R"(\1)",
                              R"((?x: a))", R"([a)", R"([^a&&b])", R"(\)", R"(a(?i)b)", R"((*UTF))",
                              R"(\xFF)", R"(\K)", R"(()", R"(\p{Nonsense})"}) {
    const auto regex = Regex::Compile(pattern);
    ASSERT_FALSE(regex.ok()) << pattern;
    EXPECT_THAT(regex.error().message, HasSubstr("regular expression"));
  }
}

TEST(Regex, LongRunsAndEvilPatternsEnd) {
  for (const char* pattern : {R"(\s+$)", R"((a+)+$)", R"(\s*[\r\n]+|\s+(?!\S)|\s+)"}) {
    const auto regex = Regex::Compile(pattern);
    ASSERT_TRUE(regex.ok());
    for (const char* unit : {" ", "a"}) {
      std::string text;
      while (text.size() < 1'000'000) text += unit;
      text += '5';
      const auto begin = std::chrono::steady_clock::now();
      (void)(*regex)->FindAll(text);
      const std::chrono::duration<double> taken = std::chrono::steady_clock::now() - begin;
      EXPECT_LT(taken.count(), 5.0) << pattern;
    }
  }
}

TEST(Regex, LiteralsAreNoPatterns) {
  const auto regex = Regex::Literal("a.");
  EXPECT_EQ(regex->FindAll("ab a. a.").size(), 2u);
  EXPECT_TRUE(Regex::Literal("")->FindAll("ab").empty());
}

}  // namespace
}  // namespace masu
