// Clients that leave, stall, or come in numbers; and the server's end.
#include <gtest/gtest.h>

#include <random>

#include "tests/support/server_fixture.h"

namespace masu {
namespace {

using nlohmann::json;
constexpr const char* kCompletions = "/v1/completions";

std::shared_ptr<FakeEngine> Endless(int microseconds = 200) {
  auto engine = std::make_shared<FakeEngine>(BytesOf("endless "), 10'000'000);
  engine->step_microseconds = microseconds;
  return engine;
}

std::string Body(bool stream, int max_tokens = 1'000'000) {
  return json{{"prompt", "x"}, {"max_tokens", max_tokens}, {"stream", stream}}.dump();
}

// B308
TEST(Disconnect, AbortsAStream) {
  const auto engine = Endless();
  const RunningServer running(engine);
  for (int i = 1; i <= 20; ++i) {
    HttpClient client(running.port());
    client.Send(HttpClient::Format("POST", kCompletions, Body(true)));
    ASSERT_TRUE(client.WaitFor("data: "));
    client.Close();
    EXPECT_TRUE(Eventually([&] { return engine->live() == 0; }));
    EXPECT_EQ(engine->aborts, i);
  }
  EXPECT_EQ(running.server->metrics().count(Outcome::kAborted), 20u);
}

TEST(Disconnect, AbortsWhileNothingIsWritten) {
  const auto engine = Endless();
  const RunningServer running(engine);
  engine->paused = true;
  for (const bool stream : {false, true}) {
    HttpClient client(running.port());
    client.Send(HttpClient::Format("POST", kCompletions, Body(stream)));
    ASSERT_TRUE(Eventually([&] { return engine->live() == 1; }));
    client.Close();
    EXPECT_TRUE(Eventually([&] { return engine->live() == 0; })) << stream;
  }
  EXPECT_EQ(engine->aborts, 2);
}

// B310: abort at any moment; others are not affected; the account stays exact.
TEST(Disconnect, AtRandomMoments) {
  const auto engine = Endless(50);
  const RunningServer running(engine);
  std::vector<std::thread> threads;
  std::atomic<int> wrong = 0;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      std::mt19937 random(static_cast<unsigned>(t));
      for (int i = 0; i < 30; ++i) {
        HttpClient client(running.port());
        const bool stays = i % 3 == 0;
        client.Send(HttpClient::Format("POST", kCompletions, Body(random() % 2 == 0, 16)));
        if (!stays) {
          std::this_thread::sleep_for(std::chrono::microseconds(random() % 3000));
          continue;
        }
        const ClientResponse response = client.Receive();
        wrong += response.status != 200;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, 0);
  EXPECT_TRUE(Eventually(
      [&] { return engine->live() == 0 && running.server->metrics().in_flight() == 0; }));
  const ServerMetrics& metrics = running.server->metrics();
  EXPECT_EQ(metrics.count(Outcome::kFailed), 0u);
  EXPECT_EQ(metrics.count(Outcome::kRejected), 0u);
  EXPECT_EQ(metrics.received(), metrics.count(Outcome::kLength) + metrics.count(Outcome::kAborted));
}

TEST(SlowReader, IsThrownOut) {
  ServerConfig config;
  config.http.stream_buffer_limit = 64 << 10;
  config.http.socket_send_buffer = 16 << 10;
  const auto engine = Endless(0);
  const RunningServer running(engine, config);
  HttpClient client(running.port(), /*receive_buffer=*/4096);
  client.Send(HttpClient::Format("POST", kCompletions, Body(true)));
  ASSERT_TRUE(Eventually([&] { return engine->live() == 1; }));
  EXPECT_TRUE(Eventually([&] { return engine->live() == 0; }));
  EXPECT_EQ(running.Get("/health").status, 200);
}

// A session that is far behind the engine does not hold up the others.
TEST(Backlog, IsHandledInTurns) {
  const auto engine = Endless(0);
  engine->updates_per_step = 300'000;
  const RunningServer running(engine);
  HttpClient client(running.port());
  client.Send(HttpClient::Format("POST", kCompletions, Body(false, 300'000)));
  ASSERT_TRUE(Eventually([&] { return engine->generated == 300'000; }));
  EXPECT_EQ(running.Get("/health").status, 200);
  EXPECT_EQ(running.server->metrics().in_flight(), 1u);  // answered while the backlog was there
  EXPECT_EQ(client.Receive().status, 200);
}

TEST(ManyStreams, AreCompleteAndSeparate) {
  const auto engine = std::make_shared<FakeEngine>([](const Request& request, uint32_t) {
    return std::vector<TokenId>(request.prompt.end() - 2, request.prompt.end());
  });
  const RunningServer running(engine);
  std::vector<std::unique_ptr<HttpClient>> clients;
  for (int i = 0; i < 64; ++i) {
    clients.push_back(std::make_unique<HttpClient>(running.port()));
    const json body = {{"prompt", std::to_string(10 + i)}, {"max_tokens", 200}, {"stream", true}};
    clients.back()->Send(HttpClient::Format("POST", kCompletions, body.dump()));
  }
  for (int i = 0; i < 64; ++i) {
    const auto events = ParseEvents(clients[i]->Receive().body);
    ASSERT_TRUE(events);
    std::string text, expected;
    for (const json& event : *events) text += event["choices"][0]["text"].get<std::string>();
    for (int k = 0; k < 100; ++k) expected += std::to_string(10 + i);
    EXPECT_EQ(text, expected);
  }
}

TEST(KeepAlive, CommentsInQuietStreams) {
  ServerConfig config;
  config.sse_keep_alive_interval = std::chrono::seconds(1);
  const auto engine = Endless();
  const RunningServer running(engine, config);
  engine->paused = true;
  HttpClient client(running.port());
  client.Send(HttpClient::Format("POST", kCompletions, Body(true, 3)));
  EXPECT_TRUE(client.WaitFor(": keep-alive\n\n"));
  engine->paused = false;
  EXPECT_TRUE(client.WaitFor("data: [DONE]\n\n"));
}

TEST(Stop, EndsRunningRequestsWithAnError) {
  const auto engine = Endless();
  RunningServer running(engine);
  HttpClient streaming(running.port()), waiting(running.port()), idle(running.port());
  streaming.Send(HttpClient::Format("POST", kCompletions, Body(true)));
  waiting.Send(HttpClient::Format("POST", kCompletions, Body(false)));
  ASSERT_TRUE(streaming.WaitFor("data: "));
  ASSERT_TRUE(Eventually([&] { return engine->live() == 2; }));
  running.Join();
  EXPECT_TRUE(running.result.ok());
  EXPECT_TRUE(streaming.WaitFor("the server is stopping"));
  EXPECT_TRUE(streaming.WaitFor("data: [DONE]"));
  EXPECT_EQ(waiting.Receive().status, 503);
  EXPECT_FALSE(idle.Fill());
  EXPECT_TRUE(Eventually([&] { return engine->live() == 0; }));
  EXPECT_EQ(running.server->metrics().in_flight(), 0u);
  const HttpClient late(running.port());
  EXPECT_FALSE(late.connected());
}

}  // namespace
}  // namespace masu
