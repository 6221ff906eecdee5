#include "server/kv_policy.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "server/auth.h"

namespace masu {
namespace {

using testing::HasSubstr;

// printf %s one | sha256sum
constexpr const char* kDigestOfOne =
    "7692c3ad3540bb803c020b3aee66cd8887123234ea0c6e7143c0add73ff431ed";

TEST(KvPolicy, ReadsAllThatThereIs) {
  const auto policy = ParseKvPolicy(std::string(R"({"rules": [
      {"name": "contracts", "match": {"api_key_sha256": ")") +
                                        kDigestOfOne + R"(", "model": "m",
                                 "header": {"X-Task": "contract", "X-Team": "legal"}},
       "kv_cache_dtype": "bfloat16"},
      {"name": "chat_2.x", "match": {"header": {"x-task": "chat"}},
       "on_drift": {"max_kl": 1, "min_samples": 7, "kv_cache_dtype": "float16"}}],
      "default": {"kv_cache_dtype": "int8", "on_drift": {"max_kl": 0.05,
                                                         "kv_cache_dtype": "bf16"}}})",
                                    "p.json");
  ASSERT_TRUE(policy.ok()) << policy.error().message;
  ASSERT_EQ(policy->rules.size(), 2u);
  const KvPolicyRule& first = policy->rules[0];
  EXPECT_EQ(first.name, "contracts");
  EXPECT_EQ(first.api_key_digest, ApiKeys({}).OwnerOf("Bearer one"));
  EXPECT_EQ(first.model, "m");
  EXPECT_EQ(first.headers.size(), 2u);
  EXPECT_EQ(first.kv_cache_dtype, "bfloat16");
  EXPECT_FALSE(first.on_drift);
  ASSERT_TRUE(policy->rules[1].on_drift);
  EXPECT_EQ(policy->rules[1].on_drift->max_kl, 1);
  EXPECT_EQ(policy->rules[1].on_drift->min_samples, 7u);
  EXPECT_EQ(policy->rules[1].kv_cache_dtype, "");
  EXPECT_EQ(policy->standard.name, "default");
  EXPECT_EQ(policy->standard.kv_cache_dtype, "int8");
  ASSERT_TRUE(policy->standard.on_drift);
  EXPECT_EQ(policy->standard.on_drift->min_samples, 20u);
  EXPECT_TRUE(ParseKvPolicy("{}", "p.json").ok());
}

TEST(KvPolicy, RefusesWhatItDoesNotKnow) {
  const auto rule = [](const std::string& members) {
    return R"({"rules": [{"name": "a", "match": {"model": "m"}, )" + members + "}]}";
  };
  const auto match = [](const std::string& members) {
    return R"({"rules": [{"name": "a", "match": {)" + members + "}}]}";
  };
  const std::pair<std::string, const char*> cases[] = {
      {"", "JSON"},
      {"[]", "must be an object"},
      {"{", "JSON"},
      {R"({"rules": [], "rules": []})", "twice"},
      {R"({"rule": []})", "\"rule\""},
      {R"({"a\nb": []})", "a\\nb"},
      {R"({"rules": {}})", "rules must be an array"},
      {R"({"rules": [5]})", "rules[0] must be an object"},
      {R"({"rules": [{"match": {"model": "m"}}]})", "rules[0].name"},
      {R"({"rules": [{"name": "a b", "match": {"model": "m"}}]})", "rules[0].name"},
      {R"({"rules": [{"name": "default", "match": {"model": "m"}}]})", "'default' is taken"},
      {R"({"rules": [{"name": "request", "match": {"model": "m"}}]})", "'request' is taken"},
      {R"({"rules": [{"name": "a"}]})", "has no match"},
      {R"({"rules": [{"name": "a", "match": {"model": "m"}}, {"name": "a", "match":
          {"model": "n"}}]})",
       "rules[1] has the name of a rule before it"},
      {match(""), "is empty"},
      {match(R"("prompt_contains": "x")"), "\"prompt_contains\""},
      {match(R"("model": "")"), "match.model"},
      {match(R"("model": 5)"), "match.model"},
      {match(R"("api_key_sha256": "sk-secret")"), "64 hexadecimal digits"},
      {match(R"("header": {})"), "match.header"},
      {match(R"("header": {"X": 5})"), "match.header"},
      {match(R"("header": {"aUthorization": "Bearer sk-secret"})"), "api_key_sha256"},
      {rule(R"("kv_cache_dtype": null)"), "kv_cache_dtype"},
      {rule(R"("dtype": "int8")"), "\"dtype\""},
      {rule(R"("on_drift": 5)"), "on_drift must be an object"},
      {rule(R"("on_drift": {"max_kl": 0.1})"), "needs kv_cache_dtype"},
      {rule(R"("on_drift": {"kv_cache_dtype": "bf16"})"), "max_kl"},
      {rule(R"("on_drift": {"max_kl": 0, "kv_cache_dtype": "bf16"})"), "max_kl"},
      {rule(R"("on_drift": {"max_kl": 1, "min_samples": 0, "kv_cache_dtype": "bf16"})"),
       "min_samples"},
      {rule(R"("on_drift": {"max_kl": 1, "min_samples": 1.5, "kv_cache_dtype": "bf16"})"),
       "min_samples"},
      {R"({"default": {"match": {"model": "m"}}})", "default has the unknown key \"match\""},
  };
  for (const auto& [text, what] : cases) {
    const auto policy = ParseKvPolicy(text, "p.json");
    ASSERT_FALSE(policy.ok()) << text;
    const std::string& message = policy.error().message;
    EXPECT_TRUE(message.starts_with("p.json: ")) << message;
    EXPECT_THAT(message, HasSubstr(what)) << text;
    EXPECT_EQ(message.find('\n'), std::string::npos) << message;
    EXPECT_EQ(message.find("secret"), std::string::npos) << message;
  }
}

TEST(KvPolicy, NamesAFileThatIsNotThere) {
  const auto policy = ReadKvPolicy("no/such/policy.json");
  ASSERT_FALSE(policy.ok());
  EXPECT_THAT(policy.error().message, HasSubstr("no/such/policy.json"));
}

}  // namespace
}  // namespace masu
