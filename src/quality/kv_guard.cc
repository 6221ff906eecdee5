#include "quality/kv_guard.h"

#include <fmt/format.h>
#include <unistd.h>
#define XXH_INLINE_ALL
#include <xxhash.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <numeric>

#include "base/log.h"
#include "base/stopwatch.h"
#include "engine/engine_memory.h"
#include "quality/divergence.h"
#include "quality/eval_text.h"
#include "quality/evaluation.h"

namespace masu {
namespace {

constexpr uint32_t kMostTokens = 512;
constexpr uint32_t kLeastTokens = 64;

double LimitOf(const KvOption& option) {
  return MeanKlLimit(
      std::min(KvElementBits(option.sides.k.encoding), KvElementBits(option.sides.v.encoding)));
}

// Layouts compared with 16 bits, on the same tokens.
class Measurement {
 public:
  Measurement(LoadedModel& model, const EngineConfig& config, double budget_seconds)
      : model_(model), config_(config), budget_seconds_(budget_seconds) {
    tokens_ = model.tokenizer->Encode(std::string(BuiltinEvalText()),
                                      {.add_special = true, .parse_special = false});
    const uint64_t most =
        std::min<uint64_t>({kMostTokens, tokens_.size(), model.config.max_position,
                            config.max_model_len.value_or(kMostTokens)});
    tokens_.resize(most);
  }

  // `at_most`: tokens; fewer if time runs out.
  Result<KvVerdict> Compare(const KvOption& option, const std::string& skip_layers,
                            uint32_t at_most = kMostTokens) {
    const auto open = [&](const std::string& dtype, const std::string& skipped) {
      return ScoringSession::Create(model_, {.kv_cache_dtype = dtype,
                                             .kv_cache_dtype_skip_layers = skipped,
                                             .block_size = config_.block_size,
                                             .max_tokens = static_cast<uint32_t>(tokens_.size())});
    };
    MASU_ASSIGN_OR_RETURN(const auto baseline, open(model_.config.half_dtype, ""));
    MASU_ASSIGN_OR_RETURN(const auto session, open(option.canonical, skip_layers));
    const auto begin = std::chrono::steady_clock::now();
    KvVerdict verdict{.kv = option.canonical,
                      .skip_layers = skip_layers,
                      .top1_agreement = 0,
                      .limit = LimitOf(option)};
    const uint64_t end = std::min<uint64_t>(tokens_.size(), at_most);
    while (verdict.tokens < end) {
      const auto chunk = std::span(tokens_).subspan(
          verdict.tokens, std::min<uint64_t>(baseline->max_chunk(), end - verdict.tokens));
      Add(baseline->Append(chunk), session->Append(chunk), verdict);
      verdict.tokens += static_cast<uint32_t>(chunk.size());
      if (verdict.tokens >= kLeastTokens && SecondsSince(begin) > budget_seconds_) break;
    }
    verdict.mean_kl /= verdict.tokens;
    verdict.top1_agreement /= verdict.tokens;
    return verdict;
  }

 private:
  void Add(std::span<const float> expected, std::span<const float> got, KvVerdict& verdict) const {
    const size_t vocab = model_.config.vocab_size;
    for (size_t at = 0; at < expected.size(); at += vocab) {
      const auto a = expected.subspan(at, vocab), b = got.subspan(at, vocab);
      verdict.mean_kl += KlDivergence(a, b);
      verdict.top1_agreement += Argmax(a) == Argmax(b) ? 1 : 0;
    }
  }

  LoadedModel& model_;
  const EngineConfig& config_;
  double budget_seconds_;
  std::vector<TokenId> tokens_;
};

// Verdicts of earlier starts, one small file for each.
class VerdictCache {
 public:
  VerdictCache(std::string folder, const LoadedModel& model) : folder_(std::move(folder)) {
    key_ = fmt::format("{} {:016x} {} {}", MASU_VERSION, model.fingerprint, model.isa,
                       model.activation_dtype);
    if (!model.kv_scales) return;
    for (const auto* side : {&model.kv_scales->k, &model.kv_scales->v}) {
      for (const std::vector<float>& heads : *side)
        key_ += fmt::format(" {:x}", XXH3_64bits(heads.data(), heads.size() * sizeof(float)));
    }
  }

  std::optional<KvVerdict> Find(const KvOption& option, const EngineConfig& config) const {
    if (folder_.empty()) return std::nullopt;
    const std::string key = KeyOf(option, config);
    std::ifstream file(PathOf(key));
    const auto json = nlohmann::json::parse(file, nullptr, false);
    // Anything else than what Keep wrote, whoever changed it, is measured again.
    if (!json.is_object() || json.value("key", nlohmann::json()) != key) return std::nullopt;
    for (const char* number : {"mean_kl", "top1_agreement", "tokens"}) {
      if (!json.contains(number) || !json[number].is_number()) return std::nullopt;
    }
    return KvVerdict{.kv = option.canonical,
                     .skip_layers = config.kv_cache_dtype_skip_layers,
                     .mean_kl = json["mean_kl"],
                     .top1_agreement = json["top1_agreement"],
                     .tokens = json["tokens"],
                     .limit = LimitOf(option),
                     .cached = true};
  }

  // A folder that cannot be written costs time at the next start, nothing else.
  void Keep(const KvOption& option, const EngineConfig& config, const KvVerdict& verdict) const {
    if (folder_.empty()) return;
    std::error_code error;
    std::filesystem::create_directories(folder_, error);
    const std::string key = KeyOf(option, config);
    const std::string path = PathOf(key);
    const std::string temporary = fmt::format("{}.{}", path, ::getpid());
    std::ofstream file(temporary);
    file << nlohmann::json{{"key", key},
                           {"mean_kl", verdict.mean_kl},
                           {"top1_agreement", verdict.top1_agreement},
                           {"tokens", verdict.tokens}}
                .dump(2)
         << "\n";
    file.close();
    if (file.good()) std::filesystem::rename(temporary, path, error);
    if (!file.good() || error) {
      std::filesystem::remove(temporary, error);
      LogInfo("{}: the verdict of the KV guard cannot be kept there", folder_);
    }
  }

 private:
  std::string KeyOf(const KvOption& option, const EngineConfig& config) const {
    return fmt::format("{} {} skip={} block={} conditioning={}", key_, option.canonical,
                       config.kv_cache_dtype_skip_layers, config.block_size,
                       config.kv_conditioning);
  }
  std::string PathOf(const std::string& key) const {
    return fmt::format("{}/{:016x}.json", folder_, XXH3_64bits(key.data(), key.size()));
  }

  std::string folder_;
  std::string key_;
};

std::string Describe(const KvVerdict& verdict) {
  return fmt::format(
      "kv_cache_dtype {} moves this model's next tokens by a mean KL of {:.3g} (limit {:.3g}, {} "
      "tokens of built-in text, top-1 agreement {:.1f} %)",
      verdict.kv, verdict.mean_kl, verdict.limit, verdict.tokens, 100 * verdict.top1_agreement);
}

std::string Join(const std::vector<uint32_t>& layers) {
  return fmt::format("{}", fmt::join(layers, ","));
}

// Layers in order of what they cost alone, the costliest first.
Result<std::vector<uint32_t>> MostSensitiveLayers(Measurement& measurement, const KvOption& option,
                                                  const KvGuardOptions& options) {
  const auto count = static_cast<uint32_t>(option.layers.size());
  std::vector<double> cost(count);
  for (uint32_t layer = 0; layer < count; ++layer) {
    std::vector<uint32_t> others;
    for (uint32_t i = 0; i < count; ++i) {
      if (i != layer) others.push_back(i);
    }
    MASU_ASSIGN_OR_RETURN(const KvVerdict alone,
                          measurement.Compare(option, Join(others), kLeastTokens));
    cost[layer] = alone.mean_kl;
    if (options.progress) options.progress(static_cast<double>(layer + 1) / count);
  }
  std::vector<uint32_t> order(count);
  std::iota(order.begin(), order.end(), 0u);
  std::ranges::stable_sort(order, [&](uint32_t a, uint32_t b) { return cost[a] > cost[b]; });
  return order;
}

// The fewest layers, most sensitive first, that stay at 16 bits so that the limit holds.
Result<KvVerdict> FallBack(Measurement& measurement, const KvOption& option,
                           const KvGuardOptions& options) {
  MASU_ASSIGN_OR_RETURN(const std::vector<uint32_t> order,
                        MostSensitiveLayers(measurement, option, options));
  std::optional<KvVerdict> best;
  size_t low = 0, high = order.size();  // `low` layers are too few; all of them are enough
  while (high - low > 1 || !best) {
    const size_t middle = best ? low + (high - low) / 2 : std::min<size_t>(high, 2 * low + 1);
    std::vector<uint32_t> skipped(order.begin(),
                                  order.begin() + static_cast<std::ptrdiff_t>(middle));
    std::ranges::sort(skipped);
    MASU_ASSIGN_OR_RETURN(const KvVerdict verdict, measurement.Compare(option, Join(skipped)));
    if (verdict.holds() || middle == order.size()) {
      best = verdict;
      high = middle;
    } else {
      low = middle;
    }
  }
  return *best;
}

}  // namespace

Result<KvGuard> ParseKvGuard(const std::string& name) {
  if (name == "off") return KvGuard::kOff;
  if (name == "warn") return KvGuard::kWarn;
  if (name == "fallback") return KvGuard::kFallback;
  if (name == "refuse") return KvGuard::kRefuse;
  return InvalidArgument("unknown --kv-guard '{}'; use off, warn, fallback or refuse", name);
}

Result<KvGuardResult> RunKvGuard(LoadedModel& model, const EngineConfig& config,
                                 const KvGuardOptions& options) {
  KvGuardResult result;
  if (options.guard == KvGuard::kOff || model.tokenizer == nullptr) return result;
  MASU_ASSIGN_OR_RETURN(const KvLayouts kv,
                        ConfiguredLayouts(model.config, config, model.scales()));
  const VerdictCache cache(options.cache_folder, model);
  Measurement measurement(model, config, options.budget_seconds);
  for (size_t c = 0; c < kv.choices.size(); ++c) {
    const KvOption& option = kv.choices[c].option;
    if (option.bits() >= 16) continue;
    std::optional<KvVerdict> verdict = cache.Find(option, config);
    if (!verdict) {
      MASU_ASSIGN_OR_RETURN(verdict,
                            measurement.Compare(option, config.kv_cache_dtype_skip_layers));
      cache.Keep(option, config, *verdict);
    }
    result.verdicts.push_back(*verdict);
    if (verdict->holds()) continue;
    const std::string remedy =
        "use int8, --kv-guard fallback, or auto (16 bits); masu eval kv shows all encodings";
    if (options.guard == KvGuard::kRefuse && c == 0) {
      return MakeError(ErrorCode::kInvalidArgument, "{}; {}", Describe(*verdict), remedy);
    }
    if (options.guard != KvGuard::kFallback || c > 0) {
      result.warnings.push_back(fmt::format("{}; {}", Describe(*verdict), remedy));
      continue;
    }
    MASU_ASSIGN_OR_RETURN(const KvVerdict chosen, FallBack(measurement, option, options));
    result.skip_layers = chosen.skip_layers;
    result.warnings.push_back(fmt::format("{}; layers {} stay at {}: mean KL {:.3g}",
                                          Describe(*verdict), chosen.skip_layers,
                                          model.config.half_dtype, chosen.mean_kl));
    result.verdicts.back() = chosen;
  }
  return result;
}

}  // namespace masu
