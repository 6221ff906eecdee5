// The policy of precision (--kv-policy, docs/precision.md): which requests get which kv_cache_dtype
// if they do not say it themselves, and when drift moves them to another. What the file says, not
// yet what a server offers: that is for KvSelector.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/result.h"

namespace masu {

struct KvPolicyRule {
  std::string name;  // also the class of drift samples
  // All that are given must hold.
  std::string api_key_digest = {};  // as owners in auth.h: 32 bytes; empty: any
  std::vector<std::pair<std::string, std::string>> headers = {};
  std::string model = {};           // as requests name it, without ":KV"; empty: any
  std::string kv_cache_dtype = {};  // empty: the server's default
  struct OnDrift {
    double max_kl = 0;  // nats
    uint32_t min_samples = 20;
    std::string kv_cache_dtype;
  };
  std::optional<OnDrift> on_drift = {};
};

// The class of requests that match no rule, and of those that chose for themselves.
inline constexpr const char* kDefaultKvClass = "default";
inline constexpr const char* kOwnChoiceKvClass = "request";

struct KvPolicy {
  std::vector<KvPolicyRule> rules;                 // the first that matches counts
  KvPolicyRule standard{.name = kDefaultKvClass};  // if none does
};

// Strict: what it does not know is an error, one line that begins with `file`. Holds secrets at no
// time: keys are given as their digests.
Result<KvPolicy> ParseKvPolicy(std::string_view text, const std::string& file);
Result<KvPolicy> ReadKvPolicy(const std::string& path);

}  // namespace masu
