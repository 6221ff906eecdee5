#include "bench/load_client.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <csignal>
#include <mutex>
#include <set>

#include "tests/support/scripted_server.h"

namespace masu {
namespace {

using ::testing::HasSubstr;

HttpTarget TargetOf(const ScriptedServer& server) {
  return {.host = "127.0.0.1", .port = std::to_string(server.port())};
}

LoadPlan PlanOf(const HttpTarget& target, size_t count) {
  LoadPlan plan{.target = target, .path = "/v1/completions"};
  for (size_t i = 0; i < count; ++i) {
    plan.requests.push_back({.arrival = 0, .body = "body " + std::to_string(i)});
  }
  return plan;
}

LoadOutcome Load(const LoadPlan& plan) {
  auto outcome = RunLoad(plan, [](const LoadProgress&) {});
  if (!outcome.ok()) internal::CheckFailed(__FILE__, __LINE__, outcome.error().message);
  return std::move(*outcome);
}

TEST(ParseBaseUrl, PartsOfAUrl) {
  const auto parsed = ParseBaseUrl("http://host.example:8000/proxy/");
  ASSERT_TRUE(parsed.ok());
  EXPECT_EQ(parsed->host, "host.example");
  EXPECT_EQ(parsed->port, "8000");
  EXPECT_EQ(parsed->prefix, "/proxy");
  EXPECT_EQ(parsed->Url("/v1"), "http://host.example:8000/proxy/v1");
  EXPECT_EQ(ParseBaseUrl("http://host")->port, "80");
  EXPECT_EQ(ParseBaseUrl("http://[::1]:9")->host, "::1");
  EXPECT_EQ(ParseBaseUrl("http://[::1]:9")->port, "9");
  EXPECT_EQ(ParseBaseUrl("http://[::1]")->Url("/"), "http://[::1]:80/");
}

TEST(ParseBaseUrl, WhatIsNone) {
  for (const char* url :
       {"", "host:80", "ftp://host", "http://", "http://:80", "http://host:", "http://host:http",
        "http://host:123456", "http://a b", "http://u@host", "http://host/\r\nX: y"}) {
    const auto parsed = ParseBaseUrl(url);
    ASSERT_FALSE(parsed.ok()) << url;
    EXPECT_THAT(parsed.error().message, HasSubstr("write for example")) << url;
  }
  EXPECT_THAT(ParseBaseUrl("https://host").error().message, HasSubstr("no https"));
}

TEST(HttpGet, AnswersAndErrors) {
  ScriptedServer server([](const HttpRequest& request, const std::shared_ptr<HttpExchange>& to) {
    to->Send({.status = 404,
              .content_type = "text/plain",
              .body = request.path + " " + std::string(request.Header("authorization"))});
  });
  HttpTarget target = TargetOf(server);
  target.prefix = "/under";
  target.api_key = "secret";
  const auto answer = HttpGet(target, "/v1/models");
  ASSERT_TRUE(answer.ok()) << answer.error().message;
  EXPECT_EQ(answer->status, 404);
  EXPECT_EQ(answer->body, "/under/v1/models Bearer secret");

  server.Stop();
  const auto nobody = HttpGet(target, "/v1/models");
  ASSERT_FALSE(nobody.ok());
  EXPECT_THAT(nobody.error().message, HasSubstr("is a server running there?"));
  EXPECT_THAT(nobody.error().message, HasSubstr(target.port + "/under/v1/models"));
}

TEST(RunLoad, SendsEachRequestOnce) {
  std::mutex mutex;
  std::multiset<std::string> bodies;
  const ScriptedServer server(
      [&](const HttpRequest& request, const std::shared_ptr<HttpExchange>& exchange) {
        {
          std::lock_guard lock(mutex);
          bodies.insert(request.method + " " + request.path + " " + request.body);
        }
        AnswerOneToken(*exchange);
      });
  const LoadOutcome outcome = Load(PlanOf(TargetOf(server), 200));
  ASSERT_EQ(outcome.records.size(), 200u);
  EXPECT_EQ(bodies.size(), 200u);
  for (size_t i = 0; i < outcome.records.size(); ++i) {
    const LoadRecord& record = outcome.records[i];
    EXPECT_EQ(record.index, i);
    EXPECT_TRUE(record.success) << record.error;
    EXPECT_EQ(record.prompt_tokens, 3u);
    EXPECT_EQ(record.text, "a");
    EXPECT_GT(record.latency, 0);
    EXPECT_LE(record.start + record.latency, outcome.duration);
    EXPECT_EQ(bodies.count("POST /v1/completions body " + std::to_string(i)), 1u);
  }
  EXPECT_FALSE(outcome.interrupted);
}

TEST(RunLoad, KeepsToItsConcurrency) {
  std::mutex mutex;
  std::vector<std::shared_ptr<HttpExchange>> open;
  size_t most = 0;
  std::atomic<size_t> answered = 0;
  constexpr size_t kCount = 12;
  const ScriptedServer server([&](const HttpRequest&, std::shared_ptr<HttpExchange> exchange) {
    std::lock_guard lock(mutex);
    open.push_back(std::move(exchange));
    most = std::max(most, open.size());
  });
  // Answers one at a time, and the first only when three are open: more would show.
  std::thread answers([&] {
    while (answered < kCount) {
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
      std::lock_guard lock(mutex);
      if (open.empty() || most < 3) continue;
      AnswerOneToken(*open.front());
      open.erase(open.begin());
      ++answered;
    }
  });
  LoadPlan plan = PlanOf(TargetOf(server), kCount);
  plan.max_concurrency = 3;
  const LoadOutcome outcome = Load(plan);
  answers.join();
  EXPECT_EQ(most, 3u);
  EXPECT_EQ(outcome.records.size(), kCount);
  EXPECT_EQ(outcome.records.front().queue, outcome.records.front().start);
  EXPECT_GT(outcome.records.back().queue, 0);
}

TEST(RunLoad, WaitsForArrivals) {
  const ScriptedServer server(
      [](const HttpRequest&, const std::shared_ptr<HttpExchange>& exchange) {
        AnswerOneToken(*exchange);
      });
  LoadPlan plan = PlanOf(TargetOf(server), 3);
  for (size_t i = 0; i < 3; ++i) plan.requests[i].arrival = 0.1 * static_cast<double>(i);
  const LoadOutcome outcome = Load(plan);
  for (size_t i = 0; i < 3; ++i) EXPECT_GE(outcome.records[i].start, plan.requests[i].arrival);
}

TEST(RunLoad, AConnectionClosedWhileIdleIsReplaced) {
  HttpOptions options;
  options.idle_timeout = std::chrono::seconds(0);  // closes at the server's next look, 250 ms
  const ScriptedServer server(
      [](const HttpRequest&, const std::shared_ptr<HttpExchange>& exchange) {
        AnswerOneToken(*exchange);
      },
      options);
  LoadPlan plan = PlanOf(TargetOf(server), 2);
  plan.requests[1].arrival = 1;
  for (const LoadRecord& record : Load(plan).records) EXPECT_TRUE(record.success) << record.error;
}

TEST(RunLoad, RefusalsSayWhy) {
  const ScriptedServer server(
      [](const HttpRequest&, const std::shared_ptr<HttpExchange>& exchange) {
        exchange->Send({.status = 503, .body = R"({"error":{"message":"the queue is full"}})"});
      });
  const LoadOutcome outcome = Load(PlanOf(TargetOf(server), 2));
  ASSERT_EQ(outcome.records.size(), 2u);
  for (const LoadRecord& record : outcome.records) {
    EXPECT_FALSE(record.success);
    EXPECT_EQ(record.error, "HTTP 503: the queue is full");
  }
}

TEST(RunLoad, AServerThatGoesAway) {
  std::atomic<int> begun = 0;
  ScriptedServer server([&](const HttpRequest&, const std::shared_ptr<HttpExchange>& exchange) {
    exchange->StartStream(200, "text/event-stream", {});
    exchange->Write("data: {\"choices\":[{\"text\":\"a\",\"finish_reason\":null}]}\n\n");
    ++begun;
  });
  std::thread stopper([&] {
    while (begun < 2) std::this_thread::yield();
    server.Stop();
  });
  const HttpTarget target = TargetOf(server);
  for (const LoadRecord& record : Load(PlanOf(target, 2)).records) {
    EXPECT_THAT(record.error, HasSubstr("connection ended"));
    EXPECT_FALSE(record.success);
  }
  stopper.join();
  for (const LoadRecord& record : Load(PlanOf(target, 2)).records) {
    EXPECT_THAT(record.error, HasSubstr("cannot connect"));
  }
}

TEST(RunLoad, InterruptKeepsWhatIsDone) {
  std::atomic<int> calls = 0;
  std::vector<std::shared_ptr<HttpExchange>> unanswered;  // I/O thread only
  const ScriptedServer server([&](const HttpRequest&, std::shared_ptr<HttpExchange> exchange) {
    if (++calls == 1) {
      AnswerOneToken(*exchange);
    } else {
      unanswered.push_back(std::move(exchange));
    }
  });
  std::atomic<bool> signalled = false;
  const auto outcome = RunLoad(PlanOf(TargetOf(server), 3), [&](const LoadProgress& now) {
    if (now.finished == 1 && calls == 3 && !signalled.exchange(true)) std::raise(SIGINT);
  });
  ASSERT_TRUE(outcome.ok());
  EXPECT_TRUE(outcome->interrupted);
  ASSERT_EQ(outcome->records.size(), 1u);
  EXPECT_TRUE(outcome->records[0].success);
  EXPECT_GT(outcome->duration, 0);
}

TEST(RunLoad, UnknownHost) {
  const auto outcome =
      RunLoad(PlanOf({.host = "no.such.host.invalid"}, 1), [](const LoadProgress&) {});
  ASSERT_FALSE(outcome.ok());
  EXPECT_THAT(outcome.error().message, HasSubstr("--base-url"));
}

}  // namespace
}  // namespace masu
