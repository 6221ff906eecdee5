#include "bench/serve_dataset.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <random>

#include "checkpoint/whole_file.h"

namespace masu {
namespace {

using Json = nlohmann::json;
using Random = std::mt19937_64;

constexpr uint64_t kMaxFileBytes = 4ull << 30;  // ShareGPT's has 0.6 GB
// The cut of `vllm bench serve`: shorter ones say nothing, longer ones did not fit the models that
// the data was first used with.
constexpr uint32_t kShareGptMinTokens = 4;
constexpr uint32_t kShareGptMaxPrompt = 1024;
constexpr uint32_t kShareGptMaxTotal = 2048;
// Vocabularies begin with control tokens and single bytes (SentencePiece: 3 + 256); random ids lie
// above them, or in the upper half of a tiny vocabulary.
constexpr uint32_t kFirstPlainToken = 300;
// English text has about four bytes to a token in vocabularies of 32,000 and more.
constexpr size_t kBytesPerToken = 4;

class RandomTokens {
 public:
  // Control tokens are left out if the tokenizer says which they are; it may be null.
  RandomTokens(uint32_t vocab_size, const Tokenizer* tokenizer, Random& random)
      : random_(random),
        tokenizer_(tokenizer),
        ids_(static_cast<TokenId>(std::min(kFirstPlainToken, vocab_size / 2)),
             static_cast<TokenId>(vocab_size) - 1) {}
  void Append(size_t count, std::vector<TokenId>& to) {
    for (size_t i = 0; i < count; ++i) to.push_back(Draw());
  }
  std::vector<TokenId> Make(size_t count) {
    std::vector<TokenId> ids;
    Append(count, ids);
    return ids;
  }

 private:
  TokenId Draw() {
    for (;;) {
      const TokenId id = ids_(random_);
      if (tokenizer_ == nullptr || (tokenizer_->IsValid(id) && !tokenizer_->IsControl(id))) {
        return id;
      }
    }
  }

  Random& random_;
  const Tokenizer* tokenizer_;
  std::uniform_int_distribution<TokenId> ids_;
};

BenchPrompt OfTokens(std::vector<TokenId> ids, uint32_t max_tokens) {
  const auto count = static_cast<uint32_t>(ids.size());
  return {.content = std::move(ids), .num_tokens = count, .max_tokens = max_tokens};
}

std::uniform_int_distribution<uint32_t> LengthsAround(uint32_t length, double ratio) {
  const auto low = static_cast<uint32_t>(std::floor(length * (1 - ratio)));
  const auto high = static_cast<uint32_t>(std::ceil(length * (1 + ratio)));
  return std::uniform_int_distribution<uint32_t>(std::max(low, 1u), std::max(high, 1u));
}

std::vector<BenchPrompt> RandomPrompts(const ServeDatasetOptions& options, size_t count,
                                       RandomTokens& tokens, Random& random) {
  const std::vector<TokenId> prefix = tokens.Make(options.random_prefix_len);
  auto inputs = LengthsAround(options.random_input_len, options.random_range_ratio);
  auto outputs = LengthsAround(options.random_output_len, options.random_range_ratio);
  std::vector<BenchPrompt> prompts;
  while (prompts.size() < count) {
    std::vector<TokenId> ids = prefix;
    tokens.Append(inputs(random), ids);
    prompts.push_back(OfTokens(std::move(ids), outputs(random)));
  }
  return prompts;
}

std::vector<BenchPrompt> PrefixRepetitionPrompts(const ServeDatasetOptions& options, size_t count,
                                                 RandomTokens& tokens, Random& random) {
  std::vector<std::vector<TokenId>> prefixes(options.prefix_repetition_num_prefixes);
  for (auto& prefix : prefixes) prefix = tokens.Make(options.prefix_repetition_prefix_len);
  std::vector<BenchPrompt> prompts;
  while (prompts.size() < count) {
    std::vector<TokenId> ids = prefixes[prompts.size() % prefixes.size()];
    tokens.Append(options.prefix_repetition_suffix_len, ids);
    prompts.push_back(OfTokens(std::move(ids), options.prefix_repetition_output_len));
  }
  if (options.shuffle) std::shuffle(prompts.begin(), prompts.end(), random);
  return prompts;
}

bool IsUsable(uint32_t prompt, uint32_t output) {
  return prompt >= kShareGptMinTokens && output >= kShareGptMinTokens &&
         prompt <= kShareGptMaxPrompt && prompt + output <= kShareGptMaxTotal;
}

std::vector<BenchPrompt> ShareGptLikePrompts(const ServeDatasetOptions& options, size_t count,
                                             RandomTokens& tokens, Random& random) {
  using Lengths = ShareGptLengths;
  std::lognormal_distribution<double> inputs(std::log(Lengths::kPromptMedian),
                                             Lengths::kPromptSigma);
  std::lognormal_distribution<double> outputs(std::log(Lengths::kOutputMedian),
                                              Lengths::kOutputSigma);
  std::vector<BenchPrompt> prompts;
  while (prompts.size() < count) {
    const double input = std::round(inputs(random));
    const double output = std::round(outputs(random));
    if (input > kShareGptMaxPrompt || output > kShareGptMaxTotal) continue;  // before the cast
    if (!IsUsable(static_cast<uint32_t>(input), static_cast<uint32_t>(output))) continue;
    prompts.push_back(
        OfTokens(tokens.Make(static_cast<size_t>(input)),
                 options.sharegpt_output_len.value_or(static_cast<uint32_t>(output))));
  }
  return prompts;
}

uint32_t CountTokens(const std::string& text, const Tokenizer* tokenizer) {
  if (tokenizer == nullptr) {
    return static_cast<uint32_t>((text.size() + kBytesPerToken - 1) / kBytesPerToken);
  }
  return static_cast<uint32_t>(
      tokenizer->Encode(text, {.add_special = false, .parse_special = false}).size());
}

// The text of a turn of a ShareGPT conversation; null if it has none.
const std::string* TurnText(const Json& conversation, size_t turn) {
  const Json& text = conversation[turn]["value"];
  return text.get_ptr<const std::string*>();
}

// The first turn asks, the second answers: its length is the answer's.
std::optional<BenchPrompt> ShareGptPrompt(const Json& entry, const ServeDatasetOptions& options,
                                          const Tokenizer* tokenizer) {
  const auto found = entry.find("conversations");
  if (found == entry.end() || !found->is_array() || found->size() < 2) return std::nullopt;
  for (size_t turn = 0; turn < 2; ++turn) {
    if (!(*found)[turn].is_object() || !(*found)[turn].contains("value")) return std::nullopt;
  }
  const std::string* question = TurnText(*found, 0);
  const std::string* answer = TurnText(*found, 1);
  if (question == nullptr || answer == nullptr) return std::nullopt;
  const uint32_t input = CountTokens(*question, tokenizer);
  const uint32_t output = options.sharegpt_output_len.value_or(CountTokens(*answer, tokenizer));
  if (!IsUsable(input, output)) return std::nullopt;
  return BenchPrompt{.content = *question, .num_tokens = input, .max_tokens = output};
}

// Repeats what there is until there are `count`.
BenchPrompts Repeated(std::vector<BenchPrompt> prompts, size_t count, const std::string& path) {
  BenchPrompts result{.prompts = std::move(prompts), .notes = {}};
  const size_t unique = result.prompts.size();
  if (unique < count) {
    result.notes.push_back(fmt::format(
        "{} has {} usable prompts; they repeat, so a cache of prefixes answers some of them", path,
        unique));
  }
  result.prompts.reserve(count);
  while (result.prompts.size() < count) {
    result.prompts.push_back(result.prompts[result.prompts.size() - unique]);
  }
  return result;
}

Result<BenchPrompts> ReadShareGpt(const ServeDatasetOptions& options, size_t count, Random& random,
                                  const Tokenizer* tokenizer) {
  MASU_ASSIGN_OR_RETURN(const std::string text, ReadWholeFile(options.path, kMaxFileBytes));
  const Json data = Json::parse(text, nullptr, false);
  if (!data.is_array()) {
    return DataLoss("{}: no JSON array of objects with \"conversations\", as ShareGPT's files are",
                    options.path);
  }
  std::vector<size_t> order(data.size());
  for (size_t i = 0; i < order.size(); ++i) order[i] = i;
  if (options.shuffle) std::shuffle(order.begin(), order.end(), random);
  std::vector<BenchPrompt> prompts;
  for (const size_t i : order) {
    if (prompts.size() == count) break;
    if (!data[i].is_object()) continue;
    if (auto prompt = ShareGptPrompt(data[i], options, tokenizer)) {
      prompts.push_back(std::move(*prompt));
    }
  }
  if (prompts.empty()) {
    return DataLoss(
        "{}: no conversation of two turns with {} to {} tokens of prompt and up to {} in all",
        options.path, kShareGptMinTokens, kShareGptMaxPrompt, kShareGptMaxTotal);
  }
  BenchPrompts result = Repeated(std::move(prompts), count, options.path);
  if (tokenizer == nullptr) {
    result.notes.push_back(fmt::format(
        "lengths are estimated at {} bytes to a token; --tokenizer counts them", kBytesPerToken));
  }
  return result;
}

Result<BenchPrompt> CustomPrompt(const std::string& line, const ServeDatasetOptions& options,
                                 const Tokenizer* tokenizer) {
  const Json entry = Json::parse(line, nullptr, false);
  if (!entry.is_object() || !entry.contains("prompt")) {
    return DataLoss("no JSON object with a \"prompt\"");
  }
  BenchPrompt prompt;
  prompt.max_tokens = options.custom_output_len;
  if (const auto output = entry.find("output_tokens"); output != entry.end()) {
    if (!output->is_number_unsigned() || *output == 0) {
      return DataLoss("output_tokens is no positive number");
    }
    prompt.max_tokens = output->get<uint32_t>();
  }
  const Json& content = entry["prompt"];
  if (content.is_string()) {
    prompt.content = content.get<std::string>();
    prompt.num_tokens = CountTokens(content.get<std::string>(), tokenizer);
    return prompt;
  }
  const auto is_id = [](const Json& id) {
    return id.is_number_unsigned() && id <= std::numeric_limits<TokenId>::max();
  };
  if (!content.is_array() || !std::all_of(content.begin(), content.end(), is_id)) {
    return DataLoss("\"prompt\" is neither text nor a list of token ids");
  }
  auto ids = content.get<std::vector<TokenId>>();
  for (const TokenId id : ids) {
    if (tokenizer != nullptr && !tokenizer->IsValid(id)) {
      return DataLoss("token {} is not in the vocabulary of --tokenizer", id);
    }
  }
  return OfTokens(std::move(ids), prompt.max_tokens);
}

Result<BenchPrompts> ReadCustom(const ServeDatasetOptions& options, size_t count, Random& random,
                                const Tokenizer* tokenizer) {
  MASU_ASSIGN_OR_RETURN(const std::string text, ReadWholeFile(options.path, kMaxFileBytes));
  std::vector<BenchPrompt> prompts;
  size_t number = 0;
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = std::min(text.find('\n', begin), text.size());
    const std::string line = text.substr(begin, end - begin);
    begin = end + 1;
    ++number;
    if (line.find_first_not_of(" \t\r") == std::string::npos) continue;
    Result<BenchPrompt> prompt = CustomPrompt(line, options, tokenizer);
    if (!prompt.ok()) {
      return DataLoss("{} line {}: {}; a line is {{\"prompt\": \"...\", \"output_tokens\": 64}}",
                      options.path, number, prompt.error().message);
    }
    prompts.push_back(std::move(*prompt));
  }
  if (prompts.empty()) return DataLoss("{}: no prompts, one JSON object a line", options.path);
  if (options.shuffle) std::shuffle(prompts.begin(), prompts.end(), random);
  if (prompts.size() > count) prompts.resize(count);
  return Repeated(std::move(prompts), count, options.path);
}

}  // namespace

Result<BenchPrompts> MakePrompts(const ServeDatasetOptions& options, size_t count, uint64_t seed,
                                 const Tokenizer* tokenizer) {
  Random random(seed);
  const uint32_t vocab_size = tokenizer != nullptr ? tokenizer->vocab_size() : options.vocab_size;
  RandomTokens tokens(vocab_size, tokenizer, random);
  switch (options.name) {
    case ServeDataset::kRandom:
      return BenchPrompts{RandomPrompts(options, count, tokens, random), {}};
    case ServeDataset::kPrefixRepetition:
      return BenchPrompts{PrefixRepetitionPrompts(options, count, tokens, random), {}};
    case ServeDataset::kShareGpt:
      if (!options.path.empty()) return ReadShareGpt(options, count, random, tokenizer);
      return BenchPrompts{ShareGptLikePrompts(options, count, tokens, random), {}};
    case ServeDataset::kCustom:
      if (!options.path.empty()) return ReadCustom(options, count, random, tokenizer);
      return InvalidArgument(
          "the dataset 'custom' is a file; name it with --dataset-path, one JSON object with a "
          "\"prompt\" a line");
  }
  MASU_CHECK(false);
}

}  // namespace masu
