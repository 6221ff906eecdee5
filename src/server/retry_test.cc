// --retry-on-degeneration, over HTTP: what is made once more, what is sent then, and what is left
// as it is. What counts as degenerate: degeneration_test.cc.
#include <gtest/gtest.h>

#include "tests/support/server_fixture.h"

namespace masu {
namespace {

using nlohmann::json;

constexpr const char* kCompletions = "/v1/completions";
constexpr const char* kChat = "/v1/chat/completions";
constexpr const char* kWide = "bfloat16";
const json kHello = {{{"role", "user"}, {"content", "hello"}}};

std::vector<TokenId> Text(std::string_view text) {
  std::vector<TokenId> script = BytesOf(text);
  script.push_back(FakeTokenizer::kEos);
  return script;
}

std::string Loop() {
  std::string text = "Well. ";
  for (int i = 0; i < 30; ++i) text += "and so on ";
  return text;
}

// `narrow` at 8 bits, `wide` at 16.
std::shared_ptr<FakeEngine> Says(const std::string& narrow, const std::string& wide) {
  return std::make_shared<FakeEngine>([narrow, wide](const Request& request, uint32_t) {
    return Text(request.kv_cache_dtype == kWide ? wide : narrow);
  });
}

ServerConfig Retrying() {
  ServerConfig config;
  config.retry_on_degeneration = true;
  return config;
}

json Body(const json& more = json::object()) {
  json body = {{"prompt", "abc"}, {"max_tokens", 1000}, {"seed", 7}, {"temperature", 0.5}};
  body.update(more);
  return body;
}

uint64_t Retries(const RunningServer& running, Degeneration reason, RetryOutcome outcome) {
  return running.server->metrics().retries(reason, outcome);
}

TEST(Retry, OfALoop) {
  const auto engine = Says(Loop(), "Well. Done.");
  engine->cached_tokens = [](const Request& request, uint32_t) {
    return request.kv_cache_dtype == kWide ? 1u : 3u;
  };
  const RunningServer running(engine, Retrying());
  const json answer = running.Post(kCompletions, Body({{"logprobs", 1}})).json();
  EXPECT_EQ(answer["choices"].size(), 1u);
  EXPECT_EQ(answer["choices"][0]["text"], "Well. Done.");
  EXPECT_EQ(answer["choices"][0]["finish_reason"], "stop");
  EXPECT_EQ(answer["choices"][0]["logprobs"]["tokens"].size(), 12u);
  EXPECT_EQ(answer["usage"]["completion_tokens"], 12);
  EXPECT_EQ(answer["usage"]["prompt_tokens"], 4);
  EXPECT_EQ(answer["usage"]["prompt_tokens_details"]["cached_tokens"], 1);
  const json how = {{"kv_cache_dtype", kWide}, {"kv_scale", "none"}, {"why", "retry:repetition"}};
  EXPECT_EQ(answer["masu"], how);
  EXPECT_EQ(answer["choices"][0]["masu"], how);
  const Request last = engine->last_request();
  EXPECT_EQ(last.kv_cache_dtype, kWide);
  EXPECT_EQ(last.sampling.seed, 7u);
  EXPECT_EQ(last.sampling.temperature, 0.5f);
  EXPECT_EQ(last.sampling.max_tokens, 1000u);
  EXPECT_EQ(engine->Stats().requests_received, 2u);
  EXPECT_EQ(Retries(running, Degeneration::kRepetition, RetryOutcome::kBetter), 1u);
  EXPECT_EQ(running.server->metrics().count(Outcome::kStop), 1u);
  EXPECT_EQ(running.server->metrics().received(), 1u);
}

TEST(Retry, OfBrokenJson) {
  const auto engine = Says("{\"a\": 1", "{\"a\": 1}");
  const RunningServer running(engine, Retrying());
  const json answer = running.Post(kChat, {{"messages", kHello}}).json();
  EXPECT_EQ(answer["choices"][0]["message"]["content"], "{\"a\": 1}");
  EXPECT_EQ(answer["masu"]["why"], "retry:json");
  EXPECT_EQ(Retries(running, Degeneration::kJson, RetryOutcome::kBetter), 1u);
  // Cut off by a length, it may have been on its way.
  const json cut = running.Post(kCompletions, Body({{"max_tokens", 3}})).json();
  EXPECT_EQ(cut["choices"][0]["text"], "{\"a");
  EXPECT_FALSE(cut["masu"].contains("why"));
  // Nor is it JSON that the model wrote once the stop string is in it.
  const json stop = {{"stop", "1"}, {"include_stop_str_in_output", true}};
  EXPECT_FALSE(running.Post(kCompletions, Body(stop)).json()["masu"].contains("why"));
  EXPECT_EQ(engine->Stats().requests_received, 4u);
}

TEST(Retry, OnceAndOnlyOnce) {
  const auto engine = Says(Loop(), Loop() + "to the end");
  const RunningServer running(engine, Retrying());
  const json answer = running.Post(kCompletions, Body()).json();
  EXPECT_EQ(answer["choices"][0]["text"], Loop() + "to the end");
  EXPECT_EQ(answer["masu"]["kv_cache_dtype"], kWide);
  EXPECT_EQ(engine->Stats().requests_received, 2u);
  EXPECT_EQ(Retries(running, Degeneration::kRepetition, RetryOutcome::kSame), 1u);
  EXPECT_EQ(Retries(running, Degeneration::kRepetition, RetryOutcome::kBetter), 0u);
}

TEST(Retry, OnlyTheChoicesThatNeedIt) {
  const auto engine = std::make_shared<FakeEngine>([](const Request& request, uint32_t choice) {
    const std::string name =
        std::string(1, static_cast<char>(request.prompt.back())) + std::to_string(choice);
    const bool bad = request.kv_cache_dtype != kWide && (name == "a1" || name == "b0");
    return Text(bad ? Loop() : name + request.kv_cache_dtype);
  });
  const RunningServer running(engine, Retrying());
  const json answer =
      running.Post(kCompletions, Body({{"prompt", {"a", "b", "c"}}, {"n", 2}})).json();
  std::vector<std::string> texts;
  for (const json& choice : answer["choices"]) {
    texts.push_back(choice["text"]);
    const bool retried = texts.back().ends_with(kWide);
    EXPECT_EQ(choice.contains("masu"), retried) << texts.back();
    if (!retried) continue;
    EXPECT_EQ(choice["masu"]["why"], "retry:repetition");
  }
  EXPECT_EQ(texts, (std::vector<std::string>{"a0fp8_e4m3", "a1bfloat16", "b0bfloat16", "b1fp8_e4m3",
                                             "c0fp8_e4m3", "c1fp8_e4m3"}));
  // What not all choices share is not said of all.
  EXPECT_EQ(answer["masu"], (json{{"kv_cache_dtype", "fp8_e4m3"}, {"kv_scale", "dynamic"}}));
  EXPECT_EQ(answer["usage"]["completion_tokens"], 6 * 11);
  EXPECT_EQ(engine->Stats().requests_received, 3u + 2u);
  EXPECT_EQ(engine->stopped_choices, 2);  // a0 and b1 were good already
  EXPECT_EQ(Retries(running, Degeneration::kRepetition, RetryOutcome::kBetter), 2u);
}

TEST(Retry, WhatIsLeftAsItIs) {
  const auto engine = Says(Loop(), "no");
  const RunningServer running(engine, Retrying());
  const auto events = ParseEvents(running.Post(kCompletions, Body({{"stream", true}})).body);
  ASSERT_TRUE(events);
  std::string text;
  for (const json& event : *events) text += event["choices"][0]["text"].get<std::string>();
  EXPECT_EQ(text, Loop());
  EXPECT_EQ(engine->Stats().requests_received, 1u);
  // Scores of a prompt are of the cache that they were made with.
  for (const json& scoring :
       {json{{"echo", true}, {"logprobs", 1}}, json{{"prompt_logprobs", 1}}}) {
    const json answer = running.Post(kCompletions, Body(scoring)).json();
    EXPECT_FALSE(answer["masu"].contains("why")) << scoring;
  }
  EXPECT_EQ(engine->Stats().requests_received, 3u);
  // A good answer, and one that was made at 16 bits.
  const auto wide_loops = Says("Fine.", Loop());
  const RunningServer other(wide_loops, Retrying());
  EXPECT_EQ(other.Post(kCompletions, Body()).json()["choices"][0]["text"], "Fine.");
  const json wide = other.Post(kCompletions, Body({{"kv_cache_dtype", kWide}})).json();
  EXPECT_EQ(wide["choices"][0]["text"], Loop());
  EXPECT_EQ(wide["masu"]["why"], "request");
  EXPECT_EQ(wide_loops->Stats().requests_received, 2u);
  EXPECT_EQ(other.server->metrics().count(Outcome::kStop), 2u);
  // Without the flag nothing is.
  const auto plain_engine = Says(Loop(), "no");
  const RunningServer plain(plain_engine);
  EXPECT_EQ(plain.Post(kCompletions, Body()).json()["choices"][0]["text"], Loop());
}

// A retry that cannot be had leaves the answer that there is.
TEST(Retry, ThatFails) {
  const auto refusing = Says(Loop(), "no");
  const RunningServer running(refusing, Retrying());
  refusing->paused = true;
  HttpClient client(running.port());
  client.Send(HttpClient::Format("POST", kCompletions, Body().dump()));
  ASSERT_TRUE(Eventually([&] { return refusing->live() == 1; }));
  refusing->max_requests = 0;  // the queue fills up meanwhile
  refusing->paused = false;
  const json refused = client.Receive().json();
  EXPECT_EQ(refused["choices"][0]["text"], Loop());
  EXPECT_EQ(refused["masu"], (json{{"kv_cache_dtype", "fp8_e4m3"}, {"kv_scale", "dynamic"}}));
  EXPECT_FALSE(refused["choices"][0].contains("masu"));
  EXPECT_EQ(Retries(running, Degeneration::kRepetition, RetryOutcome::kFailed), 1u);
  EXPECT_EQ(running.server->metrics().count(Outcome::kStop), 1u);

  // Broken on the way: longer than `fail_after`, which the first answer is not.
  const auto breaking = Says("{\"a", Loop());
  breaking->fail_after = 20;
  const RunningServer other(breaking, Retrying());
  const json broken = other.Post(kCompletions, Body()).json();
  EXPECT_EQ(broken["choices"][0]["text"], "{\"a");
  EXPECT_EQ(broken["usage"]["completion_tokens"], 4);
  EXPECT_FALSE(broken["masu"].contains("why"));
  EXPECT_EQ(Retries(other, Degeneration::kJson, RetryOutcome::kFailed), 1u);
}

TEST(Retry, EndsWithItsClient) {
  // At 16 bits it never ends.
  const auto engine = std::make_shared<FakeEngine>(
      [](const Request& request, uint32_t) {
        return request.kv_cache_dtype == kWide ? BytesOf("endless ") : Text(Loop());
      },
      10'000'000);
  const RunningServer running(engine, Retrying());
  HttpClient client(running.port());
  client.Send(HttpClient::Format("POST", kCompletions, Body({{"max_tokens", 5'000'000}}).dump()));
  ASSERT_TRUE(Eventually([&] { return engine->Stats().requests_received == 2; }));
  client.Close();
  EXPECT_TRUE(Eventually(
      [&] { return engine->live() == 0 && running.server->metrics().in_flight() == 0; }));
  EXPECT_EQ(engine->aborts, 1);
  EXPECT_EQ(running.server->metrics().count(Outcome::kAborted), 1u);
  EXPECT_EQ(Retries(running, Degeneration::kRepetition, RetryOutcome::kAborted), 1u);
}

TEST(Retry, EndsWithTheServer) {
  const auto engine = std::make_shared<FakeEngine>(
      [](const Request& request, uint32_t) {
        return request.kv_cache_dtype == kWide ? BytesOf("endless ") : Text(Loop());
      },
      10'000'000);
  RunningServer running(engine, Retrying());
  HttpClient client(running.port());
  client.Send(HttpClient::Format("POST", kCompletions, Body({{"max_tokens", 5'000'000}}).dump()));
  ASSERT_TRUE(Eventually([&] { return engine->Stats().requests_received == 2; }));
  running.Join();
  EXPECT_EQ(client.Receive().status, 503);
  EXPECT_TRUE(Eventually([&] { return engine->live() == 0; }));
  EXPECT_EQ(running.server->metrics().in_flight(), 0u);
}

// Many at once, some of whose clients leave: each gets its own answer, and the account is exact.
TEST(Retry, ManyAtOnce) {
  const auto engine = std::make_shared<FakeEngine>([](const Request& request, uint32_t) {
    const std::string prompt(request.prompt.end() - 2, request.prompt.end());
    return Text(request.kv_cache_dtype == kWide ? prompt : Loop());
  });
  const RunningServer running(engine, Retrying());
  std::vector<std::unique_ptr<HttpClient>> clients;
  for (int i = 0; i < 60; ++i) {
    clients.push_back(std::make_unique<HttpClient>(running.port()));
    const json body = Body({{"prompt", std::to_string(10 + i)}});
    clients.back()->Send(HttpClient::Format("POST", kCompletions, body.dump()));
  }
  for (int i = 2; i < 60; i += 3) clients[i]->Close();
  for (int i = 0; i < 60; ++i) {
    if (i % 3 == 2) continue;
    const json answer = clients[i]->Receive().json();
    EXPECT_EQ(answer["choices"][0]["text"], std::to_string(10 + i));
  }
  const ServerMetrics& metrics = running.server->metrics();
  EXPECT_TRUE(Eventually([&] { return engine->live() == 0 && metrics.in_flight() == 0; }));
  EXPECT_EQ(metrics.received(), metrics.count(Outcome::kStop) + metrics.count(Outcome::kAborted));
  EXPECT_GE(Retries(running, Degeneration::kRepetition, RetryOutcome::kBetter), 40u);
}

}  // namespace
}  // namespace masu
