#include "server/degeneration.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace masu {
namespace {

// What is wrong with an answer whose tokens are its bytes.
std::string Fault(const std::string& text, FinishReason finish = FinishReason::kStop) {
  std::vector<TokenOutput> tokens;
  for (const char c : text)
    tokens.push_back({.token = static_cast<unsigned char>(c), .logprob = 0, .rank = 1, .top = {}});
  const auto found = FindDegeneration({.tokens = tokens, .text = text, .finish = finish});
  return found ? DegenerationName(*found) : "";
}

TEST(Degeneration, Json) {
  for (const char* broken :
       {"{\"a\": 1", "[1, 2,]", " \n{'a': 1}", "{\"a\": 1} and so on", "```json\n{\"a\": }\n```",
        "```\n[1, 2\n```", "```json\n{\"a\": 1", "{\"a\": 1, \"a\": 2}", "[see below]", "{"}) {
    EXPECT_EQ(Fault(broken), "json") << broken;
    // Cut off by max_tokens, no one can tell.
    EXPECT_EQ(Fault(broken, FinishReason::kLength), "") << broken;
  }
  for (const char* fine :
       {"", " ", "{}", "[]\n", "{\"a\": [1, {\"b\": null}]}", "```json\n{\"a\": 1}\n```",
        "```json\n[1]\n```\nThat is the list.", "```\n{}\n```", "```python\n[1, 2\n```",
        "The list: [1, 2", "1, 2", "\"a", "```", "```json", "```jsonl\n{\n```"}) {
    EXPECT_EQ(Fault(fine), "") << fine;
  }
}

TEST(Degeneration, Repetition) {
  std::string loop = "It began well. ";
  for (int i = 0; i < 20; ++i) loop += "and so on ";
  EXPECT_EQ(Fault(loop), "repetition");
  EXPECT_EQ(Fault(loop, FinishReason::kLength), "repetition");
  EXPECT_EQ(Fault("{\"a\": \"" + loop), "repetition");  // the cause, not what follows from it
  EXPECT_EQ(Fault("and so on and so on"), "");
}

}  // namespace
}  // namespace masu
