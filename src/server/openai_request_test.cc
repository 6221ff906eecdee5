#include "server/openai_request.h"

#include <gtest/gtest.h>

namespace masu {
namespace {

// The field that a body is refused for, or "" if it is accepted.
std::string Refused(bool chat, Json more) {
  Json body =
      chat ? Json{{"messages", {{{"role", "user"}, {"content", "hi"}}}}} : Json{{"prompt", "hi"}};
  for (const auto& [key, value] : more.items()) body[key] = value;
  const auto parsed = chat ? ParseChatRequest(body, RequestLimits())
                           : ParseCompletionRequest(body, RequestLimits());
  if (parsed.ok()) return "";
  EXPECT_EQ(parsed.error().code, ErrorCode::kInvalidArgument);
  EXPECT_FALSE(parsed.error().message.empty());
  return parsed.error().param.empty() ? "no param" : parsed.error().param;
}

TEST(OpenAiRequest, ReadsSamplingFields) {
  const auto parsed = ParseCompletionRequest(
      Json::parse(R"({"prompt": "a", "n": 2, "temperature": 0.5, "top_k": -1, "top_p": 0.9,
        "min_p": 0.1, "presence_penalty": 1, "frequency_penalty": -1, "repetition_penalty": 1.1,
        "logit_bias": {"5": -100}, "seed": -1, "max_tokens": 7, "min_tokens": 2, "ignore_eos": true,
        "stop": "x", "stop_token_ids": [3], "logprobs": 4, "priority": -3, "model": "m",
        "stream": true, "stream_options": {"include_usage": true, "continuous_usage_stats": true},
        "never_heard_of": {"x": 1}, "user": "u"})"),
      RequestLimits());
  ASSERT_TRUE(parsed.ok()) << parsed.error().message;
  const SamplingParams& sampling = parsed->sampling;
  EXPECT_EQ(sampling.n, 2u);
  EXPECT_FLOAT_EQ(sampling.temperature, 0.5f);
  EXPECT_EQ(sampling.top_k, 0u);
  EXPECT_FLOAT_EQ(sampling.logit_bias.at(5), -100.0f);
  EXPECT_EQ(sampling.seed, ~uint64_t{0});
  EXPECT_EQ(parsed->max_tokens, 7u);
  EXPECT_EQ(sampling.stop_token_ids, std::vector<TokenId>{3});
  EXPECT_EQ(sampling.logprobs, 4u);
  EXPECT_EQ(parsed->priority, -3);
  EXPECT_TRUE(parsed->include_usage && parsed->continuous_usage && parsed->stream);
  EXPECT_EQ(parsed->stop, std::vector<std::string>{"x"});
}

// What the checkpoint's generation_config.json says holds where the request says nothing (or null).
TEST(OpenAiRequest, DefaultsOfTheCheckpointAndWhatOverridesThem) {
  RequestLimits limits;
  limits.defaults = {.temperature = 0.6f,
                     .top_p = 0.9f,
                     .min_p = 0.05f,
                     .repetition_penalty = 1.1f,
                     .top_k = 20,
                     .max_new_tokens = 300};
  const auto parse = [&](bool chat, const char* more) {
    Json body = Json::parse(more);
    if (!chat) body["prompt"] = "a";
    if (chat) body["messages"] = {{{"role", "user"}, {"content", "a"}}};
    return (chat ? ParseChatRequest(body, limits) : ParseCompletionRequest(body, limits)).value();
  };
  for (const bool chat : {false, true}) {
    for (const char* silent :
         {"{}", R"({"temperature": null, "top_k": null, "max_tokens": null})"}) {
      const GenerationRequest request = parse(chat, silent);
      EXPECT_EQ(request.sampling.temperature, 0.6f);
      EXPECT_EQ(request.sampling.top_p, 0.9f);
      EXPECT_EQ(request.sampling.min_p, 0.05f);
      EXPECT_EQ(request.sampling.repetition_penalty, 1.1f);
      EXPECT_EQ(request.sampling.top_k, 20u);
      EXPECT_EQ(request.max_tokens, std::nullopt);
      // Completions have the default of the OpenAI API.
      EXPECT_EQ(request.default_max_tokens, chat ? std::optional(300u) : std::nullopt);
    }
    const GenerationRequest loud = parse(chat, R"({"temperature": 0, "top_p": 1, "min_p": 0,
        "repetition_penalty": 1, "top_k": 0, "max_tokens": 400})");
    EXPECT_EQ(loud.sampling.temperature, 0.0f);
    EXPECT_EQ(loud.sampling.top_p, 1.0f);
    EXPECT_EQ(loud.sampling.min_p, 0.0f);
    EXPECT_EQ(loud.sampling.repetition_penalty, 1.0f);
    EXPECT_EQ(loud.sampling.top_k, 0u);
    EXPECT_EQ(loud.max_tokens, 400u);
    EXPECT_EQ(parse(chat, R"({"top_k": -1})").sampling.top_k, 0u);
  }
}

TEST(OpenAiRequest, ReadsAllFormsOfPrompts) {
  const auto count = [](const char* prompt) {
    const auto parsed =
        ParseCompletionRequest(Json{{"prompt", Json::parse(prompt)}}, RequestLimits());
    return parsed.ok() ? static_cast<int>(parsed->prompts.size()) : -1;
  };
  EXPECT_EQ(count("\"a\""), 1);
  EXPECT_EQ(count("[\"a\", \"b\"]"), 2);
  EXPECT_EQ(count("[1, 2, 3]"), 1);
  EXPECT_EQ(count("[[1, 2], [3]]"), 2);
  EXPECT_EQ(count("[[1, 2], \"x\"]"), 2);
  // B413: nothing empty comes through.
  for (const char* bad : {"\"\"", "[]", "[\"\"]", "[[]]", "[\"a\", \"\"]", "[1, \"a\"]", "{}", "5",
                          "[1.5]", "[-1]", "[99999999999]"}) {
    EXPECT_EQ(count(bad), -1) << bad;
  }
}

TEST(OpenAiRequest, RefusesWrongTypesByName) {
  EXPECT_EQ(Refused(false, {{"temperature", "hot"}}), "temperature");
  EXPECT_EQ(Refused(false, {{"max_tokens", -1}}), "max_tokens");
  EXPECT_EQ(Refused(false, {{"max_tokens", 0}}), "max_tokens");
  EXPECT_EQ(Refused(false, {{"max_tokens", 0}, {"echo", true}}), "");
  EXPECT_EQ(Refused(false, {{"stop", 5}}), "stop");
  EXPECT_EQ(Refused(false, {{"stop", {"a", ""}}}), "stop");
  EXPECT_EQ(Refused(false, {{"stream", "yes"}}), "stream");
  EXPECT_EQ(Refused(false, {{"stream_options", {{"include_usage", true}}}}), "stream_options");
  EXPECT_EQ(Refused(false, {{"logprobs", 21}}), "logprobs");
  EXPECT_EQ(Refused(true, {{"top_logprobs", 5}}), "top_logprobs");
  EXPECT_EQ(Refused(true, {{"logprobs", 5}}), "logprobs");
  EXPECT_EQ(Refused(false, {{"logit_bias", {{"x", 1}}}}), "logit_bias");
  EXPECT_EQ(Refused(false, {{"logit_bias", {{"5", 101}}}}), "logit_bias");
  EXPECT_EQ(Refused(false, {{"n", 0}}), "n");
  EXPECT_EQ(Refused(false, {{"n", 129}}), "n");
  EXPECT_EQ(Refused(false, {{"min_tokens", 9}, {"max_tokens", 8}}), "min_tokens");
  EXPECT_EQ(Refused(false, {{"temperature", nullptr}, {"n", nullptr}, {"stop", nullptr}}), "");
}

TEST(OpenAiRequest, RefusesWhatIsNotBuilt) {
  const Json tools = {{{"type", "function"}, {"function", {{"name", "f"}}}}};
  EXPECT_EQ(Refused(true, {{"tools", tools}}), "tools");
  EXPECT_EQ(Refused(true, {{"tools", tools}, {"tool_choice", "required"}}), "tools");
  EXPECT_EQ(Refused(true, {{"tools", tools}, {"tool_choice", "none"}}), "");
  EXPECT_EQ(Refused(true, {{"tools", Json::array()}}), "");
  EXPECT_EQ(Refused(true, {{"tool_choice", "required"}}), "tool_choice");
  EXPECT_EQ(Refused(true, {{"response_format", {{"type", "json_object"}}}}), "response_format");
  EXPECT_EQ(Refused(true, {{"response_format", {{"type", "text"}}}}), "");
  EXPECT_EQ(Refused(true, {{"structured_outputs", {{"json", "{}"}}}}), "structured_outputs");
  for (const char* field : {"guided_json", "guided_regex", "guided_choice", "guided_grammar"}) {
    EXPECT_EQ(Refused(true, {{field, "x"}}), field);
  }
  EXPECT_EQ(Refused(false, {{"suffix", "x"}}), "suffix");
  EXPECT_EQ(Refused(false, {{"suffix", ""}}), "");
  EXPECT_EQ(Refused(false, {{"best_of", 3}}), "best_of");
  EXPECT_EQ(Refused(false, {{"best_of", 1}}), "");
  EXPECT_EQ(Refused(false, {{"use_beam_search", true}}), "use_beam_search");
  EXPECT_EQ(Refused(false, {{"use_beam_search", false}}), "");
  EXPECT_EQ(Refused(false, {{"prompt_embeds", "AAAA"}}), "prompt_embeds");
  EXPECT_EQ(Refused(true, {{"functions", {{{"name", "f"}}}}}), "functions");
  EXPECT_EQ(Refused(false, {{"kv_cache_dtype", 8}}), "kv_cache_dtype");
}

TEST(OpenAiRequest, ChecksMessages) {
  const auto refused = [](const char* messages) {
    return !ParseChatRequest(Json{{"messages", Json::parse(messages)}}, RequestLimits()).ok();
  };
  for (const char* bad :
       {"[]", "{}", "[5]", "[{}]", R"([{"role": 5, "content": "x"}])", R"([{"role": "user"}])",
        R"([{"role": "user", "content": null}])", R"([{"role": "user", "content": 5}])",
        R"([{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]}])",
        R"([{"role": "user", "content": [{"type": "input_audio"}]}])",
        R"([{"role": "user", "content": [{"text": "x"}]}])"}) {
    EXPECT_TRUE(refused(bad)) << bad;
  }
  EXPECT_FALSE(refused(R"([{"role": "user", "content": ""}])"));
  const auto parts = ParseChatRequest(Json::parse(R"({"messages": [{"role": "user", "content":
        [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]}]})"),
                                      RequestLimits());
  ASSERT_TRUE(parts.ok());
  EXPECT_EQ(parts->messages[0]["content"], "a\nb");
}

}  // namespace
}  // namespace masu
