#include "text/tokenizer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <random>
#include <sstream>

#include "base/environment.h"

namespace masu {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

struct Loaded {
  std::unique_ptr<GgufFile> file;
  std::unique_ptr<Tokenizer> tokenizer;
};

Loaded Load(const std::string& path) {
  Loaded loaded;
  auto file = GgufFile::Open(path);
  EXPECT_TRUE(file.ok()) << (file.ok() ? "" : file.error().message);
  if (!file.ok()) return loaded;
  loaded.file = std::move(file).value();
  auto tokenizer = Tokenizer::FromGguf(*loaded.file);
  EXPECT_TRUE(tokenizer.ok()) << (tokenizer.ok() ? "" : tokenizer.error().message);
  if (tokenizer.ok()) loaded.tokenizer = std::move(tokenizer).value();
  return loaded;
}

std::string VocabPath(const std::string& model) {
  return Environment::Read().test_data + "/data/tokenizers/ggml-vocab-" + model + ".gguf";
}

const Tokenizer* SmolLm2() {
  static const Loaded* loaded = [] {
    const std::string path = Environment::Read().home + "/models/SmolLM2-135M-Instruct.Q4_1.gguf";
    return new Loaded(std::filesystem::exists(path) ? Load(path) : Loaded());
  }();
  return loaded->tokenizer.get();
}

#define NEED_SMOLLM2()                                                            \
  if (SmolLm2() == nullptr) {                                                     \
    GTEST_SKIP() << "SmolLM2-135M-Instruct.Q4_1.gguf is not in MASU_HOME/models"; \
  }

std::string ReadAll(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  EXPECT_TRUE(in.good()) << path << " is missing: set MASU_TEST_DATA to the shared test data";
  std::stringstream out;
  out << in.rdbuf();
  return out.str();
}

std::vector<std::string> SplitAt(const std::string& text, const std::string& separator) {
  std::vector<std::string> parts;
  size_t begin = 0;
  for (size_t at; (at = text.find(separator, begin)) != std::string::npos;
       begin = at + separator.size()) {
    parts.push_back(text.substr(begin, at - begin));
  }
  parts.push_back(text.substr(begin));
  return parts;
}

std::vector<TokenId> Ids(const std::string& line) {
  std::istringstream in(line);
  std::vector<TokenId> ids;
  for (TokenId id; in >> id;) ids.push_back(id);
  return ids;
}

class Vectors : public ::testing::TestWithParam<const char*> {};

TEST_P(Vectors, EqualTheExpectedIds) {
  const std::string path = VocabPath(GetParam());
  const Loaded loaded = Load(path);
  ASSERT_NE(loaded.tokenizer, nullptr);
  const auto inputs = SplitAt(ReadAll(path + ".inp"), "\n__ggml_vocab_test__\n");
  const auto outputs = SplitAt(ReadAll(path + ".out"), "\n");
  ASSERT_GT(inputs.size(), 40u);
  ASSERT_GE(outputs.size(), inputs.size());
  const EncodeOptions options{.add_special = false, .parse_special = false};
  for (size_t i = 0; i < inputs.size(); ++i) {
    EXPECT_EQ(loaded.tokenizer->Encode(inputs[i], options), Ids(outputs[i]))
        << "input " << i << ": \"" << inputs[i] << '"';
  }
}

INSTANTIATE_TEST_SUITE_P(Tokenizers, Vectors,
                         ::testing::Values("gpt-2", "llama-bpe", "qwen2", "deepseek-llm",
                                           "llama-spm", "phi-3"));

TEST(Tokenizer, SmolLm2SplitsDigits) {
  NEED_SMOLLM2();
  EXPECT_THAT(SmolLm2()->Encode("Hello world! 123", {}),
              ElementsAre(19556, 905, 17, 216, 33, 34, 35));
}

// A GGUF file of metadata only. Strings are values as they are; a list of strings is an array.
class TinyGguf {
 public:
  TinyGguf& String(const std::string& key, const std::string& value) {
    AppendKey(key, 8);
    AppendString(value);
    return *this;
  }
  TinyGguf& Strings(const std::string& key, const std::vector<std::string>& values) {
    AppendKey(key, 9);
    Append<uint32_t>(8);
    Append<uint64_t>(values.size());
    for (const std::string& value : values) AppendString(value);
    return *this;
  }
  TinyGguf& Integers(const std::string& key, const std::vector<int32_t>& values) {
    AppendKey(key, 9);
    Append<uint32_t>(5);
    Append<uint64_t>(values.size());
    for (const int32_t value : values) Append(value);
    return *this;
  }
  std::string ErrorOfTokenizer() const {
    std::string bytes = "GGUF";
    const auto add = [&](auto value) {
      bytes.append(reinterpret_cast<const char*>(&value), sizeof value);
    };
    add(uint32_t{3});
    add(uint64_t{0});
    add(count_);
    bytes += body_;
    const auto file = GgufFile::Parse(std::as_bytes(std::span(bytes)), "tiny.gguf");
    EXPECT_TRUE(file.ok()) << (file.ok() ? "" : file.error().message);
    if (!file.ok()) return "";
    const auto tokenizer = Tokenizer::FromGguf(**file);
    return tokenizer.ok() ? "no error" : tokenizer.error().message;
  }

 private:
  template <typename T>
  void Append(T value) {
    body_.append(reinterpret_cast<const char*>(&value), sizeof value);
  }
  void AppendString(const std::string& value) {
    Append<uint64_t>(value.size());
    body_ += value;
  }
  void AppendKey(const std::string& key, uint32_t type) {
    AppendString(key);
    Append(type);
    ++count_;
  }
  std::string body_;
  uint64_t count_ = 0;
};

TEST(Tokenizer, RefusesByNameWhatItDoesNotKnow) {
  const std::string model = "tokenizer.ggml.model";
  const std::string pre = "tokenizer.ggml.pre";
  const auto tiny = [&] {
    TinyGguf file;
    file.String(model, "gpt2").Strings("tokenizer.ggml.tokens", {"a", "b", "ab"});
    return file;
  };
  EXPECT_THAT(TinyGguf().String("general.name", "x").ErrorOfTokenizer(), HasSubstr(model));
  EXPECT_THAT(TinyGguf().String(model, "rwkv").ErrorOfTokenizer(),
              HasSubstr("tokenizer.ggml.model = \"rwkv\""));
  EXPECT_THAT(tiny().ErrorOfTokenizer(), HasSubstr("tokenizer.ggml.pre is missing"));
  const std::string unknown = tiny().String(pre, "fancy").ErrorOfTokenizer();
  EXPECT_THAT(unknown, HasSubstr("tokenizer.ggml.pre = \"fancy\""));
  EXPECT_THAT(unknown, HasSubstr("smollm"));
  const auto with_merges = [&](const std::vector<std::string>& merges) {
    return tiny().String(pre, "gpt-2").Strings("tokenizer.ggml.merges", merges).ErrorOfTokenizer();
  };
  EXPECT_EQ(with_merges({"a b"}), "no error");
  EXPECT_THAT(with_merges({"a b", "b c"}), HasSubstr("tokenizer.ggml.merges[1]: \"c\""));
  EXPECT_THAT(with_merges({"ab"}), HasSubstr("tokenizer.ggml.merges[0]"));
  EXPECT_THAT(with_merges({""}), HasSubstr("tokenizer.ggml.merges[0]"));
  EXPECT_THAT(tiny().Integers("tokenizer.ggml.token_type", {1, 1}).ErrorOfTokenizer(),
              HasSubstr("token_type has 2 entries"));
}

TEST(Tokenizer, SentencePieceFallsBackToBytes) {
  const Loaded loaded = Load(VocabPath("llama-spm"));
  ASSERT_NE(loaded.tokenizer, nullptr);
  const EncodeOptions plain{.add_special = false, .parse_special = false};
  for (const std::string text :
       {"Grüße łódź 日本語 \U0001F600\x01", "<0x41>", "<s>", "  two  ", "\xFF\xC0", "a\nb", " "}) {
    const auto ids = loaded.tokenizer->Encode(text, plain);
    std::string bytes;
    for (const TokenId id : ids) {
      bytes += loaded.tokenizer->TokenBytes(id);
      EXPECT_FALSE(loaded.tokenizer->IsControl(id)) << text;
    }
    EXPECT_EQ(bytes, " " + text);
  }
  EXPECT_THAT(loaded.tokenizer->Encode("user", {}), ElementsAre(1, 1404));
}

TEST(Tokenizer, ControlTokensComeOnlyFromTrustedText) {
  NEED_SMOLLM2();
  const TokenId end = *SmolLm2()->FindToken("<|im_end|>");
  const auto contains = [&](std::vector<TextSegment> segments) {
    const auto ids = SmolLm2()->EncodeSegments(segments, true);
    return std::count(ids.begin(), ids.end(), end) > 0;
  };
  EXPECT_TRUE(contains({{"<|im_end|>", true}}));
  EXPECT_TRUE(contains({{"<|im_", true}, {"end|>", true}}));
  EXPECT_FALSE(contains({{"<|im_end|>", false}}));
  // Neither may a user complete what the template began, nor the template what the user began.
  EXPECT_FALSE(contains({{"<|im_", true}, {"end|>", false}}));
  EXPECT_FALSE(contains({{"<|im_", false}, {"end|>", true}}));
  EXPECT_FALSE(contains({{"<|im", true}, {"_", false}, {"end|>", true}}));
  const EncodeOptions plain{.add_special = false, .parse_special = false};
  const auto ids = SmolLm2()->Encode("<|im_end|>", plain);
  EXPECT_EQ(SmolLm2()->Decode(ids, true), "<|im_end|>");
  const EncodeOptions parse{.add_special = false, .parse_special = true};
  EXPECT_THAT(SmolLm2()->Encode("<|im_end|>", parse), ElementsAre(end));
}

TEST(Tokenizer, SegmentBordersDoNotChangeOrdinaryText) {
  NEED_SMOLLM2();
  const std::string text =
      "The quick   brown fox's 12 naïve 日本語 \U0001F468‍\U0001F469‍\U0001F467 end\n\n";
  const auto whole = SmolLm2()->Encode(text, {});
  for (size_t cut = 0; cut <= text.size(); ++cut) {
    const std::vector<TextSegment> segments = {{text.substr(0, cut), true},
                                               {text.substr(cut), false}};
    ASSERT_EQ(SmolLm2()->EncodeSegments(segments, true), whole) << "cut at " << cut;
  }
}

TEST(Tokenizer, AddsExactlyOneBos) {
  const Loaded llama = Load(VocabPath("llama-bpe"));
  ASSERT_NE(llama.tokenizer, nullptr);
  const Tokenizer& tokenizer = *llama.tokenizer;
  const TokenId bos = *tokenizer.bos();
  const auto count = [&](const std::vector<TokenId>& ids) {
    return std::count(ids.begin(), ids.end(), bos);
  };
  EXPECT_EQ(count(tokenizer.Encode("Hi", {})), 1);
  EXPECT_EQ(count(tokenizer.Encode("Hi", {.add_special = false})), 0);
  EXPECT_EQ(count(tokenizer.Encode("<|begin_of_text|>Hi", {.parse_special = true})), 1);
  const std::vector<TextSegment> with = {{"<|begin_of_text|>", true}, {"Hi", false}};
  const std::vector<TextSegment> without = {{"Hi", false}};
  EXPECT_EQ(tokenizer.EncodeSegments(with, true), tokenizer.EncodeSegments(without, true));
  const std::vector<TextSegment> typed = {{"<|begin_of_text|>Hi", false}};
  const auto ids = tokenizer.EncodeSegments(typed, true);
  EXPECT_EQ(count(ids), 1);
  EXPECT_EQ(tokenizer.Decode(ids, true), "<|begin_of_text|>Hi");
}

// The vocabulary of Llama 3 has all bytes, and its text is not normalized.
// whole.
TEST(Tokenizer, AnyBytesRoundTrip) {
  const Loaded llama = Load(VocabPath("llama-bpe"));
  ASSERT_NE(llama.tokenizer, nullptr);
  std::mt19937 random(7);
  const EncodeOptions plain{.add_special = false, .parse_special = false};
  for (int round = 0; round < 300; ++round) {
    std::string bytes(random() % 40, '\0');
    for (char& byte : bytes) byte = static_cast<char>(random() % (round % 2 == 0 ? 256 : 100));
    std::string back;
    for (const TokenId id : llama.tokenizer->Encode(bytes, plain)) {
      back += llama.tokenizer->TokenBytes(id);
    }
    ASSERT_EQ(back, bytes) << "round " << round;
  }
}

// SmolLM2 has no token for 0x04 (dropped, as in Hugging Face's tokenizers), nor for 0xFF, which is
// no text at all.
TEST(Tokenizer, BytesWithoutTokens) {
  NEED_SMOLLM2();
  const EncodeOptions plain{.add_special = false, .parse_special = false};
  const auto round_trip = [&](const std::string& text) {
    return SmolLm2()->Decode(SmolLm2()->Encode(text, plain), true);
  };
  EXPECT_EQ(round_trip("a\x04z"), "az");
  EXPECT_EQ(round_trip("a\xFFz"), "a\xEF\xBF\xBDz");
}

TEST(Tokenizer, LongWordsAreNotQuadratic) {
  NEED_SMOLLM2();
  const EncodeOptions plain{.add_special = false, .parse_special = false};
  for (const char* unit : {"a", " ", "ABC", "!", "語", "\n"}) {
    std::string text;
    while (text.size() < 300'000) text += unit;
    const auto begin = std::chrono::steady_clock::now();
    const auto ids = SmolLm2()->Encode(text, plain);
    const std::chrono::duration<double> taken = std::chrono::steady_clock::now() - begin;
    // 300 kB at n log n takes tens of milliseconds; n squared would take minutes.
    EXPECT_LT(taken.count(), 5.0) << unit;
    EXPECT_EQ(SmolLm2()->Decode(ids, true), text) << unit;
  }
}

TEST(Tokenizer, ForeignIdsAreHarmless) {
  NEED_SMOLLM2();
  for (const TokenId id : {-1, 49152, 2147483647}) {
    EXPECT_FALSE(SmolLm2()->IsValid(id));
    EXPECT_FALSE(SmolLm2()->IsControl(id));
    EXPECT_EQ(SmolLm2()->TokenBytes(id), "");
    EXPECT_EQ(SmolLm2()->TokenPiece(id), "");
  }
  EXPECT_THAT(SmolLm2()->end_of_generation(), ElementsAre(2));
}

}  // namespace
}  // namespace masu
