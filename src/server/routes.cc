#include "server/routes.h"

#include "base/log.h"
#include "server/api_error.h"
#include "server/endpoints.h"

namespace masu {
namespace {

struct Route {
  std::string_view method;
  std::string_view path;
  void (*endpoint)(EndpointCall&);
  bool open = false;    // needs no key
  bool prefix = false;  // path and whatever follows it
};

// HEAD is answered wherever GET is. Open routes are those that probes and scrapers use.
constexpr Route kRoutes[] = {
    {"POST", "/v1/chat/completions", &PostChatCompletions},
    {"POST", "/v1/completions", &PostCompletions},
    {"GET", "/v1/models", &GetModels},
    {"GET", "/v1/models/", &GetModel, false, true},
    {"POST", "/tokenize", &PostTokenize},
    {"POST", "/detokenize", &PostDetokenize},
    {"GET", "/tokenizer_info", &GetTokenizerInfo},
    {"GET", "/health", &GetHealth, true},
    {"GET", "/ping", &GetHealth, true},
    {"POST", "/ping", &GetHealth, true},
    {"GET", "/ready", &GetReady, true},
    {"GET", "/readyz", &GetReady, true},
    {"GET", "/livez", &GetLive, true},
    {"GET", "/version", &GetVersion, true},
    {"GET", "/load", &GetLoad, true},
    {"GET", "/metrics", &GetMetrics, true},
    {"GET", "/debug/why", &GetWhy},
    {"GET", "/debug/kv", &GetKv},
};

// Names that clients of other servers try: a refusal says more than "no such route".
constexpr struct {
  std::string_view path;
  std::string_view why;
} kNotBuilt[] = {
    {"/v1/responses", "the responses API is not built yet; use /v1/chat/completions"},
    {"/v1/messages", "the messages API is not built yet; use /v1/chat/completions"},
    {"/v1/embeddings", "embeddings are not supported"},
    {"/pooling", "pooling is not supported"},
    {"/classify", "classification is not supported"},
    {"/score", "scoring is not supported"},
    {"/v1/score", "scoring is not supported"},
    {"/rerank", "reranking is not supported"},
    {"/v1/rerank", "reranking is not supported"},
    {"/v2/rerank", "reranking is not supported"},
    {"/v1/audio/transcriptions", "audio is not supported"},
    {"/v1/audio/translations", "audio is not supported"},
    {"/v1/load_lora_adapter", "LoRA adapters are not supported"},
    {"/v1/unload_lora_adapter", "LoRA adapters are not supported"},
};

bool Matches(const Route& route, std::string_view path) {
  return route.prefix ? path.starts_with(route.path) : path == route.path;
}

HttpResponse Unauthorized() {
  HttpResponse response =
      HttpErrorResponse(401, "no valid API key; send it as 'Authorization: Bearer KEY'");
  response.headers.emplace_back("WWW-Authenticate", "Bearer");
  return response;
}

}  // namespace

Routes::Routes(std::shared_ptr<ServerState> state)
    : state_(std::move(state)), keys_(state_->config().api_keys) {}

void Routes::Handle(HttpRequest request, const std::shared_ptr<HttpExchange>& exchange) const {
  try {
    Dispatch(std::move(request), exchange);
  } catch (const std::exception& exception) {
    LogError("contained an exception in a route: {}", exception.what());
    exchange->Send(HttpErrorResponse(500, "internal error"));
  }
}

void Routes::Dispatch(HttpRequest request, const std::shared_ptr<HttpExchange>& exchange) const {
  const std::string method = request.method == "HEAD" ? "GET" : request.method;
  std::string allowed;
  for (const Route& route : kRoutes) {
    if (!Matches(route, request.path)) continue;
    if (route.method != method) {
      allowed += (allowed.empty() ? "" : ", ") + std::string(route.method);
      continue;
    }
    std::optional<std::string> owner;
    if (!route.open) {
      owner = keys_.OwnerOf(request.Header("Authorization"));
      if (!owner) return exchange->Send(Unauthorized());
    }
    EndpointCall call{std::move(request), exchange, state_, owner.value_or(std::string())};
    return route.endpoint(call);
  }
  for (const auto& [path, why] : kNotBuilt) {
    if (request.path == path) {
      return exchange->Send(HttpErrorResponse(501, fmt::format("{}: {}", path, why)));
    }
  }
  if (allowed.empty()) {
    return exchange->Send(
        HttpErrorResponse(404, fmt::format("there is no route {}", request.path.substr(0, 256))));
  }
  HttpResponse response = HttpErrorResponse(
      405, fmt::format("{} answers {} only", request.path.substr(0, 256), allowed));
  response.headers.emplace_back("Allow", allowed);
  exchange->Send(std::move(response));
}

}  // namespace masu
