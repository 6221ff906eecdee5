#include "server/kv_selector.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "plan/kv_options.h"

namespace masu {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

CacheInfo Cache(const std::vector<std::string>& names) {
  CacheInfo info;
  for (const std::string& name : names) {
    const size_t colon = name.find(':');
    info.choices.push_back(
        {.name = name,
         .kv_cache_dtype = name.substr(0, colon),
         .kv_scale = "dynamic",
         .bits =
             MakeKvOption({.dtype = name}, {.num_layers = 3, .brings_scales = true}).value().bits(),
         .bytes_per_token = {}});
  }
  return info;
}

std::shared_ptr<const KvSelector> Selector(KvSelectorOptions options,
                                           const std::vector<std::string>& choices) {
  if (options.model_names.empty()) options.model_names = {"tiny"};
  auto selector = KvSelector::Create(std::move(options), Cache(choices));
  EXPECT_TRUE(selector.ok()) << selector.error().message;
  return *selector;
}

std::string Refusal(KvSelectorOptions options, const std::vector<std::string>& choices) {
  options.model_names = {"tiny"};
  const auto selector = KvSelector::Create(std::move(options), Cache(choices));
  return selector.ok() ? "" : selector.error().message;
}

std::shared_ptr<const KvPolicy> Shared(const KvPolicy& policy) {
  return std::make_shared<const KvPolicy>(policy);
}

KvPolicyRule Rule(const std::string& name, const std::string& dtype) {
  KvPolicyRule rule;
  rule.name = name;
  rule.kv_cache_dtype = dtype;
  return rule;
}

TEST(KvSelector, WhatARequestSays) {
  const auto selector = Selector({}, {"int8", "bfloat16", "fp8_e4m3:unit"});
  const auto select = [&](const char* dtype) {
    return selector->Select({.model = "", .kv_cache_dtype = dtype, .owner = ""});
  };
  for (const char* silent : {"", "auto"}) {
    EXPECT_EQ(select(silent)->choice, 0u);
    EXPECT_EQ(select(silent)->why, "");
    EXPECT_EQ(select(silent)->kv_class, "default");
    EXPECT_EQ(select(silent)->model, "tiny");
  }
  for (const char* wide : {"bfloat16", "bf16"}) {
    EXPECT_EQ(select(wide)->choice, 1u);
    EXPECT_EQ(select(wide)->why, "request");
    EXPECT_EQ(select(wide)->kv_class, "request");
  }
  EXPECT_EQ(select("fp8")->choice, 2u);
  EXPECT_EQ(select("int8_per_token_head")->choice, 0u);
  EXPECT_EQ(select("int8")->why, "");  // it is the default
  EXPECT_EQ(select("int8")->kv_class, "request");
  for (const std::string bad : {"int9", "int4", "fp8:dynamic", ":", "bfloat16 "}) {
    const auto refused = select(bad.c_str());
    ASSERT_FALSE(refused.ok()) << bad;
    EXPECT_EQ(refused.error().code, ErrorCode::kInvalidArgument) << bad;
    EXPECT_EQ(refused.error().param, "kv_cache_dtype") << bad;
  }
  const auto huge = select(std::string(1 << 20, 'x').c_str());
  ASSERT_FALSE(huge.ok());
  EXPECT_LT(huge.error().message.size(), 200u);
}

TEST(KvSelector, Aliases) {
  const auto selector = Selector({.model_names = {"tiny", "a:b", "a"}}, {"int8", "bfloat16"});
  EXPECT_THAT(selector->Aliases(), ElementsAre("tiny:bfloat16", "a:b:bfloat16", "a:bfloat16"));
  const auto find = [&](const std::string& name) -> std::string {
    const auto alias = selector->FindModel(name);
    if (!alias) return "none";
    return alias->model + (alias->kv_choice ? " " + std::to_string(*alias->kv_choice) : "");
  };
  EXPECT_EQ(find("tiny"), "tiny");
  EXPECT_EQ(find("tiny:bf16"), "tiny 1");
  EXPECT_EQ(find("tiny:int8"), "tiny 0");
  EXPECT_EQ(find("a:b"), "a:b");
  EXPECT_EQ(find("a:b:bfloat16"), "a:b 1");
  EXPECT_EQ(find("a:bfloat16"), "a 1");
  for (const std::string none : {"tiny:", "tiny:auto", "tiny:int4", "tiny:int8:", "other:int8",
                                 ":int8", "tiny::int8", "b", "tiny:int8:int8"}) {
    EXPECT_EQ(find(none), "none") << none;
  }
  EXPECT_EQ(find("tiny" + std::string(1 << 20, ':')), "none");
  // A served name that looks like an alias is that name.
  const auto shadowed = Selector({.model_names = {"m", "m:int8"}}, {"int8", "bfloat16"});
  EXPECT_EQ(shadowed->FindModel("m:int8")->model, "m:int8");
  EXPECT_FALSE(shadowed->FindModel("m:int8")->kv_choice);
}

TEST(KvSelector, ScalesAreAPartOfAnAlias) {
  const auto selector = Selector({}, {"int8", "fp8_e4m3:unit"});
  EXPECT_EQ(selector->FindModel("tiny:fp8:unit")->kv_choice, 1u);
  EXPECT_EQ(selector->FindModel("tiny:fp8")->kv_choice, 1u);
  EXPECT_FALSE(selector->FindModel("tiny:fp8:dynamic"));
  // Every choice is found by its own name, whatever stands before it.
  const auto both = Selector({}, {"fp8_e4m3:unit", "fp8_e4m3", "fp8_e4m3:checkpoint"});
  EXPECT_EQ(both->FindModel("tiny:fp8_e4m3")->kv_choice, 1u);
  EXPECT_EQ(both->FindModel("tiny:fp8:dynamic")->kv_choice, 1u);
  EXPECT_EQ(both->FindModel("tiny:fp8:unit")->kv_choice, 0u);
}

TEST(KvSelector, WhatTheModelsNameSays) {
  const auto selector = Selector({.model_names = {"tiny", "other"}}, {"int8", "bfloat16"});
  const auto select = [&](const char* model, const char* dtype = "") {
    return selector->Select({.model = model, .kv_cache_dtype = dtype, .owner = ""});
  };
  EXPECT_EQ(select("other")->model, "tiny");
  EXPECT_EQ(select("other:bf16")->model, "other:bf16");
  EXPECT_EQ(select("other:bf16")->choice, 1u);
  EXPECT_EQ(select("other:bf16")->why, "alias");
  EXPECT_EQ(select("other:bf16")->kv_class, "request");
  EXPECT_EQ(select("other:int8")->why, "");
  EXPECT_EQ(select("tiny:bf16", "auto")->why, "alias");
  EXPECT_EQ(select("tiny:bf16", "bfloat16")->choice, 1u);  // they agree
  const auto conflict = select("tiny:bf16", "int8");
  ASSERT_FALSE(conflict.ok());
  EXPECT_EQ(conflict.error().code, ErrorCode::kInvalidArgument);
  EXPECT_EQ(conflict.error().param, "kv_cache_dtype");
  EXPECT_EQ(select("nobody").error().code, ErrorCode::kNotFound);
}

TEST(KvSelector, FirstRuleThatMatches) {
  KvPolicy policy;
  policy.rules = {Rule("key", "bfloat16"), Rule("headers", "float16"), Rule("model", "float32")};
  policy.rules[0].api_key_digest = std::string(32, 'k');
  policy.rules[1].headers = {{"X-Task", "contract"}, {"X-Team", "legal"}};
  policy.rules[2].model = "other";
  const auto selector = Selector({.policy = Shared(policy), .model_names = {"tiny", "other"}},
                                 {"int8", "bfloat16", "float16", "float32"});
  const HttpHeaders both = {{"x-task", "contract"}, {"X-TEAM", "legal"}};
  const HttpHeaders half = {{"X-Task", "contract"}, {"X-Team", "sales"}};
  const auto why = [&](const char* model, const std::string& owner, const HttpHeaders* headers,
                       const char* dtype = "") {
    return selector
        ->Select({.model = model, .kv_cache_dtype = dtype, .owner = owner, .headers = headers})
        ->why;
  };
  const std::string key(32, 'k');
  EXPECT_EQ(why("", key, nullptr), "policy:key");
  EXPECT_EQ(why("other", key, &both), "policy:key");
  EXPECT_EQ(why("other", "", &both), "policy:headers");
  EXPECT_EQ(why("other", "", &half), "policy:model");
  EXPECT_EQ(why("tiny", "", &half), "");
  EXPECT_EQ(why("", std::string(32, 'x'), nullptr), "");
  // What a request says itself goes first.
  EXPECT_EQ(why("", key, nullptr, "float16"), "request");
  EXPECT_EQ(why("", key, nullptr, "int8"), "");
  EXPECT_EQ(why("other:float16", key, nullptr), "alias");
}

TEST(KvSelector, ADefaultOfThePolicy) {
  KvPolicy policy;
  policy.rules = {Rule("chat", "")};  // the server's default, in a class of its own
  policy.rules[0].model = "tiny";
  policy.standard.kv_cache_dtype = "bf16";
  const auto selector =
      Selector({.policy = Shared(policy), .model_names = {"other", "tiny"}}, {"int8", "bfloat16"});
  const auto standard = selector->Select({.model = "", .kv_cache_dtype = "", .owner = ""});
  EXPECT_EQ(standard->choice, 1u);
  EXPECT_EQ(standard->why, "policy:default");
  const auto chat = selector->Select({.model = "tiny", .kv_cache_dtype = "", .owner = ""});
  EXPECT_EQ(chat->choice, 0u);
  EXPECT_EQ(chat->why, "");
  EXPECT_EQ(chat->kv_class, "chat");
}

TEST(KvSelector, DriftMovesNewRequestsOfItsClass) {
  KvPolicy policy;
  policy.rules = {Rule("chat", "int8"), Rule("mail", "int8")};
  policy.rules[0].model = "chat";
  policy.rules[0].on_drift = {.max_kl = 0.1, .min_samples = 2, .kv_cache_dtype = "bf16"};
  policy.rules[1].model = "mail";
  const auto selector = Selector(
      {.policy = Shared(policy), .model_names = {"tiny", "chat", "mail"}, .drift_sample = 0.001},
      {"int8", "bfloat16"});
  const auto why = [&](const char* model, const char* dtype = "") {
    return selector->Select({.model = model, .kv_cache_dtype = dtype, .owner = ""})->why;
  };
  DriftSample sample{.kv_choice = "int8", .kv_class = "chat", .positions = 1, .mean_kl = 1};
  selector->drift()->OnDriftSample(sample);
  EXPECT_EQ(why("chat"), "");
  selector->drift()->OnDriftSample(sample);
  EXPECT_EQ(why("chat"), "drift:chat");
  EXPECT_EQ(why("mail"), "");
  EXPECT_EQ(why("tiny"), "");
  EXPECT_EQ(why("chat", "int8"), "");  // it wants it so
}

TEST(KvSelector, RefusesWhatTheServerDoesNotOffer) {
  const auto policy_of = [](const std::string& dtype, const std::string& after = "") {
    KvPolicy policy;
    policy.rules = {Rule("chat", dtype)};
    policy.rules[0].model = "tiny";
    if (!after.empty())
      policy.rules[0].on_drift = {.max_kl = 0.1, .min_samples = 2, .kv_cache_dtype = after};
    return policy;
  };
  const std::vector<std::string> choices = {"int8", "bfloat16"};
  EXPECT_EQ(Refusal({.policy = Shared(policy_of("bf16"))}, choices), "");
  EXPECT_THAT(Refusal({.policy = Shared(policy_of("int4"))}, choices),
              HasSubstr("rule 'chat': kv_cache_dtype 'int4' is not among those that this server "
                        "offers: int8, bfloat16; start it with --kv-cache-dtype-choices int4"));
  EXPECT_THAT(Refusal({.policy = Shared(policy_of("int9"))}, choices), HasSubstr("int9"));
  const KvPolicy moves = policy_of("int8", "bf16");
  EXPECT_EQ(Refusal({.policy = Shared(moves), .drift_sample = 0.001}, choices), "");
  EXPECT_THAT(Refusal({.policy = Shared(moves)}, choices), HasSubstr("--drift-sample"));
  EXPECT_THAT(Refusal({.policy = Shared(policy_of("int8", "fp8")), .drift_sample = 1}, choices),
              HasSubstr("fp8"));
  EXPECT_THAT(Refusal({.policy = Shared(policy_of("", "int8")), .drift_sample = 1}, choices),
              HasSubstr("to itself"));
  KvPolicy nobody = policy_of("bf16");
  nobody.rules[0].model = "nobody";
  EXPECT_THAT(Refusal({.policy = Shared(nobody)}, choices),
              HasSubstr("no model 'nobody', but tiny"));
}

TEST(KvSelector, WhereDegenerateAnswersGo) {
  EXPECT_THAT(Refusal({.retry_on_degeneration = true}, {"int8"}),
              HasSubstr("--retry-on-degeneration needs a 16-bit cache beside int8; start with "
                        "--kv-cache-dtype-choices auto"));
  EXPECT_EQ(Refusal({.retry_on_degeneration = true}, {"bfloat16"}), "");
  const auto selector =
      Selector({.retry_on_degeneration = true}, {"int8", "float32", "bfloat16", "int8/bfloat16"});
  EXPECT_EQ(selector->RetryChoice(0), 2u);
  EXPECT_EQ(selector->RetryChoice(1), std::nullopt);
  EXPECT_EQ(selector->RetryChoice(2), std::nullopt);
  EXPECT_EQ(selector->RetryChoice(3), 2u);
  EXPECT_EQ(Selector({}, {"int8", "bfloat16"})->RetryChoice(0), std::nullopt);
}

}  // namespace
}  // namespace masu
