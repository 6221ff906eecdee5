#include "bench/serve_dataset.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <set>

#include "tests/support/fake_tokenizer.h"

namespace masu {
namespace {

using ::testing::HasSubstr;

const std::vector<TokenId>& Ids(const BenchPrompt& prompt) {
  return std::get<std::vector<TokenId>>(prompt.content);
}

std::vector<BenchPrompt> Make(const ServeDatasetOptions& options, size_t count, uint64_t seed = 0) {
  auto made = MakePrompts(options, count, seed, nullptr);
  if (!made.ok()) {
    ADD_FAILURE() << made.error().message;
    return {};
  }
  return std::move(made->prompts);
}

class DatasetFile {
 public:
  explicit DatasetFile(const std::string& text)
      : path_(testing::TempDir() + "masu_dataset_" + std::to_string(::getpid())) {
    std::ofstream(path_) << text;
  }
  ~DatasetFile() { std::filesystem::remove(path_); }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

TEST(ServeDataset, RandomLengthsAndIds) {
  const ServeDatasetOptions options{.vocab_size = 1000,
                                    .random_input_len = 100,
                                    .random_output_len = 20,
                                    .random_range_ratio = 0.25,
                                    .random_prefix_len = 7};
  const auto prompts = Make(options, 300);
  ASSERT_EQ(prompts.size(), 300u);
  const std::vector<TokenId> prefix(Ids(prompts[0]).begin(), Ids(prompts[0]).begin() + 7);
  std::set<size_t> inputs;
  std::set<uint32_t> outputs;
  for (const BenchPrompt& prompt : prompts) {
    EXPECT_EQ(prompt.num_tokens, Ids(prompt).size());
    EXPECT_TRUE(std::equal(prefix.begin(), prefix.end(), Ids(prompt).begin()));
    for (const TokenId id : Ids(prompt)) {
      EXPECT_GE(id, 300);
      EXPECT_LT(id, 1000);
    }
    inputs.insert(Ids(prompt).size() - 7);
    outputs.insert(prompt.max_tokens);
  }
  // Of 51 and 11 values that are equally likely, 300 draws meet the ends but for one case in a
  // hundred, and this seed is no such case.
  EXPECT_EQ(*inputs.begin(), 75u);
  EXPECT_EQ(*inputs.rbegin(), 125u);
  EXPECT_EQ(*outputs.begin(), 15u);
  EXPECT_EQ(*outputs.rbegin(), 25u);
  EXPECT_NE(Ids(prompts[0]), Ids(prompts[1]));
}

TEST(ServeDataset, FollowsTheSeed) {
  const ServeDatasetOptions options{.random_input_len = 10};
  EXPECT_EQ(Ids(Make(options, 1, 5)[0]), Ids(Make(options, 1, 5)[0]));
  EXPECT_NE(Ids(Make(options, 1, 5)[0]), Ids(Make(options, 1, 6)[0]));
}

TEST(ServeDataset, TinyVocabularies) {
  const auto prompts = Make({.vocab_size = 8, .random_input_len = 50}, 1);
  ASSERT_EQ(prompts.size(), 1u);
  for (const TokenId id : Ids(prompts[0])) {
    EXPECT_GE(id, 4);
    EXPECT_LT(id, 8);
  }
}

TEST(ServeDataset, ATokenizerSaysWhatItsVocabularyIs) {
  // Of 258 tokens the last two are BOS and EOS; 129 is the middle.
  const FakeTokenizer tokenizer;
  const auto made = MakePrompts({.random_input_len = 2000}, 1, 0, &tokenizer);
  ASSERT_TRUE(made.ok());
  for (const TokenId id : Ids(made->prompts[0])) {
    ASSERT_GE(id, 129);
    ASSERT_LT(id, FakeTokenizer::kBos);
  }
  const DatasetFile file("{\"prompt\": [5, 258]}");
  const auto refused =
      MakePrompts({.name = ServeDataset::kCustom, .path = file.path()}, 1, 0, &tokenizer);
  ASSERT_FALSE(refused.ok());
  EXPECT_THAT(refused.error().message, HasSubstr("line 1: token 258"));
}

TEST(ServeDataset, PrefixesRepeat) {
  const ServeDatasetOptions options{.name = ServeDataset::kPrefixRepetition,
                                    .prefix_repetition_prefix_len = 6,
                                    .prefix_repetition_suffix_len = 3,
                                    .prefix_repetition_num_prefixes = 4,
                                    .prefix_repetition_output_len = 2};
  std::map<std::vector<TokenId>, int> prefixes;
  std::set<std::vector<TokenId>> suffixes;
  for (const BenchPrompt& prompt : Make(options, 10)) {
    ASSERT_EQ(Ids(prompt).size(), 9u);
    EXPECT_EQ(prompt.max_tokens, 2u);
    ++prefixes[{Ids(prompt).begin(), Ids(prompt).begin() + 6}];
    suffixes.insert({Ids(prompt).begin() + 6, Ids(prompt).end()});
  }
  std::multiset<int> counts;
  for (const auto& [prefix, count] : prefixes) counts.insert(count);
  EXPECT_EQ(counts, (std::multiset<int>{2, 2, 3, 3}));
  EXPECT_EQ(suffixes.size(), 10u);
}

TEST(ServeDataset, ShareGptLengthsHaveTheirMeans) {
  double input = 0;
  double output = 0;
  constexpr size_t kCount = 20'000;
  for (const BenchPrompt& prompt : Make({.name = ServeDataset::kShareGpt}, kCount)) {
    input += prompt.num_tokens;
    output += prompt.max_tokens;
    ASSERT_GE(prompt.num_tokens, 4u);
    ASSERT_LE(prompt.num_tokens, 1024u);
    ASSERT_LE(prompt.num_tokens + prompt.max_tokens, 2048u);
  }
  // The standard errors are near 1.3 and 2.2.
  EXPECT_NEAR(input / kCount, 161, 6);
  EXPECT_NEAR(output / kCount, 338, 10);
}

// 40 bytes are ten tokens by the estimate.
constexpr const char* kTenTokens = "a text with forty bytes in its one line.";

TEST(ServeDataset, ShareGptFiles) {
  const std::string turn = std::string(R"({"from":"human","value":")") + kTenTokens + R"("})";
  const DatasetFile file(R"([{"conversations":[]}, {"id":1}, {"conversations":[)" + turn + "," +
                         R"({"value":"hm"}]}, {"conversations":[)" + turn + "," + turn + "]}]");
  const ServeDatasetOptions options{.name = ServeDataset::kShareGpt, .path = file.path()};
  const auto made = MakePrompts(options, 3, 0, nullptr);
  ASSERT_TRUE(made.ok()) << made.error().message;
  ASSERT_EQ(made->prompts.size(), 3u);
  for (const BenchPrompt& prompt : made->prompts) {
    EXPECT_EQ(std::get<std::string>(prompt.content), kTenTokens);
    EXPECT_EQ(prompt.num_tokens, 10u);
    EXPECT_EQ(prompt.max_tokens, 10u);
  }
  ASSERT_EQ(made->notes.size(), 2u);
  EXPECT_THAT(made->notes[0], HasSubstr("1 usable prompts; they repeat"));
  EXPECT_THAT(made->notes[1], HasSubstr("--tokenizer"));
}

TEST(ServeDataset, CustomFiles) {
  const DatasetFile file(
      "{\"prompt\": \"one\"}\n\n{\"prompt\": [5, 6], \"output_tokens\": 3}\r\n{\"prompt\": "
      "\"left out\"}");
  const ServeDatasetOptions options{
      .name = ServeDataset::kCustom, .path = file.path(), .shuffle = false};
  const auto prompts = Make(options, 2);
  ASSERT_EQ(prompts.size(), 2u);
  EXPECT_EQ(std::get<std::string>(prompts[0].content), "one");
  EXPECT_EQ(prompts[0].max_tokens, 256u);
  EXPECT_EQ(Ids(prompts[1]), (std::vector<TokenId>{5, 6}));
  EXPECT_EQ(prompts[1].max_tokens, 3u);
}

TEST(ServeDataset, BadFilesAreNamed) {
  const auto error_of = [](const std::string& text, ServeDataset name) {
    const DatasetFile file(text);
    const auto made = MakePrompts({.name = name, .path = file.path()}, 1, 0, nullptr);
    return made.ok() ? std::string() : made.error().message;
  };
  EXPECT_THAT(error_of("{\"prompt\": \"x\"}\n{\"text\": \"x\"}\n", ServeDataset::kCustom),
              HasSubstr("line 2: no JSON object with a \"prompt\""));
  EXPECT_THAT(error_of("{\"prompt\": [1, -1]}", ServeDataset::kCustom), HasSubstr("token ids"));
  EXPECT_THAT(error_of("{\"prompt\": [1], \"output_tokens\": 0}", ServeDataset::kCustom),
              HasSubstr("output_tokens"));
  EXPECT_THAT(error_of("\n\n", ServeDataset::kCustom), HasSubstr("no prompts"));
  EXPECT_THAT(error_of("{}", ServeDataset::kShareGpt), HasSubstr("no JSON array"));
  EXPECT_THAT(error_of("[]", ServeDataset::kShareGpt), HasSubstr("no conversation"));
  EXPECT_THAT(MakePrompts({.name = ServeDataset::kCustom}, 1, 0, nullptr).error().message,
              HasSubstr("--dataset-path"));
}

}  // namespace
}  // namespace masu
