#include "server/prompt_builder.h"

#include <gtest/gtest.h>

#include "tests/support/server_fakes.h"

namespace masu {
namespace {

// Segments of a ChatML prompt whose last message is `content`.
std::vector<TextSegment> ChatMl(const std::string& content) {
  return {{"<|im_start|>", true},
          {"user", false},
          {"\n", true},
          {"end of e", false},
          {"<|im_end|>\n<|im_start|>", true},
          {"assistant", false},
          {"\n", true},
          {content, false},
          {"<|im_end|>\n", true}};
}

std::string CutText(const std::string& content) {
  const auto cut = CutAfterFinalMessage(ChatMl(content), content);
  if (!cut.ok()) return cut.error().message;
  std::string text;
  for (const TextSegment& segment : *cut) text += segment.text;
  return text;
}

// Texts that the template's own end marker contains were found there, not in the message.
TEST(CutAfterFinalMessage, IgnoresWhatTheTemplateWrote) {
  const std::string before = "<|im_start|>user\nend of e<|im_end|>\n<|im_start|>assistant\n";
  for (const std::string content :
       {"e", "i", "|", "end", "im_end|>", "<|im_end|>", "<|im_start|>", "Hello", "assistant"}) {
    EXPECT_EQ(CutText(content), before + content);
  }
}

TEST(CutAfterFinalMessage, RefusesAMessageThatIsNotShown) {
  std::vector<TextSegment> segments = {{"<|im_end|>", true}};
  EXPECT_FALSE(CutAfterFinalMessage(segments, "end").ok());
  EXPECT_FALSE(CutAfterFinalMessage({}, "end").ok());
  EXPECT_FALSE(CutAfterFinalMessage({{"  ", false}}, "  ").ok());
}

// A text of many megabytes is refused by its size; its tokens are not even counted.
TEST(BuildPrompts, RefusesTextThatCannotFitBeforeTokenizing) {
  ServedModel model = FakeModel(std::make_shared<FakeEngine>(std::vector<TokenId>(), 100));
  model.longest_token_bytes = 4;
  GenerationRequest request;
  const auto error_of = [&](const std::string& text) {
    request.prompts = {Prompt(text)};
    request.messages = {{{"role", "user"}, {"content", text}}};
    const auto built = BuildPrompts(model, request, 0);
    return built.ok() ? "" : built.error().message;
  };
  for (const bool chat : {false, true}) {
    request.chat = chat;
    EXPECT_NE(error_of(std::string(4u << 20, 'x')).find("at least 10485"), std::string::npos);
    EXPECT_NE(error_of(std::string(300, 'x')).find("contains 3"), std::string::npos);
    EXPECT_EQ(error_of(std::string(50, 'x')), "");
  }
  request.chat = false;
  request.truncate_prompt_tokens = 10;
  EXPECT_EQ(error_of(std::string(4u << 20, 'x')), "");
  // What is to be cut is tokenized all the same, so that has a bound too.
  EXPECT_NE(error_of(std::string(5u << 20, 'x')).find("at least 13107"), std::string::npos);
}

}  // namespace
}  // namespace masu
