#include "server/kv_selector.h"

#include <algorithm>

#include "quant/kv_encoding.h"

namespace masu {
namespace {

// Longer ones are no dtype; a message must not repeat a body.
constexpr size_t kLongestDtype = 64;

bool SaysNothing(const std::string& dtype) { return dtype.empty() || dtype == "auto"; }

Result<uint32_t> FindChoice(const CacheInfo& info, const std::string& dtype) {
  if (dtype.size() > kLongestDtype)
    return InvalidArgument("unknown kv_cache_dtype '{}...'", dtype.substr(0, kLongestDtype));
  return FindKvChoice(info, dtype);
}

bool Matches(const KvPolicyRule& rule, const KvQuestion& question, const std::string& model) {
  if (!rule.api_key_digest.empty() && rule.api_key_digest != question.owner) return false;
  if (!rule.model.empty() && rule.model != model) return false;
  return std::ranges::all_of(rule.headers, [&](const auto& header) {
    return question.headers != nullptr &&
           FindHeader(*question.headers, header.first) == header.second;
  });
}

}  // namespace

Result<std::shared_ptr<const KvSelector>> KvSelector::Create(KvSelectorOptions options,
                                                             const CacheInfo& info) {
  auto selector = std::shared_ptr<KvSelector>(new KvSelector());
  selector->info_ = info;
  const KvPolicy nothing;
  const KvPolicy& policy = options.policy ? *options.policy : nothing;
  for (const KvPolicyRule& rule : policy.rules) {
    MASU_ASSIGN_OR_RETURN(Rule resolved, selector->Resolve(rule, options));
    selector->rules_.push_back(std::move(resolved));
  }
  MASU_ASSIGN_OR_RETURN(selector->standard_, selector->Resolve(policy.standard, options));
  std::vector<DriftReaction> reactions;
  const auto add = [&](const Rule& rule) {
    if (!rule.rule.on_drift) return;
    reactions.push_back({.kv_class = rule.rule.name,
                         .kv_choice = info.choices[rule.choice].name,
                         .max_kl = rule.rule.on_drift->max_kl,
                         .min_samples = rule.rule.on_drift->min_samples,
                         .moves_to = info.choices[rule.choice_after_drift].name});
  };
  for (const Rule& rule : selector->rules_) add(rule);
  add(selector->standard_);
  selector->drift_ = std::make_shared<KvDriftMonitor>(std::move(reactions));
  if (options.retry_on_degeneration) {
    selector->retry_choice_ = FindWideKvChoice(info);
    if (!selector->retry_choice_) {
      return InvalidArgument(
          "--retry-on-degeneration needs a 16-bit cache beside {}; start with "
          "--kv-cache-dtype-choices auto",
          info.choices.front().name);
    }
  }
  selector->model_names_ = std::move(options.model_names);
  return std::shared_ptr<const KvSelector>(std::move(selector));
}

Result<KvSelector::Rule> KvSelector::Resolve(const KvPolicyRule& rule,
                                             const KvSelectorOptions& options) const {
  Rule resolved{.rule = rule};
  const auto find = [&](const std::string& dtype) -> Result<uint32_t> {
    const Result<uint32_t> choice = FindChoice(info_, dtype);
    if (choice.ok()) return *choice;
    return InvalidArgument("--kv-policy: rule '{}': {}", rule.name, choice.error().message);
  };
  const auto& names = options.model_names;
  if (!rule.model.empty() && std::ranges::find(names, rule.model) == names.end()) {
    return InvalidArgument("--kv-policy: rule '{}': this server has no model '{}', but {}",
                           rule.name, rule.model, fmt::join(names, ", "));
  }
  MASU_ASSIGN_OR_RETURN(resolved.choice, find(rule.kv_cache_dtype));
  if (!rule.on_drift) return resolved;
  MASU_ASSIGN_OR_RETURN(resolved.choice_after_drift, find(rule.on_drift->kv_cache_dtype));
  if (resolved.choice_after_drift == resolved.choice) {
    return InvalidArgument("--kv-policy: rule '{}': on_drift moves from {} to itself", rule.name,
                           info_.choices[resolved.choice].name);
  }
  if (options.drift_sample <= 0) {
    return InvalidArgument(
        "--kv-policy: rule '{}' has on_drift, but nothing is sampled; start with --drift-sample "
        "0.001",
        rule.name);
  }
  return resolved;
}

std::optional<ModelAlias> KvSelector::FindModel(const std::string& name) const {
  const auto is_name = [&](const std::string& text) {
    return std::ranges::find(model_names_, text) != model_names_.end();
  };
  if (is_name(name)) return ModelAlias{.model = name, .kv_choice = std::nullopt};
  // The dtype may have colons, and so may the name: from the right, so that the longest name
  // counts.
  for (size_t colon = name.rfind(':'); colon != std::string::npos && colon > 0;
       colon = name.rfind(':', colon - 1)) {
    if (name.size() - colon > kLongestDtype) break;
    std::string model = name.substr(0, colon);
    const std::string dtype = name.substr(colon + 1);
    if (SaysNothing(dtype) || !is_name(model)) continue;
    const Result<uint32_t> choice = FindKvChoice(info_, dtype);
    if (choice.ok()) return ModelAlias{.model = std::move(model), .kv_choice = *choice};
  }
  return std::nullopt;
}

std::vector<std::string> KvSelector::Aliases() const {
  std::vector<std::string> aliases;
  for (const std::string& name : model_names_) {
    for (size_t i = 1; i < info_.choices.size(); ++i)
      aliases.push_back(name + ":" + info_.choices[i].name);
  }
  return aliases;
}

const KvSelector::Rule& KvSelector::RuleFor(const KvQuestion& question,
                                            const std::string& model) const {
  for (const Rule& rule : rules_) {
    if (Matches(rule.rule, question, model)) return rule;
  }
  return standard_;
}

Result<KvSelection> KvSelector::Select(const KvQuestion& question) const {
  ModelAlias alias{.model = model_names_.front(), .kv_choice = std::nullopt};
  if (!question.model.empty()) {
    const auto found = FindModel(question.model);
    if (!found) {
      return Error{ErrorCode::kNotFound,
                   fmt::format("The model `{}` does not exist.", question.model.substr(0, 256)),
                   "model"};
    }
    alias = *found;
  }
  KvSelection selection;
  // As vLLM: names of the model itself are one, an adapter (listed with a parent, as aliases are)
  // keeps the name that was asked for.
  selection.model = alias.kv_choice ? question.model : model_names_.front();
  const auto because = [&](std::string why) {
    if (selection.choice != 0) selection.why = std::move(why);
  };
  if (!SaysNothing(question.kv_cache_dtype)) {
    const Result<uint32_t> choice = FindChoice(info_, question.kv_cache_dtype);
    if (!choice.ok())
      return Error{ErrorCode::kInvalidArgument, choice.error().message, "kv_cache_dtype"};
    if (alias.kv_choice && *alias.kv_choice != *choice) {
      return Error{ErrorCode::kInvalidArgument,
                   fmt::format("the model `{}` and kv_cache_dtype '{}' ask for different caches; "
                               "leave one of them out",
                               question.model.substr(0, 256), question.kv_cache_dtype),
                   "kv_cache_dtype"};
    }
    selection.choice = *choice;
    selection.kv_class = kOwnChoiceKvClass;
    because("request");
  } else if (alias.kv_choice) {
    selection.choice = *alias.kv_choice;
    selection.kv_class = kOwnChoiceKvClass;
    because("alias");
  } else {
    const Rule& rule = RuleFor(question, alias.model);
    const bool moved = rule.rule.on_drift && drift_->HasMoved(rule.rule.name);
    selection.choice = moved ? rule.choice_after_drift : rule.choice;
    selection.kv_class = rule.rule.name;
    because((moved ? "drift:" : "policy:") + rule.rule.name);
  }
  return selection;
}

std::optional<uint32_t> KvSelector::RetryChoice(uint32_t choice) const {
  return info_.choices[choice].bits < 16 ? retry_choice_ : std::nullopt;
}

}  // namespace masu
