// Precision per request over HTTP: the field, aliases, the policy, drift, and what answers and
// metrics say of it. The rules themselves: kv_selector_test.cc.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "server/auth.h"
#include "tests/support/server_fixture.h"

namespace masu {
namespace {

using nlohmann::json;
using testing::HasSubstr;

constexpr const char* kCompletions = "/v1/completions";
constexpr const char* kChat = "/v1/chat/completions";
const json kHello = {{{"role", "user"}, {"content", "hello"}}};

// Answers with the dtype that the engine was asked for. Choices: fp8_e4m3 (default), bfloat16.
std::shared_ptr<FakeEngine> SaysItsDtype() {
  return std::make_shared<FakeEngine>([](const Request& request, uint32_t) {
    std::vector<TokenId> script = BytesOf(request.kv_cache_dtype);
    script.push_back(FakeTokenizer::kEos);
    return script;
  });
}

json Ask(const RunningServer& running, const json& more) {
  json body = {{"prompt", "abc"}, {"max_tokens", 50}};
  body.update(more);
  const ClientResponse response = running.Post(kCompletions, body);
  EXPECT_EQ(response.status, 200) << response.body;
  return response.json();
}

TEST(Precision, OfARequest) {
  const auto engine = SaysItsDtype();
  const RunningServer running(engine);
  for (const char* wide : {"bfloat16", "bf16"}) {
    const json answer = Ask(running, {{"kv_cache_dtype", wide}});
    EXPECT_EQ(answer["choices"][0]["text"], "bfloat16");
    EXPECT_EQ(answer["masu"],
              (json{{"kv_cache_dtype", "bfloat16"}, {"kv_scale", "none"}, {"why", "request"}}));
    EXPECT_THAT(answer["system_fingerprint"], HasSubstr("bfloat16"));
    EXPECT_EQ(answer["model"], "tiny");
    EXPECT_EQ(engine->last_request().kv_class, "request");
  }
  for (const json& standard : {json(nullptr), json("auto"), json("fp8")}) {
    const json answer = Ask(running, {{"kv_cache_dtype", standard}});
    EXPECT_EQ(answer["choices"][0]["text"], "fp8_e4m3");
    EXPECT_EQ(answer["masu"], (json{{"kv_cache_dtype", "fp8_e4m3"}, {"kv_scale", "dynamic"}}));
  }
  const json chat =
      running.Post(kChat, {{"messages", kHello}, {"kv_cache_dtype", "bfloat16"}}).json();
  EXPECT_EQ(chat["choices"][0]["message"]["content"], "bfloat16");
  EXPECT_EQ(chat["masu"]["why"], "request");
}

TEST(Precision, OfAStream) {
  const RunningServer running(SaysItsDtype());
  const json body = {{"prompt", "abc"},
                     {"max_tokens", 50},
                     {"stream", true},
                     {"stream_options", {{"include_usage", true}}},
                     {"model", "tiny:bf16"}};
  const auto events = ParseEvents(running.Post(kCompletions, body).body);
  ASSERT_TRUE(events);
  ASSERT_GT(events->size(), 2u);
  for (const json& event : *events) EXPECT_EQ(event["model"], "tiny:bf16");
  const json expected = {{"kv_cache_dtype", "bfloat16"}, {"kv_scale", "none"}, {"why", "alias"}};
  EXPECT_EQ(events->back()["masu"], expected);
  EXPECT_EQ((*events)[events->size() - 2]["masu"], expected);  // the one with finish_reason
}

TEST(Precision, RefusesWhatIsNotOffered) {
  const auto engine = SaysItsDtype();
  const RunningServer running(engine);
  const auto refused = [&](const char* path, const json& body, int status, const char* param) {
    const ClientResponse response = running.Post(path, body);
    EXPECT_EQ(response.status, status) << body;
    EXPECT_EQ(response.json()["error"]["param"], param) << body;
    return response.json()["error"]["message"].get<std::string>();
  };
  for (const json& bad : {json("int4"), json("int9"), json(8), json("fp8:unit")}) {
    for (const bool stream : {false, true}) {
      refused(kCompletions, {{"prompt", "a"}, {"kv_cache_dtype", bad}, {"stream", stream}}, 400,
              "kv_cache_dtype");
    }
    refused(kChat, {{"messages", kHello}, {"kv_cache_dtype", bad}}, 400, "kv_cache_dtype");
  }
  EXPECT_THAT(
      refused(kCompletions, {{"prompt", "a"}, {"kv_cache_dtype", "int4"}}, 400, "kv_cache_dtype"),
      HasSubstr("--kv-cache-dtype-choices int4"));
  refused(kCompletions, {{"prompt", "a"}, {"model", "tiny:bf16"}, {"kv_cache_dtype", "fp8"}}, 400,
          "kv_cache_dtype");
  EXPECT_THAT(refused(kCompletions, {{"prompt", "a"}, {"model", "tiny:int4"}}, 404, "model"),
              HasSubstr("Valid aliases: tiny, tiny:bfloat16"));
  EXPECT_EQ(engine->Stats().requests_received, 0u);
}

// A model's own names are one name; an alias with a cache of its own is one of its own, as an
// adapter is with vLLM.
TEST(Precision, NamesOfTheModel) {
  ServerConfig config;
  config.served_model_name = {"first", "a:b"};
  const RunningServer running(SaysItsDtype(), config);
  EXPECT_EQ(Ask(running, {{"model", "a:b"}})["model"], "first");
  EXPECT_EQ(Ask(running, {{"model", "a:b"}})["choices"][0]["text"], "fp8_e4m3");
  const json alias = Ask(running, {{"model", "a:b:bf16"}});
  EXPECT_EQ(alias["model"], "a:b:bf16");
  EXPECT_EQ(alias["choices"][0]["text"], "bfloat16");
  EXPECT_EQ(alias["masu"]["why"], "alias");

  const json list = running.Get("/v1/models").json()["data"];
  ASSERT_EQ(list.size(), 4u);
  const char* const expected[][2] = {
      {"first", nullptr}, {"a:b", nullptr}, {"first:bfloat16", "first"}, {"a:b:bfloat16", "a:b"}};
  for (size_t i = 0; i < 4; ++i) {
    EXPECT_EQ(list[i]["id"], expected[i][0]);
    EXPECT_EQ(list[i]["parent"], expected[i][1] == nullptr ? json() : json(expected[i][1]));
  }
  EXPECT_EQ(running.Get("/v1/models/a:b:bf16").json()["parent"], "a:b");
  EXPECT_EQ(running.Get("/v1/models/a:b:int4").status, 404);
  EXPECT_EQ(running.Post("/tokenize", {{"prompt", "x"}, {"model", "first:bf16"}}).status, 200);
}

TEST(Precision, LengthsAreThoseOfTheChoice) {
  const auto engine =
      std::make_shared<FakeEngine>(std::vector<TokenId>{'x'}, /*max_model_len=*/200);
  engine->mutable_cache_info().choices[1].max_request_len = 100;
  const RunningServer running(engine);
  const auto total = [&](const char* dtype) {
    return running.Post(kChat, {{"messages", kHello}, {"kv_cache_dtype", dtype}})
        .json()["usage"]["total_tokens"];
  };
  EXPECT_EQ(total("fp8"), 200);
  EXPECT_EQ(total("bfloat16"), 100);
  const json cut = {{"prompt", std::vector<int>(500, 97)},
                    {"truncate_prompt_tokens", -1},
                    {"kv_cache_dtype", "bfloat16"}};
  EXPECT_EQ(running.Post(kCompletions, cut).json()["usage"]["prompt_tokens"], 99);
}

// By key and header, as a client sends them; the key is in no answer and no metric.
TEST(Precision, ByPolicy) {
  KvPolicy policy;
  policy.rules.resize(2);
  policy.rules[0].name = "legal";
  policy.rules[0].api_key_digest = *ApiKeys({}).OwnerOf("Bearer sk-legal");
  policy.rules[0].kv_cache_dtype = "bfloat16";
  policy.rules[1].name = "sums";
  policy.rules[1].headers = {{"X-Task", "sums"}};
  policy.rules[1].kv_cache_dtype = "bfloat16";
  ServerConfig config;
  config.kv_policy = std::make_shared<const KvPolicy>(policy);
  const auto engine = SaysItsDtype();
  const RunningServer running(engine, config);
  const auto ask = [&](const std::string& headers, const json& more = json::object()) {
    json body = {{"prompt", "abc"}, {"max_tokens", 50}};
    body.update(more);
    return Call(running.port(), "POST", kCompletions, body.dump(), headers).json();
  };
  const std::string key = "Authorization: Bearer sk-legal\r\n";
  EXPECT_EQ(ask(key)["masu"]["why"], "policy:legal");
  EXPECT_EQ(ask(key)["choices"][0]["text"], "bfloat16");
  EXPECT_EQ(engine->last_request().kv_class, "legal");
  EXPECT_EQ(ask("x-task: sums\r\n")["masu"]["why"], "policy:sums");
  EXPECT_FALSE(ask("Authorization: Bearer other\r\n")["masu"].contains("why"));
  EXPECT_EQ(engine->last_request().kv_class, "default");
  EXPECT_EQ(ask(key, {{"kv_cache_dtype", "fp8"}})["choices"][0]["text"], "fp8_e4m3");
  EXPECT_THAT(running.Get("/metrics").body, testing::Not(HasSubstr("sk-")));
}

TEST(Precision, ServersThatCannotDoWhatTheyShallDoNotStart) {
  const auto failure = [](const ServerConfig& config, const std::vector<std::string>& choices) {
    const auto engine = SaysItsDtype();
    CacheInfo& info = engine->mutable_cache_info();
    std::erase_if(info.choices, [&](const KvChoiceInfo& choice) {
      return std::find(choices.begin(), choices.end(), choice.name) == choices.end();
    });
    RunningServer running(engine, config);
    running.WaitUntilItEnds();
    return running.result.ok() ? "" : running.result.error().message;
  };
  KvPolicy policy;
  policy.standard.kv_cache_dtype = "int4";
  ServerConfig config;
  config.kv_policy = std::make_shared<const KvPolicy>(policy);
  EXPECT_THAT(failure(config, {"fp8_e4m3", "bfloat16"}), HasSubstr("--kv-policy"));
  ServerConfig retry;
  retry.retry_on_degeneration = true;
  EXPECT_THAT(failure(retry, {"fp8_e4m3"}), HasSubstr("--kv-cache-dtype-choices auto"));
}

// New requests of the class move; what runs goes on as it began.
TEST(Precision, ByDrift) {
  KvPolicy policy;
  policy.standard.on_drift = {.max_kl = 0.1, .min_samples = 2, .kv_cache_dtype = "bfloat16"};
  ServerConfig config;
  config.kv_policy = std::make_shared<const KvPolicy>(policy);
  const auto engine = SaysItsDtype();
  engine->mutable_config().drift_sample = 0.5;
  engine->paused = true;
  const RunningServer running(engine, config);
  ASSERT_TRUE(engine->drift_observer);
  HttpClient before(running.port());
  const json body = {{"prompt", "abc"}, {"max_tokens", 50}};
  before.Send(HttpClient::Format("POST", kCompletions, body.dump()));
  ASSERT_TRUE(Eventually([&] { return engine->live() == 1; }));
  const DriftSample sample{.kv_choice = "fp8_e4m3",
                           .kv_class = "default",
                           .positions = 10,
                           .mean_kl = 0.2,
                           .max_kl = 0.5,
                           .top1_agreement = 0.5};
  for (int i = 0; i < 2; ++i) {
    EXPECT_THAT(
        running.Get("/metrics").body,
        HasSubstr(R"(masu:kv_class_moved{model_name="tiny",engine="0",class="default"} 0)"));
    engine->drift_observer->OnDriftSample(sample);
  }
  engine->paused = false;
  const json old = before.Receive().json();
  EXPECT_EQ(old["choices"][0]["text"], "fp8_e4m3");
  EXPECT_FALSE(old["masu"].contains("why"));
  const json moved = Ask(running, json::object());
  EXPECT_EQ(moved["choices"][0]["text"], "bfloat16");
  EXPECT_EQ(moved["masu"]["why"], "drift:default");
  EXPECT_EQ(engine->last_request().kv_class, "default");
  EXPECT_EQ(Ask(running, {{"kv_cache_dtype", "fp8"}})["choices"][0]["text"], "fp8_e4m3");
  const std::string metrics = running.Get("/metrics").body;
  const std::string labels =
      R"({model_name="tiny",engine="0",kv_cache_dtype="fp8_e4m3",class="default")";
  for (
      const std::string line :
      {R"(masu:kv_class_moved{model_name="tiny",engine="0",class="default"} 1)",
       R"(masu:requests_by_kv_cache_dtype_total{model_name="tiny",engine="0",kv_cache_dtype="fp8_e4m3"} 2)",
       R"(masu:requests_by_kv_cache_dtype_total{model_name="tiny",engine="0",kv_cache_dtype="bfloat16"} 1)"}) {
    EXPECT_THAT(metrics, HasSubstr(line));
  }
  EXPECT_THAT(metrics, HasSubstr("masu:kv_drift_samples_total" + labels + "} 2"));
  EXPECT_THAT(metrics, HasSubstr("masu:kv_drift_top1" + labels + "} 0.5"));
  EXPECT_THAT(metrics, HasSubstr("masu:kv_drift_kl_count" + labels + "} 2"));
  EXPECT_THAT(metrics, HasSubstr("masu:kv_drift_kl_sum" + labels + "} 0.4"));
  EXPECT_THAT(metrics, HasSubstr("masu:kv_drift_kl_bucket" + labels + ",le=\"0.1\"} 0"));
  EXPECT_THAT(metrics, HasSubstr("masu:kv_drift_kl_bucket" + labels + ",le=\"0.3\"} 2"));
  EXPECT_THAT(metrics, HasSubstr("masu:kv_drift_kl_bucket" + labels + ",le=\"+Inf\"} 2"));
}

}  // namespace
}  // namespace masu
