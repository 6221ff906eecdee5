#include "server/prompt_builder.h"

#include <gtest/gtest.h>

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

}  // namespace
}  // namespace masu
