// HTTP itself: what clients may do to a connection.
#include "server/http_server.h"

#include <gtest/gtest.h>

#include "tests/support/server_fixture.h"

namespace masu {
namespace {

std::shared_ptr<FakeEngine> Engine1() { return std::make_shared<FakeEngine>(BytesOf("ab ")); }

const nlohmann::json kSmall = {{"prompt", "hi"}, {"max_tokens", 3}};

TEST(HttpServer, PortInUseIsNamed) {
  const RunningServer first;
  ServerConfig config;
  config.http.port = first.port();
  const auto second = Server::Listen(config);
  ASSERT_FALSE(second.ok());
  EXPECT_NE(second.error().message.find(std::to_string(first.port())), std::string::npos);
  EXPECT_NE(second.error().message.find("--port"), std::string::npos);
  EXPECT_EQ(second.error().message.find('\n'), std::string::npos);
}

TEST(HttpServer, BadHostIsAnError) {
  ServerConfig config;
  config.http.host = "no.such.host.invalid";
  EXPECT_FALSE(Server::Listen(config).ok());
}

TEST(HttpServer, KeepAliveAndPipelining) {
  const RunningServer running(Engine1());
  HttpClient client(running.port());
  std::string requests;
  for (int i = 0; i < 50; ++i) {
    requests += HttpClient::Format("POST", "/v1/completions", kSmall.dump());
    requests += HttpClient::Format("GET", "/version", "");
  }
  ASSERT_TRUE(client.Send(requests));
  for (int i = 0; i < 50; ++i) {
    EXPECT_EQ(client.Receive().json()["choices"][0]["text"], "ab ");
    EXPECT_EQ(client.Receive().json()["version"], MASU_VERSION);
  }
}

TEST(HttpServer, ConnectionCloseIsHonoured) {
  const RunningServer running(Engine1());
  HttpClient client(running.port());
  client.Send(HttpClient::Format("GET", "/health", "", "Connection: close\r\n"));
  EXPECT_EQ(client.Receive().status, 200);
  EXPECT_FALSE(client.Fill());
}

TEST(HttpServer, Http10) {
  const RunningServer running(Engine1());
  HttpClient client(running.port());
  const std::string body =
      nlohmann::json{{"prompt", "x"}, {"max_tokens", 3}, {"stream", true}}.dump();
  client.Send(
      "POST /v1/completions HTTP/1.0\r\nContent-Type: application/json\r\nContent-Length: " +
      std::to_string(body.size()) + "\r\n\r\n" + body);
  while (client.Fill()) {
  }
  EXPECT_EQ(client.buffer().find("Transfer-Encoding"), std::string::npos);
  EXPECT_TRUE(client.buffer().ends_with("data: [DONE]\n\n"));
}

TEST(HttpServer, ChunkedBodySentByteByByte) {
  const RunningServer running(Engine1());
  HttpClient client(running.port());
  const std::string body = kSmall.dump();
  std::string request =
      "POST /v1/completions HTTP/1.1\r\nHost: t\r\nContent-Type: application/json\r\n"
      "Transfer-Encoding: chunked\r\n\r\n";
  for (const char c : body) request += "1\r\n" + std::string(1, c) + "\r\n";
  request += "0\r\n\r\n";
  for (const char c : request) ASSERT_TRUE(client.Send(std::string(1, c)));
  EXPECT_EQ(client.Receive().json()["choices"][0]["text"], "ab ");
}

TEST(HttpServer, ExpectContinue) {
  const RunningServer running(Engine1());
  HttpClient client(running.port());
  const std::string body = kSmall.dump();
  client.Send(
      "POST /v1/completions HTTP/1.1\r\nHost: t\r\nContent-Type: application/json\r\n"
      "Expect: 100-continue\r\nContent-Length: " +
      std::to_string(body.size()) + "\r\n\r\n");
  EXPECT_EQ(client.Receive().status, 100);
  client.Send(body);
  EXPECT_EQ(client.Receive().status, 200);
}

TEST(HttpServer, MalformedRequestsGet400) {
  const RunningServer running(Engine1());
  for (const char* bad :
       {"\x16\x03\x01\x02 garbage\r\n\r\n", "GET\r\n\r\n", "GET / HTTP/9.9\r\n\r\n",
        "GET /health HTTP/1.1\r\nContent-Length: x\r\n\r\n", "GET http://x/ HTTP/1.1\r\n\r\n",
        "POST /v1/completions HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n"}) {
    HttpClient client(running.port());
    client.Send(bad);
    const ClientResponse response = client.Receive();
    EXPECT_EQ(response.status, 400) << bad;
    EXPECT_EQ(response.json()["error"]["code"], 400) << bad;
  }
  EXPECT_EQ(running.Get("/health").status, 200);
}

TEST(HttpServer, LimitsBodiesAndHeaders) {
  ServerConfig config;
  config.http.body_limit = 1000;
  const RunningServer running(Engine1(), config);
  const ClientResponse announced =
      Call(running.port(), "POST", "/v1/completions", std::string(1001, 'x'));
  EXPECT_EQ(announced.status, 413);
  EXPECT_EQ(announced.json()["error"]["code"], 413);
  HttpClient chunked(running.port());
  chunked.Send(
      "POST /v1/completions HTTP/1.1\r\nHost: t\r\nTransfer-Encoding: chunked\r\n\r\n7d0\r\n" +
      std::string(2000, 'x'));
  EXPECT_EQ(chunked.Receive().status, 413);
  HttpClient headers(running.port());
  headers.Send("GET /health HTTP/1.1\r\nX: " + std::string(100'000, 'x') + "\r\n\r\n");
  EXPECT_EQ(headers.Receive().status, 431);
}

TEST(HttpServer, LimitsAllBodiesTogether) {
  ServerConfig config;
  config.http.total_body_limit = 3000;
  const auto engine = Engine1();
  const RunningServer running(engine, config);
  const std::string half = HttpClient::Format("POST", "/v1/completions", std::string(2500, ' '));
  for (int i = 0; i < 3; ++i) {  // what was given back can be used again
    HttpClient first(running.port()), second(running.port());
    first.Send(std::string_view(half).substr(0, 2000));
    ASSERT_TRUE(Eventually([&] {
      HttpClient probe(running.port());
      probe.Send(std::string_view(half).substr(0, 2000));
      return !probe.connected() || probe.Fill(200);
    }));
    second.Send(std::string_view(half).substr(0, 2000));
    EXPECT_EQ(second.Receive().status, 503);
    first.Send(std::string_view(half).substr(2000));
    EXPECT_EQ(first.Receive().status, 400);  // not JSON, but read to its end
  }
  EXPECT_EQ(running.Post("/v1/completions", kSmall).status, 200);
}

TEST(HttpServer, SlowRequestsAndIdleConnectionsEnd) {
  ServerConfig config;
  config.http.request_timeout = std::chrono::seconds(1);
  config.http.idle_timeout = std::chrono::seconds(1);
  const RunningServer running(Engine1(), config);
  HttpClient slow(running.port()), idle(running.port());
  slow.Send("GET /health HTT");
  EXPECT_EQ(slow.Receive().status, 408);
  EXPECT_FALSE(idle.Fill());
}

TEST(HttpServer, RoutesAndMethods) {
  const RunningServer running(Engine1());
  EXPECT_EQ(running.Get("/nope").status, 404);
  EXPECT_EQ(running.Get("/nope").json()["error"]["code"], 404);
  const ClientResponse wrong = running.Get("/v1/completions");
  EXPECT_EQ(wrong.status, 405);
  EXPECT_TRUE(wrong.HasHeader("Allow: POST"));
  EXPECT_EQ(Call(running.port(), "HEAD", "/health").status, 200);
  for (const char* path : {"/health", "/ready", "/readyz", "/livez", "/ping", "/load", "/version",
                           "/metrics", "/v1/models"}) {
    EXPECT_EQ(running.Get(path).status, 200) << path;
  }
}

TEST(HttpServer, ApiKeys) {
  ServerConfig config;
  config.api_keys = {"secret"};
  const RunningServer running(Engine1(), config);
  const ClientResponse refused = running.Post("/v1/completions", kSmall);
  EXPECT_EQ(refused.status, 401);
  EXPECT_TRUE(refused.json()["error"].is_object());
  EXPECT_EQ(Call(running.port(), "POST", "/v1/completions", kSmall.dump(),
                 "Authorization: Bearer secret\r\n")
                .status,
            200);
  for (const char* path : {"/health", "/ready", "/metrics", "/version"}) {
    EXPECT_EQ(running.Get(path).status, 200) << path;
  }
}

TEST(HttpServer, ReportsLoadingThenReady) {
  const RunningServer running;
  EXPECT_EQ(running.Get("/health").status, 503);
  running.server->SetLoading(0.42, "reading weights");
  const ClientResponse loading = running.Get("/health");
  EXPECT_EQ(loading.status, 503);
  EXPECT_EQ(loading.json()["progress"], 0.42);
  EXPECT_EQ(loading.json()["what"], "reading weights");
  EXPECT_EQ(running.Get("/livez").status, 200);
  EXPECT_EQ(running.Get("/ready").status, 503);
  const ClientResponse early = running.Post("/v1/completions", kSmall);
  EXPECT_EQ(early.status, 503);
  EXPECT_TRUE(early.HasHeader("Retry-After"));
  EXPECT_EQ(running.Get("/metrics").status, 200);
  running.server->SetModel(FakeModel(Engine1()));
  EXPECT_EQ(running.Get("/health").status, 200);
  EXPECT_EQ(running.Get("/v1/models").json()["data"][0]["id"], "tiny");
}

TEST(HttpServer, AFailedLoadEndsTheServer) {
  RunningServer running;
  running.server->SetFailed(DataLoss("weights are damaged"));
  running.WaitUntilItEnds();
  ASSERT_FALSE(running.result.ok());
  EXPECT_EQ(running.result.error().message, "weights are damaged");
}

}  // namespace
}  // namespace masu
