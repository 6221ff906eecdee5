#include "checkpoint/generation_config.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "checkpoint/json_keys.h"
#include "checkpoint/json_text.h"

namespace masu {
namespace {

class Reader {
 public:
  explicit Reader(const JsonKeys& keys) : keys_(keys) {}

  // A number for which `fits` is true; `expected` says which those are.
  template <typename Fits>
  Result<std::optional<float>> Number(const char* key, const char* expected, Fits&& fits) const {
    const nlohmann::json* value = keys_.Find(key);
    if (value == nullptr) return std::optional<float>();
    if (!value->is_number()) return Wrong(key, expected);
    const auto number = value->get<double>();
    const bool finite = std::abs(number) <= std::numeric_limits<float>::max();
    if (!finite || !fits(number)) return Wrong(key, expected);
    return std::optional<float>(static_cast<float>(number));
  }

  // An integer from `min` on; 50.0 is as good as 50.
  Result<std::optional<uint32_t>> Count(const char* key, int64_t min) const {
    constexpr int64_t kMax = std::numeric_limits<int32_t>::max();
    const std::string expected = fmt::format("an integer from {} to {}", min, kMax);
    const auto fits = [min](double number) {
      return number >= static_cast<double>(min) && number <= static_cast<double>(kMax) &&
             number == std::floor(number);
    };
    const nlohmann::json* value = keys_.Find(key);
    if (value == nullptr) return std::optional<uint32_t>();
    if (!value->is_number() || !fits(value->get<double>())) return Wrong(key, expected);
    return std::optional<uint32_t>(
        static_cast<uint32_t>(std::max<int64_t>(value->get<int64_t>(), 0)));
  }

 private:
  Error Wrong(const char* key, std::string_view expected) const {
    return DataLoss(
        "{}: key '{}' is {}, expected {}; correct it, or start with --generation-config vllm",
        keys_.file(), key, keys_.Show(key), expected);
  }

  const JsonKeys& keys_;
};

}  // namespace

std::string GenerationConfig::Describe() const {
  std::string text;
  const auto add = [&text](const char* name, const auto& value) {
    if (value) text += fmt::format("{}{} {}", text.empty() ? "" : ", ", name, *value);
  };
  add("temperature", temperature);
  add("top_p", top_p);
  add("top_k", top_k);
  add("min_p", min_p);
  add("repetition_penalty", repetition_penalty);
  add("max_new_tokens", max_new_tokens);
  return text;
}

Result<GenerationConfig> ReadGenerationConfig(const ModelDirectory& directory) {
  constexpr const char* kFile = "generation_config.json";
  GenerationConfig config;
  MASU_ASSIGN_OR_RETURN(const auto text, directory.Read(kFile));
  if (!text) return config;
  const std::string path = directory.PathOf(kFile);
  MASU_ASSIGN_OR_RETURN(const auto json, ParseJson(*text, path));
  const JsonKeys keys(json, path);
  const Reader reader(keys);
  MASU_ASSIGN_OR_RETURN(config.temperature,
                        reader.Number("temperature", "0 or a finite number above it",
                                      [](double value) { return value >= 0; }));
  MASU_ASSIGN_OR_RETURN(config.top_p,
                        reader.Number("top_p", "a number above 0 and at most 1",
                                      [](double value) { return value > 0 && value <= 1; }));
  MASU_ASSIGN_OR_RETURN(config.min_p,
                        reader.Number("min_p", "a number from 0 to 1",
                                      [](double value) { return value >= 0 && value <= 1; }));
  MASU_ASSIGN_OR_RETURN(config.repetition_penalty,
                        reader.Number("repetition_penalty", "a finite number above 0",
                                      [](double value) { return value > 0; }));
  MASU_ASSIGN_OR_RETURN(config.top_k, reader.Count("top_k", -1));
  MASU_ASSIGN_OR_RETURN(config.max_new_tokens, reader.Count("max_new_tokens", 1));
  return config;
}

Result<std::vector<TokenId>> ReadEosIds(const ModelDirectory& directory) {
  std::vector<TokenId> all;
  for (const char* name : {"generation_config.json", "config.json"}) {
    MASU_ASSIGN_OR_RETURN(const auto text, directory.Read(name));
    if (!text) continue;
    const std::string path = directory.PathOf(name);
    MASU_ASSIGN_OR_RETURN(const auto json, ParseJson(*text, path));
    MASU_ASSIGN_OR_RETURN(const auto ids, JsonKeys(json, path).TokenIds("eos_token_id"));
    for (const TokenId id : ids) {
      if (std::ranges::find(all, id) == all.end()) all.push_back(id);
    }
  }
  return all;
}

}  // namespace masu
