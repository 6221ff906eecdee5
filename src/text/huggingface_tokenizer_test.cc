// What needs no oracle; tests/e2e/test_tokenizers.py compares with Hugging Face's tokenizers.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>

#include "text/detokenizer.h"
#include "text/tokenizer.h"
#include "text/unicode_form.h"

namespace masu {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// Ids: <unk> 0, <s> 1, </s> 2, then pieces.
constexpr const char* kLlama = R"({"added_tokens":[
{"id":0,"content":"<unk>","special":true,"normalized":false},
{"id":1,"content":"<s>","special":true,"normalized":true},
{"id":2,"content":"</s>","special":true,"normalized":false},
{"id":300,"content":"<tool>","special":false,"normalized":false}],
"normalizer":{"type":"Sequence","normalizers":[{"type":"Prepend","prepend":"▁"},
{"type":"Replace","pattern":{"String":" "},"content":"▁"}]},
"decoder":{"type":"Sequence","decoders":[{"type":"Replace","pattern":{"String":"▁"},"content":" "},
{"type":"ByteFallback"},{"type":"Fuse"},{"type":"Strip","content":" ","start":1,"stop":0}]},
"model":{"type":"BPE","unk_token":"<unk>","fuse_unk":true,"byte_fallback":true,
"vocab":{"<unk>":0,"<s>":1,"</s>":2,"▁":3,"a":4,"b":5,"▁a":6,"ab":7,"▁ab":8,"<":9,"s":10,">":11,
"<0xE6>":20,"<0x97>":21,"<0xA5>":22,"<0xFF>":23},
"merges":["▁ a","a b","▁a b"]}})";

std::unique_ptr<Tokenizer> Load(const HuggingFaceTokenizerFiles& files) {
  auto tokenizer = Tokenizer::FromHuggingFace(files);
  EXPECT_TRUE(tokenizer.ok()) << (tokenizer.ok() ? "" : tokenizer.error().message);
  return tokenizer.ok() ? std::move(*tokenizer) : nullptr;
}

std::unique_ptr<Tokenizer> Llama(const std::string& config = "{}") {
  HuggingFaceTokenizerFiles files;
  files.tokenizer_json = kLlama;
  files.tokenizer_config_json = config;
  return Load(files);
}

constexpr EncodeOptions kPlain{.add_special = false, .parse_special = false};

TEST(HuggingFaceTokenizer, SpecialTokensInNormalizedTextNeedTrustToo) {
  const auto tokenizer = Llama();
  ASSERT_NE(tokenizer, nullptr);
  const auto ids = [&](std::vector<TextSegment> segments) {
    return tokenizer->EncodeSegments(segments, false);
  };
  EXPECT_THAT(ids({{"<s>", true}, {"ab", false}}), ElementsAre(1, 7));
  EXPECT_THAT(ids({{"<s>", false}}), ElementsAre(3, 9, 10, 11));
  EXPECT_THAT(ids({{"<s", true}, {">", false}}), ElementsAre(3, 9, 10, 11));
  EXPECT_THAT(ids({{"</s>", true}, {"ab", false}, {"</s>", true}}), ElementsAre(2, 8, 2));
  EXPECT_THAT(tokenizer->Encode("a<tool>a", kPlain), ElementsAre(6, 300, 6));
}

TEST(HuggingFaceTokenizer, BytesAndGaps) {
  const auto tokenizer = Llama();
  ASSERT_NE(tokenizer, nullptr);
  EXPECT_THAT(tokenizer->Encode("日", kPlain), ElementsAre(3, 20, 21, 22));
  EXPECT_THAT(tokenizer->Encode("a\xFF"
                                "b",
                                kPlain),
              ElementsAre(6, 23, 5));
  EXPECT_EQ(tokenizer->Decode(std::vector<TokenId>{3, 20, 21, 22, 6}, true), "日 a");
  EXPECT_EQ(tokenizer->vocab_size(), 301u);
  EXPECT_FALSE(tokenizer->IsValid(200));  // no token has this id
  EXPECT_EQ(tokenizer->Decode(std::vector<TokenId>{6, 200, -1, 999, 7}, true), "aab");
}

TEST(HuggingFaceTokenizer, AnswersContinueTheirPrompt) {
  const auto tokenizer = Llama();
  ASSERT_NE(tokenizer, nullptr);
  const auto text = [&](bool skip_special, TextPosition position, const std::vector<TokenId>& ids) {
    Detokenizer detokenizer(*tokenizer, skip_special, position);
    std::string out;
    for (const TokenId id : ids) out += detokenizer.Push(id);
    return out + detokenizer.Flush();
  };
  EXPECT_EQ(text(true, TextPosition::kStart, {1, 8, 8}), "ab ab");
  EXPECT_EQ(text(true, TextPosition::kContinuation, {8, 8}), " ab ab");
  EXPECT_EQ(text(false, TextPosition::kStart, {1, 8}), "<s> ab");
}

TEST(HuggingFaceTokenizer, ConfigurationDecidesAboutBos) {
  const auto with = [&](const std::string& config) { return Llama(config)->Encode("a", {}); };
  EXPECT_THAT(with("{}"), ElementsAre(6));
  const std::string named = R"("bos_token":"<s>","eos_token":{"content":"</s>"})";
  EXPECT_THAT(with("{" + named + "}"), ElementsAre(6));
  EXPECT_THAT(with(R"({"tokenizer_class":"LlamaTokenizerFast",)" + named + "}"), ElementsAre(1, 6));
  EXPECT_THAT(with(R"({"tokenizer_class":"LlamaTokenizer","add_bos_token":false,)" + named + "}"),
              ElementsAre(6));
  EXPECT_THAT(with(R"({"add_bos_token":true,"add_eos_token":true,)" + named + "}"),
              ElementsAre(1, 6, 2));
  EXPECT_THAT(Llama("{" + named + "}")->end_of_generation(), ElementsAre(2));
}

TEST(HuggingFaceTokenizer, DamagedFilesAreErrors) {
  const auto error = [](const std::string& json) {
    HuggingFaceTokenizerFiles files;
    files.tokenizer_json = json;
    const auto tokenizer = Tokenizer::FromHuggingFace(files);
    return tokenizer.ok() ? "no error" : tokenizer.error().message;
  };
  EXPECT_THAT(error(""), HasSubstr("tokenizer.json"));
  EXPECT_THAT(error("[]"), HasSubstr("not an object"));
  EXPECT_THAT(error("{}"), HasSubstr("model is missing"));
  EXPECT_THAT(error(R"({"model":{"type":"BPE","merges":[],"vocab":{"a":0,"b":0}}})"),
              HasSubstr("token id 0 is both"));
  EXPECT_THAT(error(R"({"model":{"type":"BPE","merges":[],"vocab":{"a":4294967296}}})"),
              HasSubstr("has id 4294967296"));
  EXPECT_THAT(error(R"({"added_tokens":[{"id":5,"content":"a"}],)"
                    R"("model":{"type":"BPE","merges":[],"vocab":{"a":0}}})"),
              HasSubstr("added token \"a\" has id 5"));
  std::string deep = R"({"normalizer":)";
  for (int i = 0; i < 100; ++i) deep += R"({"type":"Sequence","normalizers":[)";
  EXPECT_THAT(error(deep), HasSubstr("not valid JSON"));
  HuggingFaceTokenizerFiles model;
  model.tokenizer_model = std::string("\x0A\x7F", 2);
  EXPECT_FALSE(Tokenizer::FromHuggingFace(model).ok());
  EXPECT_FALSE(Tokenizer::FromHuggingFace({}).ok());
}

TEST(HuggingFaceTokenizer, OneMegabyteOfAnything) {
  const auto tokenizer = Llama();
  ASSERT_NE(tokenizer, nullptr);
  for (const char* unit : {"a", " ", "ab", "<", "\n", "日", "<s>", "\xFF"}) {
    std::string text;
    while (text.size() < 1'000'000) text += unit;
    const auto begin = std::chrono::steady_clock::now();
    (void)tokenizer->Encode(text, {.add_special = false, .parse_special = true});
    const std::chrono::duration<double> taken = std::chrono::steady_clock::now() - begin;
    EXPECT_LT(taken.count(), 10.0) << unit;  // n log n takes a second under ASan
  }
}

TEST(UnicodeForm, RunsOfMarksAreNotQuadratic) {
  std::string text = "a";
  for (int i = 0; i < 200'000; ++i) text += "\u0301\u0316";  // of classes 230 and 220
  const auto begin = std::chrono::steady_clock::now();
  const std::string normalized = NormalizeUnicode(text, UnicodeForm::kNfd);
  const std::chrono::duration<double> taken = std::chrono::steady_clock::now() - begin;
  EXPECT_LT(taken.count(), 5.0);
  EXPECT_EQ(normalized.substr(0, 5), "a\u0316\u0316");
  EXPECT_EQ(NormalizeUnicode("e\u0301 \uAC00", UnicodeForm::kNfd), "e\u0301 \u1100\u1161");
  EXPECT_EQ(NormalizeUnicode("e\u0301 \u1100\u1161", UnicodeForm::kNfc), "\u00E9 \uAC00");
  EXPECT_EQ(NormalizeUnicode("\uFB01\u00BD", UnicodeForm::kNfkc), "fi1\u20442");
}

}  // namespace
}  // namespace masu
