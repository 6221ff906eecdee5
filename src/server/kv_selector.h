// Which of the engine's ways to store K and V a request gets, and why: its own kv_cache_dtype, the
// model's name ("NAME:KV"), the policy, or the server's default. Immutable but for the drift
// monitor, which it owns; thread-safe.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "engine/engine.h"
#include "quality/kv_drift.h"
#include "server/http.h"
#include "server/kv_policy.h"

namespace masu {

// What a client may call the model: one of its names, or that name, a colon and a choice.
struct ModelAlias {
  std::string model;
  std::optional<uint32_t> kv_choice;  // of CacheInfo::choices
};

struct KvQuestion {
  std::string model;           // as written; empty: the first name
  std::string kv_cache_dtype;  // likewise; empty or "auto": not the request's to say
  std::string owner;           // digest of its key (auth.h)
  const HttpHeaders* headers = nullptr;
};

struct KvSelection {
  uint32_t choice = 0;   // of CacheInfo::choices
  std::string model;     // what the answer names
  std::string why;       // "request", "alias", "policy:RULE", "drift:RULE"; empty: the default
  std::string kv_class;  // Request::kv_class
};

struct KvSelectorOptions {
  std::shared_ptr<const KvPolicy> policy = {};  // null: there is none
  std::vector<std::string> model_names = {};    // at least one; the first is what answers name
  bool retry_on_degeneration = false;
  double drift_sample = 0;  // EngineConfig::drift_sample
};

class KvSelector {
 public:
  // Errors, one line each: a dtype or a model that this server does not offer, a reaction to drift
  // that is not sampled, retries without 16 bits to turn to. Needs no weights: `choices` is all
  // that it reads of `info`.
  static Result<std::shared_ptr<const KvSelector>> Create(KvSelectorOptions options,
                                                          const CacheInfo& info);

  // nullopt: no such model. Names that contain colons come first.
  std::optional<ModelAlias> FindModel(const std::string& name) const;
  // All names, each with every choice but the default: "NAME:bfloat16".
  std::vector<std::string> Aliases() const;
  // Errors name `kv_cache_dtype` (400) or `model` (404).
  Result<KvSelection> Select(const KvQuestion& question) const;
  // Where degenerate answers of a choice are made once more; nullopt: nowhere.
  std::optional<uint32_t> RetryChoice(uint32_t choice) const;

  const std::shared_ptr<KvDriftMonitor>& drift() const { return drift_; }

 private:
  // A rule with its names resolved.
  struct Rule {
    KvPolicyRule rule;
    uint32_t choice = 0;
    uint32_t choice_after_drift = 0;
  };
  KvSelector() = default;
  Result<Rule> Resolve(const KvPolicyRule& rule, const KvSelectorOptions& options) const;
  const Rule& RuleFor(const KvQuestion& question, const std::string& model) const;

  CacheInfo info_;
  std::vector<std::string> model_names_;
  std::vector<Rule> rules_;
  Rule standard_;
  std::optional<uint32_t> retry_choice_;
  std::shared_ptr<KvDriftMonitor> drift_;
};

}  // namespace masu
