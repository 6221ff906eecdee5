#include "text/detokenizer.h"

#include <gtest/gtest.h>

#include <random>

#include "text/utf8.h"

namespace masu {
namespace {

// A vocabulary of given byte strings; the last token is a control token.
class FakeTokenizer final : public Tokenizer {
 public:
  explicit FakeTokenizer(std::vector<std::string> pieces) : pieces_(std::move(pieces)) {
    pieces_.push_back("<control>");
  }
  TokenId control() const { return static_cast<TokenId>(pieces_.size()) - 1; }

  std::vector<TokenId> Encode(std::string_view, EncodeOptions) const override { return {}; }
  std::vector<TokenId> EncodeSegments(std::span<const TextSegment>, bool) const override {
    return {};
  }
  uint32_t vocab_size() const override { return static_cast<uint32_t>(pieces_.size()); }
  bool IsValid(TokenId id) const override {
    return id >= 0 && id < static_cast<TokenId>(pieces_.size());
  }
  bool IsControl(TokenId id) const override { return id == control(); }
  std::string TokenBytes(TokenId id) const override { return pieces_[static_cast<size_t>(id)]; }
  std::string TokenPiece(TokenId id) const override { return TokenBytes(id); }
  std::optional<TokenId> FindToken(std::string_view) const override { return std::nullopt; }
  std::string Decode(std::span<const TokenId>, bool) const override { return {}; }
  std::optional<TokenId> bos() const override { return std::nullopt; }
  std::optional<TokenId> eos() const override { return std::nullopt; }
  std::span<const TokenId> end_of_generation() const override { return {}; }

 private:
  std::vector<std::string> pieces_;
};

bool IsValidUtf8(std::string_view text) { return ValidUtf8Prefix(text) == text.size(); }

// Pushes all pieces and checks every delta.
std::string Stream(const std::vector<std::string>& pieces) {
  const FakeTokenizer tokenizer(pieces);
  Detokenizer detokenizer(tokenizer, true);
  std::string text;
  for (size_t i = 0; i < pieces.size(); ++i) {
    const std::string delta = detokenizer.Push(static_cast<TokenId>(i));
    EXPECT_TRUE(IsValidUtf8(delta));
    text += delta;
  }
  return text + detokenizer.Flush();
}

const char* const kTexts[] = {
    "日本語テキスト",  "한국어 텍스트",
    "\U0001F600",      "\U0001F468\u200D\U0001F469\u200D\U0001F467",
    "e\u0301 n\u0303", "Příliš žluťoučký kůň",
};

TEST(Detokenizer, EverySplitGivesTheWholeText) {
  for (const std::string text : kTexts) {
    for (size_t a = 0; a <= text.size(); ++a) {
      for (size_t b = a; b <= text.size(); ++b) {
        EXPECT_EQ(Stream({text.substr(0, a), text.substr(a, b - a), text.substr(b)}), text);
      }
    }
    std::vector<std::string> bytes;
    for (const char byte : text) bytes.push_back(std::string(1, byte));
    EXPECT_EQ(Stream(bytes), text);
  }
}

TEST(Detokenizer, WholeCharactersAreNeverHeldBack) {
  const FakeTokenizer tokenizer({"\xE6\x97", "\xA5", "a"});
  Detokenizer detokenizer(tokenizer, true);
  EXPECT_EQ(detokenizer.Push(0), "");
  EXPECT_EQ(detokenizer.Push(1), "日");
  EXPECT_EQ(detokenizer.Push(2), "a");
  EXPECT_EQ(detokenizer.Flush(), "");
}

TEST(Detokenizer, InvalidBytesDoNotStall) {
  EXPECT_EQ(Stream({"\xFF", "a"}),
            "\xEF\xBF\xBD"
            "a");
  EXPECT_EQ(Stream({"\xE6", "a"}),
            "\xEF\xBF\xBD"
            "a");
  EXPECT_EQ(Stream({"\xE6", "\xE6\x97\xA5"}),
            "\xEF\xBF\xBD"
            "日");
  EXPECT_EQ(Stream({"\xED\xA0", "\x80"}), "\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD");
  EXPECT_EQ(Stream({"\xF0\x9F"}), "\xEF\xBF\xBD");
  std::mt19937 random(3);
  for (int round = 0; round < 1000; ++round) {
    std::string text;
    for (int i = 0; i < 30; ++i) {
      text += random() % 3 == 0 ? std::string(1, static_cast<char>(random()))
                                : std::string(kTexts[random() % 6]).substr(0, 6);
    }
    std::string pending;
    std::string whole;
    AppendDecided(text, &pending, &whole);
    if (!pending.empty()) whole += kReplacementCharacter;
    std::vector<std::string> pieces;
    for (size_t at = 0; at < text.size();) {
      const size_t length = 1 + random() % 5;
      pieces.push_back(text.substr(at, length));
      at += length;
    }
    ASSERT_EQ(Stream(pieces), whole);
    ASSERT_TRUE(IsValidUtf8(whole));
  }
}

TEST(Detokenizer, SkipsControlTokensOnRequest) {
  const FakeTokenizer tokenizer({"\xE6\x97", "\xA5"});
  Detokenizer skipping(tokenizer, true);
  Detokenizer showing(tokenizer, false);
  EXPECT_EQ(skipping.Push(0), "");
  EXPECT_EQ(skipping.Push(tokenizer.control()), "");
  EXPECT_EQ(skipping.Push(1), "日");
  EXPECT_EQ(showing.Push(tokenizer.control()), "<control>");
  EXPECT_EQ(showing.Push(-1) + showing.Push(99), "");
}

}  // namespace
}  // namespace masu
