// Too many requests, requests that take too long, and a server that is asked to go.
#include <gtest/gtest.h>

#include "tests/support/server_fixture.h"

namespace masu {
namespace {

using nlohmann::json;
using std::chrono::milliseconds;
using std::chrono::steady_clock;
constexpr const char* kCompletions = "/v1/completions";
constexpr std::chrono::hours kLong{1};

std::shared_ptr<FakeEngine> Endless() {
  auto engine = std::make_shared<FakeEngine>(BytesOf("endless "), 10'000'000);
  engine->step_microseconds = 200;
  return engine;
}

json Body(bool stream = false) {
  return {{"prompt", "x"}, {"max_tokens", 1'000'000}, {"stream", stream}};
}

TEST(FullQueue, IsA503WithTheEnginesEstimate) {
  const auto engine = Endless();
  const RunningServer running(engine);
  engine->max_requests = 0;
  for (const bool stream : {false, true}) {
    const ClientResponse full = running.Post(kCompletions, Body(stream));
    EXPECT_EQ(full.status, 503);
    EXPECT_TRUE(full.HasHeader("Retry-After: 7\r\n")) << full.head;
    const json error = full.json()["error"];
    EXPECT_EQ(error["type"], "ServiceUnavailableError");
    EXPECT_EQ(error["code"], 503);
    EXPECT_EQ(error["message"], "the queue is full");
  }
  EXPECT_EQ(running.server->metrics().count(Outcome::kRejected), 2u);
}

TEST(Deadline, IsA504BeforeTheFirstTokenAndAnEventAfterIt) {
  const auto engine = Endless();
  const RunningServer running(engine);
  json body = Body();
  body["deadline_ms"] = 50;
  const ClientResponse late = running.Post(kCompletions, body);
  EXPECT_EQ(late.status, 504);
  EXPECT_EQ(late.json()["error"]["type"], "TimeoutError");
  EXPECT_EQ(late.json()["error"]["code"], 504);
  EXPECT_NE(late.body.find("0.05 s"), std::string::npos) << late.body;
  EXPECT_TRUE(late.HasHeader("x-should-retry: false\r\n"));
  engine->paused = true;
  body["stream"] = true;
  EXPECT_EQ(running.Post(kCompletions, body).status, 504);
  engine->paused = false;
  body["deadline_ms"] = 3000;
  const ClientResponse stream = running.Post(kCompletions, body);
  EXPECT_EQ(stream.status, 200);
  const auto events = ParseEvents(stream.body);
  ASSERT_TRUE(events);
  EXPECT_GT(events->size(), 1u);
  EXPECT_EQ(events->back()["error"]["code"], 504);
  EXPECT_EQ(running.server->metrics().count(Outcome::kTimedOut), 3u);
  EXPECT_EQ(running.server->metrics().in_flight(), 0u);
  EXPECT_TRUE(Eventually([&] { return engine->live() == 0; }));
}

TEST(Deadline, IsTheNearerOfTheRequestsAndTheServers) {
  for (const bool limited : {false, true}) {
    ServerConfig config;
    if (limited) config.request_timeout = kLong;
    const auto engine = std::make_shared<FakeEngine>(BytesOf("x"));
    const RunningServer running(engine, config);
    const auto deadline = [&](std::optional<uint32_t> asked) {
      json body = {{"prompt", "x"}, {"max_tokens", 1}};
      if (asked) body["deadline_ms"] = *asked;
      EXPECT_EQ(running.Post(kCompletions, body).status, 200);
      return engine->last_request().deadline;
    };
    const auto before = steady_clock::now();
    const auto none = deadline(std::nullopt);
    ASSERT_EQ(none.has_value(), limited);
    if (limited) {
      EXPECT_GE(*none, before + kLong);
    }
    const auto near = deadline(600'000);
    ASSERT_TRUE(near);
    EXPECT_GE(*near, before + milliseconds(600'000));
    EXPECT_LT(*near, before + kLong);
    const auto far = deadline(4'000'000);
    ASSERT_TRUE(far);
    EXPECT_EQ(*far < before + milliseconds(4'000'000), limited);
  }
}

TEST(Deadline, MustBeAPositiveInteger) {
  const RunningServer running(Endless());
  for (const json& wrong : {json(0), json(-5), json("soon"), json(1.5)}) {
    json body = Body();
    body["deadline_ms"] = wrong;
    const ClientResponse refused = running.Post(kCompletions, body);
    EXPECT_EQ(refused.status, 400) << wrong;
    EXPECT_EQ(refused.json()["error"]["param"], "deadline_ms") << wrong;
  }
}

// A server with a request that runs and gets no token for now.
struct Occupied {
  explicit Occupied(std::chrono::seconds shutdown_timeout)
      : running(engine, Config(shutdown_timeout)), client(running.port()) {
    engine->paused = true;
    const json body = {{"prompt", "x"}, {"max_tokens", 5}};
    client.Send(HttpClient::Format("POST", kCompletions, body.dump()));
    EXPECT_TRUE(Eventually([&] { return engine->live() == 1; }));
  }
  static ServerConfig Config(std::chrono::seconds shutdown_timeout) {
    ServerConfig config;
    config.http.shutdown_timeout = shutdown_timeout;
    return config;
  }

  std::shared_ptr<FakeEngine> engine = Endless();
  RunningServer running;
  HttpClient client;
};

TEST(Shutdown, RefusesNewRequestsAndFinishesThoseThatRun) {
  Occupied occupied(kLong);
  RunningServer& running = occupied.running;
  running.server->Shutdown();
  EXPECT_TRUE(Eventually([&] { return running.Get("/health").status == 503; }));
  EXPECT_EQ(running.Get("/ready").status, 503);
  EXPECT_EQ(running.Get("/livez").status, 200);
  for (const char* path : {kCompletions, "/v1/chat/completions"}) {
    const ClientResponse refused = running.Post(path, Body());
    EXPECT_EQ(refused.status, 503);
    EXPECT_TRUE(refused.HasHeader("Retry-After: "));
    EXPECT_EQ(refused.json()["error"]["type"], "ServiceUnavailableError");
  }
  EXPECT_EQ(occupied.engine->live(), 1u);
  occupied.engine->paused = false;
  EXPECT_EQ(occupied.client.Receive().status, 200);
  running.WaitUntilItEnds();
  EXPECT_TRUE(running.result.ok());
  EXPECT_EQ(running.server->metrics().count(Outcome::kLength), 1u);
  EXPECT_EQ(running.server->metrics().count(Outcome::kRejected), 2u);
}

TEST(Shutdown, EndsTheRestAfterItsTime) {
  Occupied occupied(std::chrono::seconds(1));
  occupied.running.server->Shutdown();
  EXPECT_EQ(occupied.client.Receive().status, 503);
  occupied.running.WaitUntilItEnds();
  EXPECT_TRUE(occupied.running.result.ok());
  EXPECT_EQ(occupied.running.server->metrics().count(Outcome::kFailed), 1u);
}

TEST(Shutdown, ASecondOneEndsThemAtOnce) {
  Occupied occupied(kLong);
  occupied.running.server->Shutdown();
  occupied.running.server->Shutdown();
  EXPECT_EQ(occupied.client.Receive().status, 503);
  occupied.running.WaitUntilItEnds();
  EXPECT_TRUE(occupied.running.result.ok());
}

TEST(Shutdown, WithoutTimeEndsThemAtOnce) {
  Occupied occupied(std::chrono::seconds(0));
  occupied.running.server->Shutdown();
  EXPECT_EQ(occupied.client.Receive().status, 503);
  occupied.running.WaitUntilItEnds();
  EXPECT_TRUE(occupied.running.result.ok());
}

TEST(Shutdown, DoesNotWaitWhenNothingRuns) {
  RunningServer running(Endless(), Occupied::Config(kLong));
  running.server->Shutdown();
  running.WaitUntilItEnds();
  EXPECT_TRUE(running.result.ok());
}

}  // namespace
}  // namespace masu
