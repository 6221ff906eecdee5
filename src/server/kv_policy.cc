#include "server/kv_policy.h"

#include <algorithm>
#include <cctype>
#include <cmath>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>

#include "checkpoint/json_text.h"

namespace masu {
namespace {

using PolicyJson = nlohmann::json;

// Each takes hours at --drift-sample 0.001 already.
constexpr uint32_t kMostSamples = 100'000;
// Names are labels of metrics and stand in answers.
constexpr size_t kLongestName = 64;

bool IsName(const std::string& name) {
  return !name.empty() && name.size() <= kLongestName &&
         std::ranges::all_of(name, [](unsigned char c) {
           return std::isalnum(c) != 0 || c == '_' || c == '-' || c == '.';
         });
}

// 64 hexadecimal digits to bytes.
std::optional<std::string> FromHex(const std::string& hex) {
  constexpr size_t kBytes = 32;
  if (hex.size() != 2 * kBytes) return std::nullopt;
  const auto is_digit = [](unsigned char c) { return std::isxdigit(c) != 0; };
  if (!std::ranges::all_of(hex, is_digit)) return std::nullopt;
  std::string bytes;
  for (size_t i = 0; i < hex.size(); i += 2)
    bytes.push_back(static_cast<char>(std::stoi(hex.substr(i, 2), nullptr, 16)));
  return bytes;
}

bool IsAuthorization(const std::string& header) {
  constexpr std::string_view kName = "authorization";
  return std::ranges::equal(header, kName,
                            [](unsigned char a, unsigned char b) { return std::tolower(a) == b; });
}

class PolicyReader {
 public:
  explicit PolicyReader(std::string file) : file_(std::move(file)) {}

  Result<KvPolicy> Read(const PolicyJson& json) const {
    MASU_TRY(CheckKeys(json, "the file", {"rules", "default"}));
    KvPolicy policy;
    if (const auto rules = json.find("rules"); rules != json.end()) {
      if (!rules->is_array()) return Bad("rules", "must be an array");
      for (size_t i = 0; i < rules->size(); ++i) {
        MASU_ASSIGN_OR_RETURN(KvPolicyRule rule,
                              ReadRule((*rules)[i], fmt::format("rules[{}]", i)));
        const auto same = [&](const KvPolicyRule& other) { return other.name == rule.name; };
        if (std::ranges::any_of(policy.rules, same))
          return Bad(fmt::format("rules[{}]", i), "has the name of a rule before it: " + rule.name);
        policy.rules.push_back(std::move(rule));
      }
    }
    if (const auto standard = json.find("default"); standard != json.end()) {
      MASU_TRY(CheckKeys(*standard, "default", {"kv_cache_dtype", "on_drift"}));
      MASU_TRY(ReadDtypes(*standard, "default", policy.standard));
    }
    return policy;
  }

 private:
  Error Bad(const std::string& where, std::string_view what) const {
    return InvalidArgument("{}: {} {}", file_, where, what);
  }

  Result<void> CheckKeys(const PolicyJson& json, const std::string& where,
                         const std::vector<std::string>& known) const {
    if (!json.is_object()) return Bad(where, "must be an object");
    for (const auto& [key, value] : json.items()) {
      if (std::ranges::find(known, key) != known.end()) continue;
      // As JSON: whatever the key holds, the message stays one line.
      return Bad(where, fmt::format("has the unknown key {}; known are {}",
                                    PolicyJson(key.substr(0, 64))
                                        .dump(-1, ' ', true, PolicyJson::error_handler_t::replace),
                                    fmt::join(known, ", ")));
    }
    return {};
  }

  // Leaves `out` alone if the key is absent.
  Result<void> ReadString(const PolicyJson& json, const std::string& where, const char* key,
                          std::string& out) const {
    const auto found = json.find(key);
    if (found == json.end()) return {};
    if (!found->is_string() || found->get_ref<const std::string&>().empty())
      return Bad(where + "." + key, "must be a string that is not empty");
    out = found->get<std::string>();
    return {};
  }

  Result<KvPolicyRule> ReadRule(const PolicyJson& json, const std::string& where) const {
    MASU_TRY(CheckKeys(json, where, {"name", "match", "kv_cache_dtype", "on_drift"}));
    KvPolicyRule rule;
    MASU_TRY(ReadString(json, where, "name", rule.name));
    if (!IsName(rule.name)) {
      return Bad(where + ".name",
                 fmt::format("must have 1 to {} letters, digits, '_', '-' or '.'", kLongestName));
    }
    if (rule.name == kDefaultKvClass || rule.name == kOwnChoiceKvClass)
      return Bad(where + ".name", fmt::format("'{}' is taken; use another", rule.name));
    const auto match = json.find("match");
    if (match == json.end()) return Bad(where, "has no match; what is for all goes to default");
    MASU_TRY(ReadMatch(*match, where + ".match", rule));
    MASU_TRY(ReadDtypes(json, where, rule));
    return rule;
  }

  Result<void> ReadMatch(const PolicyJson& json, const std::string& where,
                         KvPolicyRule& rule) const {
    MASU_TRY(CheckKeys(json, where, {"api_key_sha256", "header", "model"}));
    if (json.empty()) return Bad(where, "is empty; what is for all goes to default");
    std::string hex;
    MASU_TRY(ReadString(json, where, "api_key_sha256", hex));
    if (!hex.empty()) {
      // Never shown: it may be the key itself, put there by mistake.
      const auto digest = FromHex(hex);
      if (!digest) {
        return Bad(where + ".api_key_sha256",
                   "must be the 64 hexadecimal digits of: printf %s \"$KEY\" | sha256sum");
      }
      rule.api_key_digest = *digest;
    }
    MASU_TRY(ReadString(json, where, "model", rule.model));
    const auto headers = json.find("header");
    if (headers == json.end()) return {};
    if (!headers->is_object() || headers->empty())
      return Bad(where + ".header", "must be an object such as {\"X-Task\": \"contract\"}");
    for (const auto& [name, value] : headers->items()) {
      if (IsAuthorization(name))
        return Bad(where + ".header", "must not hold a key; use api_key_sha256");
      if (!value.is_string() || value.get_ref<const std::string&>().empty())
        return Bad(where + ".header", "must have values that are strings and not empty");
      rule.headers.emplace_back(name, value.get<std::string>());
    }
    return {};
  }

  Result<void> ReadDtypes(const PolicyJson& json, const std::string& where,
                          KvPolicyRule& rule) const {
    MASU_TRY(ReadString(json, where, "kv_cache_dtype", rule.kv_cache_dtype));
    const auto reaction = json.find("on_drift");
    if (reaction != json.end()) {
      KvPolicyRule::OnDrift on_drift;
      MASU_TRY(ReadReaction(*reaction, where + ".on_drift", on_drift));
      rule.on_drift = std::move(on_drift);
    }
    return {};
  }

  Result<void> ReadReaction(const PolicyJson& json, const std::string& where,
                            KvPolicyRule::OnDrift& on_drift) const {
    MASU_TRY(CheckKeys(json, where, {"max_kl", "min_samples", "kv_cache_dtype"}));
    const auto max_kl = json.find("max_kl");
    if (max_kl == json.end() || !max_kl->is_number() || !(max_kl->get<double>() > 0) ||
        !std::isfinite(max_kl->get<double>())) {
      return Bad(where + ".max_kl", "must be a number of nats above 0, such as 0.05");
    }
    on_drift.max_kl = max_kl->get<double>();
    if (const auto samples = json.find("min_samples"); samples != json.end()) {
      if (!samples->is_number_unsigned() || samples->get<uint64_t>() < 1 ||
          samples->get<uint64_t>() > kMostSamples) {
        return Bad(where + ".min_samples", fmt::format("must be from 1 to {}", kMostSamples));
      }
      on_drift.min_samples = samples->get<uint32_t>();
    }
    MASU_TRY(ReadString(json, where, "kv_cache_dtype", on_drift.kv_cache_dtype));
    if (on_drift.kv_cache_dtype.empty())
      return Bad(where, "needs kv_cache_dtype: what new requests get then");
    return {};
  }

  std::string file_;
};

}  // namespace

Result<KvPolicy> ParseKvPolicy(std::string_view text, const std::string& file) {
  const Result<PolicyJson> json = ParseStrictJson(text);
  if (!json.ok()) return InvalidArgument("{}: {}", file, json.error().message);
  return PolicyReader(file).Read(*json);
}

Result<KvPolicy> ReadKvPolicy(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  const std::string text(std::istreambuf_iterator<char>(file), {});
  if (!file) return MakeError(ErrorCode::kNotFound, "--kv-policy {}: cannot be read", path);
  return ParseKvPolicy(text, path);
}

}  // namespace masu
