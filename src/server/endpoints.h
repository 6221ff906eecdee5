// One function per endpoint; routes.cc names them.
#pragma once

#include <memory>

#include "server/http.h"
#include "server/server_state.h"

namespace masu {

// An endpoint may take from it what it needs.
struct EndpointCall {
  HttpRequest request;
  std::shared_ptr<HttpExchange> exchange;
  std::shared_ptr<ServerState> state;
  std::string owner = {};  // whose key it came with (auth.h); empty on open routes
};

// endpoints_info.cc: answered at once.
void GetHealth(EndpointCall& call);  // 503 with progress while loading, and while shutting down
void GetReady(EndpointCall& call);   // 503 too when too many KV pages were bad
void GetLive(EndpointCall& call);
void GetVersion(EndpointCall& call);
void GetLoad(EndpointCall& call);
void GetWhy(EndpointCall& call);  // for `masu info --why`
void GetMetrics(EndpointCall& call);
void GetModels(EndpointCall& call);
void GetModel(EndpointCall& call);
// The control tokens' texts, as vLLM names them: lm-evaluation-harness tokenizes with /tokenize
// where this is answered. Without the chat template: clients leave rendering to
// /v1/chat/completions.
void GetTokenizerInfo(EndpointCall& call);

// On a worker: it waits for the engine.
void GetKv(EndpointCall& call);

// endpoints_text.cc: on a worker.
void PostTokenize(EndpointCall& call);
void PostDetokenize(EndpointCall& call);

// endpoints_generate.cc
void PostCompletions(EndpointCall& call);
void PostChatCompletions(EndpointCall& call);

// What endpoints share.
Error LoadingError(const ServerState& state);
Error ShuttingDownError();
Error UnknownModelError(const ServerState& state, const std::string& name);
// ok if `name` is empty, one that is served, or that with a kv_cache_dtype ("NAME:KV").
Result<void> CheckModelName(const ServerState& state, const std::string& name);
// The body as JSON object; wants Content-Type application/json. (A browser sends that to a foreign
// origin only after asking, which we do not answer: so no web page can use a local server.)
Result<Json> ParseBody(const HttpRequest& request);

}  // namespace masu
