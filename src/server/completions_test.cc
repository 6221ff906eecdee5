// The endpoints end to end, over HTTP, with a scripted engine.
#include <gtest/gtest.h>

#include <cstdio>

#include "tests/support/server_fixture.h"

namespace masu {
namespace {

using nlohmann::json;

constexpr const char* kCompletions = "/v1/completions";
constexpr const char* kChat = "/v1/chat/completions";
const json kHello = {{{"role", "user"}, {"content", "hello"}}};

std::shared_ptr<FakeEngine> Says(std::string_view text, uint32_t max_model_len = 4096) {
  std::vector<TokenId> script = BytesOf(text);
  script.push_back(FakeTokenizer::kEos);
  return std::make_shared<FakeEngine>(std::move(script), max_model_len);
}

// The text of a stream's choice, from deltas of either kind.
std::string TextOf(const std::vector<json>& events, int index = 0) {
  std::string text;
  for (const json& event : events) {
    for (const json& choice : event.value("choices", json::array())) {
      if (choice["index"] != index) continue;
      text += choice.contains("delta") ? choice["delta"].value("content", "")
                                       : choice.value("text", "");
    }
  }
  return text;
}

TEST(Completions, Answer) {
  const RunningServer running(Says("Hi there"));
  const json answer = running.Post(kCompletions, {{"prompt", "abc"}, {"max_tokens", 50}}).json();
  EXPECT_TRUE(answer["id"].get<std::string>().starts_with("cmpl-"));
  EXPECT_EQ(answer["object"], "text_completion");
  EXPECT_EQ(answer["model"], "tiny");
  EXPECT_EQ(answer["choices"][0]["text"], "Hi there");
  EXPECT_EQ(answer["choices"][0]["finish_reason"], "stop");
  EXPECT_TRUE(answer["choices"][0]["stop_reason"].is_null());
  EXPECT_EQ(answer["usage"], (json{{"prompt_tokens", 4},
                                   {"completion_tokens", 9},
                                   {"total_tokens", 13},
                                   {"prompt_tokens_details", {{"cached_tokens", 0}}}}));
  EXPECT_EQ(answer["masu"]["kv_cache_dtype"], "fp8_e4m3");
  EXPECT_EQ(answer["masu"]["kv_scale"], "dynamic");
}

// What no choice of a prompt had to compute, over all prompts; once, with the first token.
TEST(Completions, CachedTokens) {
  const auto engine = Says("Hi there");
  engine->cached_tokens = [](const Request& request, uint32_t choice) {
    return static_cast<uint32_t>(request.prompt.size()) - 1 - choice;
  };
  const RunningServer running(engine);
  const json body = {{"prompt", {"abcdef", "xyz"}}, {"n", 2}, {"max_tokens", 5}};
  const json usage = running.Post(kCompletions, body).json()["usage"];
  EXPECT_EQ(usage["prompt_tokens"], 7 + 4);
  EXPECT_EQ(usage["prompt_tokens_details"], (json{{"cached_tokens", 5 + 2}}));
  json streaming = body;
  streaming["stream"] = true;
  streaming["stream_options"] = {{"include_usage", true}};
  const auto events = ParseEvents(running.Post(kCompletions, streaming).body);
  ASSERT_TRUE(events);
  EXPECT_EQ(events->back()["usage"], usage);
}

// B207: the salt and whose key it is reach the engine, and nothing else does.
TEST(Completions, ScopeOfTheCache) {
  const auto engine = Says("x");
  ServerConfig config;
  config.api_keys = {"one", "two"};
  const RunningServer running(engine, config);
  const auto post = [&](std::string_view key, const json& more) {
    json body = {{"prompt", "abc"}, {"max_tokens", 1}};
    body.update(more);
    return Call(running.port(), "POST", kCompletions, body.dump(),
                "Authorization: Bearer " + std::string(key) + "\r\n");
  };
  EXPECT_EQ(post("one", json::object()).status, 200);
  const Request first = engine->last_request();
  const ClientResponse salted = post("one", {{"cache_salt", "pepper"}});
  EXPECT_EQ(salted.status, 200);
  EXPECT_EQ(salted.body.find("pepper"), std::string::npos);
  const Request second = engine->last_request();
  EXPECT_EQ(post("two", json::object()).status, 200);
  const Request third = engine->last_request();
  EXPECT_EQ(first.owner, second.owner);
  EXPECT_NE(first.owner, third.owner);
  EXPECT_EQ(first.cache_salt, "");
  EXPECT_EQ(second.cache_salt, "pepper");
  for (const json& bad : {json(""), json(5), json({{"a", "b"}}), json(true)}) {
    const ClientResponse refused = post("one", {{"cache_salt", bad}});
    EXPECT_EQ(refused.status, 400) << bad;
    EXPECT_EQ(refused.json()["error"]["param"], "cache_salt");
  }
  EXPECT_EQ(post("one", {{"cache_salt", nullptr}}).status, 200);
}

TEST(Completions, ManyPromptsAndChoices) {
  const RunningServer running(
      std::make_shared<FakeEngine>([](const Request& request, uint32_t choice) {
        return BytesOf(std::string(1, static_cast<char>(request.prompt.back())) +
                       std::to_string(choice));
      }));
  const json body = {{"prompt", {"a", "b"}}, {"n", 2}, {"max_tokens", 2}};
  const json answer = running.Post(kCompletions, body).json();
  ASSERT_EQ(answer["choices"].size(), 4u);
  const std::vector<std::string> expected = {"a0", "a1", "b0", "b1"};
  json streaming = body;
  streaming["stream"] = true;
  const auto events = ParseEvents(running.Post(kCompletions, streaming).body);
  ASSERT_TRUE(events);
  for (int i = 0; i < 4; ++i) {
    EXPECT_EQ(answer["choices"][i]["index"], i);
    EXPECT_EQ(answer["choices"][i]["text"], expected[i]);
    EXPECT_EQ(TextOf(*events, i), expected[i]);
  }
  EXPECT_EQ(answer["usage"]["prompt_tokens"], 4);
  EXPECT_EQ(answer["usage"]["completion_tokens"], 8);
}

TEST(Completions, EchoAndLogprobs) {
  const RunningServer running(Says("yz"));
  const json body = {{"prompt", "abc"}, {"echo", true}, {"logprobs", 2}, {"max_tokens", 1}};
  const json choice = running.Post(kCompletions, body).json()["choices"][0];
  EXPECT_EQ(choice["text"], "abcy");
  const json& logprobs = choice["logprobs"];
  EXPECT_EQ(logprobs["tokens"], (json{"<s>", "a", "b", "c", "y"}));
  EXPECT_EQ(logprobs["text_offset"], (json{0, 0, 1, 2, 3}));
  EXPECT_TRUE(logprobs["token_logprobs"][0].is_null());
  EXPECT_EQ(logprobs["token_logprobs"][1], -9999.0);  // 'a' is odd: -inf
  EXPECT_EQ(logprobs["token_logprobs"][2], -0.5);
  EXPECT_EQ(logprobs["top_logprobs"][2].size(), 2u);
  // Scoring only: as lm-eval asks.
  json scoring = body;
  scoring["max_tokens"] = 0;
  const json scored = running.Post(kCompletions, scoring).json();
  EXPECT_EQ(scored["choices"][0]["text"], "abc");
  EXPECT_EQ(scored["choices"][0]["logprobs"]["tokens"].size(), 4u);
  EXPECT_EQ(scored["usage"]["completion_tokens"], 0);
  // The same in a stream, joined.
  json streaming = body;
  streaming["stream"] = true;
  const auto events = ParseEvents(running.Post(kCompletions, streaming).body);
  ASSERT_TRUE(events);
  EXPECT_EQ(TextOf(*events), "abcy");
  EXPECT_EQ((*events)[0]["choices"][0]["logprobs"], logprobs);
}

TEST(Completions, TokenIdsAndPromptLogprobs) {
  const RunningServer running(Says("yz"));
  const json choice = running
                          .Post(kCompletions, {{"prompt", {97, 98}},
                                               {"return_token_ids", true},
                                               {"prompt_logprobs", 1},
                                               {"logprobs", 0},
                                               {"return_tokens_as_token_ids", true}})
                          .json()["choices"][0];
  EXPECT_EQ(choice["prompt_token_ids"], (json{97, 98}));
  EXPECT_EQ(choice["token_ids"], (json{'y', 'z', FakeTokenizer::kEos}));
  EXPECT_TRUE(choice["prompt_logprobs"][0].is_null());
  EXPECT_EQ(choice["prompt_logprobs"][1]["98"]["decoded_token"], "b");
  EXPECT_EQ(choice["logprobs"]["tokens"][0], "token_id:121");
}

TEST(Chat, AnswerAndLogprobs) {
  const RunningServer running(Says("ok"));
  const json answer =
      running.Post(kChat, {{"messages", kHello}, {"logprobs", true}, {"top_logprobs", 2}}).json();
  EXPECT_TRUE(answer["id"].get<std::string>().starts_with("chatcmpl-"));
  EXPECT_EQ(answer["object"], "chat.completion");
  const json& choice = answer["choices"][0];
  EXPECT_EQ(choice["message"]["role"], "assistant");
  EXPECT_EQ(choice["message"]["content"], "ok");
  const json& content = choice["logprobs"]["content"];
  ASSERT_EQ(content.size(), 3u);
  EXPECT_EQ(content[0]["token"], "o");
  EXPECT_EQ(content[0]["bytes"], (json{111}));
  EXPECT_EQ(content[0]["top_logprobs"].size(), 2u);
  EXPECT_EQ(content[1]["logprob"], -9999.0);
}

// B405, and the shapes of wire.md B5.
TEST(Chat, StreamShape) {
  const RunningServer running(Says("Hi"));
  for (const int usage : {0, 1, 2}) {
    json body = {{"messages", kHello}, {"stream", true}};
    if (usage > 0) body["stream_options"] = {{"include_usage", usage == 2}};
    const ClientResponse response = running.Post(kChat, body);
    EXPECT_TRUE(response.HasHeader("Content-Type: text/event-stream; charset=utf-8"));
    const auto events = ParseEvents(response.body);
    ASSERT_TRUE(events);
    const size_t chunks = events->size() - (usage == 2);
    EXPECT_EQ((*events)[0]["choices"][0]["delta"], (json{{"role", "assistant"}, {"content", ""}}));
    for (size_t i = 0; i < chunks; ++i) {
      EXPECT_FALSE((*events)[i].contains("usage"));
      EXPECT_EQ((*events)[i]["object"], "chat.completion.chunk");
      EXPECT_EQ((*events)[i]["choices"].size(), 1u);
      EXPECT_EQ((*events)[i]["choices"][0]["finish_reason"].is_null(), i + 1 < chunks);
    }
    EXPECT_EQ((*events)[chunks - 1]["masu"]["kv_cache_dtype"], "fp8_e4m3");
    EXPECT_EQ(TextOf(*events), "Hi");
    if (usage != 2) continue;
    EXPECT_EQ(events->back()["choices"], json::array());
    const json plain = running.Post(kChat, {{"messages", kHello}}).json();
    EXPECT_EQ(events->back()["usage"], plain["usage"]);
  }
}

TEST(Chat, ContinuousUsage) {
  const RunningServer running(Says("abc"));
  const auto events = ParseEvents(
      running
          .Post(kChat,
                {{"messages", kHello},
                 {"stream", true},
                 {"stream_options", {{"include_usage", true}, {"continuous_usage_stats", true}}}})
          .body);
  ASSERT_TRUE(events);
  int last = -1;
  for (const json& event : *events) {
    ASSERT_TRUE(event.contains("usage"));
    EXPECT_GE(event["usage"]["completion_tokens"], last);
    last = event["usage"]["completion_tokens"];
  }
  EXPECT_EQ(last, 4);
}

TEST(Chat, ContinuesTheFinalMessage) {
  const RunningServer running(Says("x"));
  const json messages = {{{"role", "user"}, {"content", "q"}},
                         {{"role", "assistant"}, {"content", "The answer"}}};
  const json answer = running
                          .Post(kChat, {{"messages", messages},
                                        {"continue_final_message", true},
                                        {"return_token_ids", true}})
                          .json();
  std::string prompt;
  for (const json& id : answer["prompt_token_ids"]) prompt += static_cast<char>(id.get<int>());
  EXPECT_EQ(prompt, "user: q\nassistant: The answer");
}

// B401 over HTTP: the same text, count and reason in both modes; the engine is told.
TEST(StopStrings, SameInBothModes) {
  const auto tokenizer = std::make_shared<FakeTokenizer>(
      std::vector<std::string>{"alpha", " be", "ta ga", "mma del", "ta"});
  for (const int chunk : {1, 2, 5}) {
    auto engine = std::make_shared<FakeEngine>(std::vector<TokenId>{258, 259, 260, 261, 262});
    engine->tokens_per_update = chunk;
    const RunningServer running(engine, {}, tokenizer);
    for (const json& stop :
         {json("ta"), json{"a ga", "del"}, json("beta"), json(" gamma"), json("m")}) {
      json body = {{"prompt", "p"}, {"max_tokens", 1000}, {"stop", stop}};
      const json plain = running.Post(kCompletions, body).json();
      body["stream"] = true;
      body["stream_options"] = {{"include_usage", true}};
      const auto events = ParseEvents(running.Post(kCompletions, body).body);
      ASSERT_TRUE(events);
      const std::string first = stop.is_string() ? stop : stop[0];
      const std::string full = "alpha beta gamma delta";
      EXPECT_EQ(plain["choices"][0]["text"], full.substr(0, full.find(first)));
      EXPECT_EQ(TextOf(*events), plain["choices"][0]["text"]);
      EXPECT_EQ(plain["choices"][0]["finish_reason"], "stop");
      EXPECT_EQ(plain["choices"][0]["stop_reason"], first);
      EXPECT_EQ(events->back()["usage"], plain["usage"]);
      EXPECT_LE(plain["usage"]["completion_tokens"], 4);
    }
    EXPECT_TRUE(Eventually([&] { return engine->live() == 0; }));
    EXPECT_EQ(engine->stopped_choices, 10);
  }
}

TEST(Errors, EmptyPrompts) {
  const RunningServer running(Says("x"));
  for (const json& prompt :
       {json(""), json{""}, json::array(), json{json::array()}, json{"good", ""}, json()}) {
    const ClientResponse response = running.Post(kCompletions, {{"prompt", prompt}});
    EXPECT_EQ(response.status, 400) << prompt;
    EXPECT_EQ(response.json()["error"]["param"], "prompt") << prompt;
  }
  EXPECT_EQ(running.Post(kChat, {{"messages", json::array()}}).status, 400);
  EXPECT_EQ(running.Post(kCompletions, {{"prompt", "x"}}).status, 200);
}

// B414: exact at the border, right numbers in the message.
TEST(Errors, ContextLimit) {
  const auto engine = std::make_shared<FakeEngine>(BytesOf("ab"), /*max_model_len=*/128);
  const RunningServer running(engine);
  const auto post = [&](int prompt, std::optional<int> max_tokens) {
    json body = {{"prompt", std::vector<int>(prompt, 97)}};
    if (max_tokens) body["max_tokens"] = *max_tokens;
    return running.Post(kCompletions, body);
  };
  EXPECT_EQ(post(127, 1).status, 200);
  EXPECT_EQ(post(127, std::nullopt).json()["usage"]["completion_tokens"], 1);
  EXPECT_EQ(post(112, 16).status, 200);
  EXPECT_EQ(post(100, std::nullopt).json()["usage"]["completion_tokens"], 16);
  for (const auto& [prompt, max_tokens] : {std::pair{128, 1}, {129, 1}, {113, 16}, {2560, 7}}) {
    const ClientResponse response = post(prompt, max_tokens);
    EXPECT_EQ(response.status, 400);
    const json error = response.json()["error"];
    EXPECT_EQ(error["param"], "input_tokens");
    const std::string message = error["message"];
    int limit = 0, input = 0, requested = 0;
    const char* format =
        "This model's maximum context length is %d tokens. However, your prompt contains %d input "
        "tokens and you requested %d output tokens";
    ASSERT_EQ(std::sscanf(message.c_str(), format, &limit, &input, &requested), 3) << message;
    EXPECT_EQ(limit, 128);
    EXPECT_EQ(input, prompt);
    EXPECT_EQ(requested, max_tokens);
  }
  // Chat without max_tokens takes the rest of the context.
  const json chat = running.Post(kChat, {{"messages", kHello}}).json();
  EXPECT_EQ(chat["usage"]["total_tokens"], 128);
  EXPECT_EQ(chat["choices"][0]["finish_reason"], "length");
  const ClientResponse cut = running.Post(
      kCompletions, {{"prompt", std::vector<int>(500, 97)}, {"truncate_prompt_tokens", -1}});
  EXPECT_EQ(cut.json()["usage"]["prompt_tokens"], 127);
}

TEST(Errors, ModelsAndBodies) {
  const RunningServer running(Says("x"));
  const ClientResponse unknown = running.Post(kCompletions, {{"prompt", "x"}, {"model", "nope"}});
  EXPECT_EQ(unknown.status, 404);
  EXPECT_EQ(unknown.json()["error"]["type"], "NotFoundError");
  EXPECT_EQ(unknown.json()["error"]["param"], "model");
  EXPECT_EQ(running.Post(kCompletions, {{"prompt", "x"}, {"model", "tiny"}}).status, 200);
  EXPECT_EQ(Call(running.port(), "POST", kCompletions, "{not json").status, 400);
  EXPECT_EQ(Call(running.port(), "POST", kCompletions, "[]").status, 400);
  EXPECT_EQ(Call(running.port(), "POST", kCompletions, "", "Content-Length: 0\r\n").status, 400);
  const ClientResponse range = running.Post(kCompletions, {{"prompt", "x"}, {"top_p", 2}});
  EXPECT_EQ(range.status, 400);
  EXPECT_EQ(range.json()["error"]["param"], "top_p");
  EXPECT_EQ(running.Post(kChat, {{"messages", {{{"role", "user"}, {"content", "raise"}}}}}).status,
            400);
  EXPECT_EQ(running.Post(kCompletions, {{"prompt", {5000}}}).status, 400);
}

TEST(Errors, EngineFailures) {
  const auto engine = Says("abcdef");
  const RunningServer running(engine);
  engine->fail_after = 0;
  EXPECT_EQ(running.Post(kCompletions, {{"prompt", "x"}}).status, 500);
  // Before the first token a stream fails with a status, afterwards with an event.
  EXPECT_EQ(running.Post(kCompletions, {{"prompt", "x"}, {"stream", true}}).status, 500);
  engine->fail_after = 2;
  const ClientResponse late = running.Post(kCompletions, {{"prompt", "x"}, {"stream", true}});
  EXPECT_EQ(late.status, 200);
  const auto events = ParseEvents(late.body);
  ASSERT_TRUE(events);
  EXPECT_EQ(events->back()["error"]["code"], 500);
  engine->fail_after = -1;
  engine->max_requests = 0;
  const ClientResponse full = running.Post(kChat, {{"messages", kHello}, {"stream", true}});
  EXPECT_EQ(full.status, 503);
  EXPECT_TRUE(full.HasHeader("Retry-After"));
  EXPECT_EQ(running.server->metrics().count(Outcome::kFailed), 3u);
  EXPECT_EQ(running.server->metrics().count(Outcome::kRejected), 1u);
}

TEST(Tokenize, BothWays) {
  const RunningServer running(Says("x"));
  const json tokens =
      running.Post("/tokenize", {{"prompt", "ab"}, {"return_token_strs", true}}).json();
  EXPECT_EQ(tokens["tokens"], (json{256, 97, 98}));
  EXPECT_EQ(tokens["count"], 3);
  EXPECT_EQ(tokens["token_strs"], (json{"<s>", "a", "b"}));
  EXPECT_EQ(tokens["max_model_len"], 4096);
  const json chat = running.Post("/tokenize", {{"messages", kHello}}).json();
  EXPECT_EQ(chat["count"], std::string("user: hello\nassistant: ").size());
  EXPECT_EQ(running.Post("/detokenize", {{"tokens", {97, 98}}}).json()["prompt"], "ab");
  EXPECT_EQ(running.Post("/detokenize", {{"tokens", {97000}}}).status, 400);
  EXPECT_EQ(running.Post("/tokenize", json::object()).status, 400);
  EXPECT_EQ(running.Get("/tokenizer_info").json(),
            (json{{"bos_token", "<s>"}, {"eos_token", "</s>"}}));
}

}  // namespace
}  // namespace masu
