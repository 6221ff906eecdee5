#include "server/api_error.h"
#include "server/endpoints.h"

namespace masu {
namespace {

Result<std::vector<TokenId>> TokenizeBody(const ServedModel& model, Json& body) {
  FieldReader reader(body);
  const bool chat = reader.Find("messages") != nullptr;
  bool add_special = !chat;
  std::string prompt;
  ChatPromptInput input;
  reader.Read("add_special_tokens", &add_special);
  reader.Read("add_generation_prompt", &input.add_generation_prompt);
  reader.Read("continue_final_message", &input.continue_final_message);
  reader.Read("prompt", &prompt);
  if (!chat && reader.Find("prompt") == nullptr) {
    reader.Fail("prompt", "prompt or messages must be given");
  }
  MASU_TRY(reader.status());
  if (!chat) {
    MASU_TRY(CheckTextLength(model, prompt.size(), kLongestText));
    return model.tokenizer->Encode(prompt, {.add_special = add_special, .parse_special = true});
  }
  if (input.continue_final_message) input.add_generation_prompt = false;
  input.add_special_tokens = add_special;
  MASU_ASSIGN_OR_RETURN(const Json messages, TakeMessages(body));
  MASU_ASSIGN_OR_RETURN(const Json arguments, TakeTemplateArguments(body));
  input.messages = &messages;
  input.template_arguments = &arguments;
  const auto tools = body.find("tools");
  if (tools != body.end() && tools->is_array() && !tools->empty()) input.tools = &*tools;
  return RenderChat(model, input);
}

Result<Json> Tokenize(const ServedModel& model, Json& body) {
  bool return_strings = false;
  FieldReader reader(body);
  reader.Read("return_token_strs", &return_strings);
  MASU_TRY(reader.status());
  MASU_ASSIGN_OR_RETURN(const std::vector<TokenId> tokens, TokenizeBody(model, body));
  Json strings;
  if (return_strings) {
    strings = Json::array();
    for (const TokenId id : tokens) strings.push_back(model.tokenizer->TokenPiece(id));
  }
  Json answer = {{"count", tokens.size()},
                 {"max_model_len", model.engine->cache_info().max_model_len},
                 {"tokens", tokens},
                 {"token_strs", std::move(strings)}};
  return answer;
}

Result<Json> Detokenize(const ServedModel& model, Json& body) {
  FieldReader reader(body);
  std::vector<TokenId> tokens;
  reader.Read("tokens", &tokens);
  if (reader.Find("tokens") == nullptr) reader.Fail("tokens", "tokens is missing");
  for (const TokenId id : tokens) {
    if (!model.tokenizer->IsValid(id)) {
      reader.Fail("tokens", fmt::format("{} is no token id: the vocabulary has {} tokens", id,
                                        model.tokenizer->vocab_size()));
    }
  }
  MASU_TRY(reader.status());
  Json answer = {{"prompt", model.tokenizer->Decode(tokens, /*skip_special=*/false)}};
  return answer;
}

// Runs `answer` on a worker and sends what it returns.
void AnswerOnWorker(EndpointCall call, Result<Json> (*answer)(const ServedModel&, Json&)) {
  const auto model = call.state->model();
  if (!model) return call.exchange->Send(ErrorResponse(LoadingError(*call.state)));
  ServerState& state = *call.state;
  auto shared = std::make_shared<EndpointCall>(std::move(call));
  state.workers().Post([shared, model, answer] {
    const auto turn = shared->state->TakeTurn(shared->request.body.size());
    const auto make = [&]() -> Result<Json> {
      MASU_ASSIGN_OR_RETURN(Json body, ParseBody(shared->request));
      FieldReader reader(body);
      std::string name;
      reader.Read("model", &name);
      MASU_TRY(reader.status());
      MASU_TRY(CheckModelName(*shared->state, name));
      return answer(*model, body);
    };
    const Result<Json> made = make();
    shared->exchange->Send(made.ok() ? HttpResponse{.status = 200, .body = DumpJson(*made)}
                                     : ErrorResponse(made.error()));
  });
}

}  // namespace

Result<Json> ParseBody(const HttpRequest& request) {
  std::string_view type = request.Header("Content-Type");
  type = type.substr(0, type.find(';'));
  while (!type.empty() && type.back() == ' ') type.remove_suffix(1);
  const HttpHeaders wanted = {{std::string(type), "yes"}};  // compares without case
  if (FindHeader(wanted, "application/json").empty()) {
    return InvalidArgument("the body must be JSON, with Content-Type: application/json");
  }
  return ParseJsonObject(request.body);
}

void PostTokenize(EndpointCall& call) { AnswerOnWorker(std::move(call), &Tokenize); }
void PostDetokenize(EndpointCall& call) { AnswerOnWorker(std::move(call), &Detokenize); }

}  // namespace masu
