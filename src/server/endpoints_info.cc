#include "server/api_error.h"
#include "server/endpoints.h"

namespace masu {
namespace {

constexpr std::string_view kModelPrefix = "/v1/models/";

void SendJson(const EndpointCall& call, const Json& json) {
  call.exchange->Send({.status = 200, .body = DumpJson(json)});
}

// Progress and an error object in one body: scripts poll the status, clients show the message.
HttpResponse LoadingResponse(const ServerState& state) {
  const LoadingState loading = state.loading();
  Json body = ErrorJson(LoadingError(state));
  body["status"] = "loading";
  body["progress"] = loading.fraction;
  body["what"] = loading.what;
  return {.status = 503, .body = DumpJson(body), .headers = {{"Retry-After", "1"}}};
}

// An alias with a cache of its own is shown as vLLM shows an adapter: with the model as its parent.
Json ModelJson(const ServedModel& model, const std::string& name) {
  const auto alias = model.kv->FindModel(name);
  return {{"id", name},
          {"object", "model"},
          {"created", model.created},
          {"owned_by", "masu"},
          {"root", model.root},
          {"parent", alias && alias->kv_choice ? Json(alias->model) : Json(nullptr)},
          {"max_model_len", model.engine->cache_info().max_model_len},
          {"permission", Json::array()}};
}

Json KvReportJson(const KvReport& report) {
  Json layouts = Json::array();
  const auto side = [](const KvReport::Side& of) {
    Json json = {{"encoding", of.encoding}, {"scale", of.scale}, {"rotated", of.rotated}};
    if (!of.scales.empty()) json["scales"] = of.scales;
    return json;
  };
  for (const KvReport::Layout& layout : report.layouts) {
    Json layers = Json::array();
    for (const auto& [k, v] : layout.layers) layers.push_back({{"k", side(k)}, {"v", side(v)}});
    layouts.push_back({{"kv_cache_dtype", layout.kv_cache_dtype},
                       {"first_page", layout.first_page},
                       {"layers", std::move(layers)},
                       {"page_bytes", layout.page_bytes},
                       {"free", layout.free},
                       {"in_use", layout.in_use},
                       {"idle", layout.idle},
                       {"sealed", layout.sealed},
                       {"quarantined", layout.quarantined}});
  }
  Json choices = Json::array();
  for (const KvReport::Choice& choice : report.choices) {
    choices.push_back({{"request", choice.id.value()},
                       {"choice", choice.choice},
                       {"state", choice.running             ? "running"
                                 : choice.swapped_bytes > 0 ? "swapped"
                                                            : "waiting"},
                       {"tokens", choice.tokens},
                       {"computed", choice.computed},
                       {"pages", choice.pages},
                       {"swapped_bytes", choice.swapped_bytes}});
  }
  return {{"violations", report.violations}, {"slabs", report.slabs},
          {"free_slabs", report.free_slabs}, {"layouts", std::move(layouts)},
          {"choices", std::move(choices)},   {"swap_used_bytes", report.swap_used}};
}

}  // namespace

Error LoadingError(const ServerState& state) {
  const LoadingState loading = state.loading();
  return MakeError(ErrorCode::kUnavailable, "the model is loading ({:.0f} %): {}",
                   loading.fraction * 100, loading.what);
}

Error ShuttingDownError() {
  return MakeError(ErrorCode::kUnavailable, "the server is stopping; retry later");
}

Error UnknownModelError(const ServerState& state, const std::string& name) {
  std::vector<std::string> known = state.model_names();
  if (const auto model = state.model()) {
    const std::vector<std::string> aliases = model->kv->Aliases();
    known.insert(known.end(), aliases.begin(), aliases.end());
  }
  return Error{ErrorCode::kNotFound,
               fmt::format("The model `{}` does not exist. Valid aliases: {}", name.substr(0, 256),
                           fmt::join(known, ", ")),
               "model"};
}

Result<void> CheckModelName(const ServerState& state, const std::string& name) {
  if (name.empty()) return {};
  const auto model = state.model();
  if (model && model->kv->FindModel(name)) return {};
  return UnknownModelError(state, name);
}

void GetHealth(EndpointCall& call) {
  if (call.state->shutting_down()) return call.exchange->Send(ErrorResponse(ShuttingDownError()));
  if (!call.state->model()) return call.exchange->Send(LoadingResponse(*call.state));
  SendJson(call, {{"status", "ok"}});
}

void GetReady(EndpointCall& call) {
  const auto model = call.state->model();
  if (model && model->engine->Stats().kv_unready) {
    return call.exchange->Send(ErrorResponse(
        MakeError(ErrorCode::kUnavailable, "too many KV pages failed their checks; see the log")));
  }
  GetHealth(call);
}

void GetLive(EndpointCall& call) { SendJson(call, {{"status", "alive"}}); }

void GetVersion(EndpointCall& call) { SendJson(call, {{"version", MASU_VERSION}}); }

void GetLoad(EndpointCall& call) {
  SendJson(call, {{"server_load", call.state->metrics()->in_flight()}});
}

void GetWhy(EndpointCall& call) {
  const auto model = call.state->model();
  if (!model) return call.exchange->Send(LoadingResponse(*call.state));
  call.exchange->Send({.status = 200,
                       .content_type = "text/plain; charset=utf-8",
                       .body = model->engine->Explain()});
}

void GetKv(EndpointCall& call) {
  const auto model = call.state->model();
  if (!call.state->config().debug_endpoints) {
    return call.exchange->Send(ErrorResponse(MakeError(
        ErrorCode::kNotFound, "/debug/kv is closed; start with --enable-debug-endpoints")));
  }
  if (!model) return call.exchange->Send(LoadingResponse(*call.state));
  call.state->workers().Post([model, exchange = call.exchange] {
    const Result<KvReport> report = model->engine->InspectKv();
    if (!report.ok()) return exchange->Send(ErrorResponse(report.error()));
    exchange->Send({.status = 200, .body = DumpJson(KvReportJson(*report))});
  });
}

void GetMetrics(EndpointCall& call) {
  const auto model = call.state->model();
  call.exchange->Send(
      {.status = 200,
       .content_type = "text/plain; version=0.0.4; charset=utf-8",
       .body = call.state->metrics()->Render(
           call.state->config().metrics_prefix, call.state->model_name(),
           model ? model->engine.get() : nullptr, model ? model->kv->drift().get() : nullptr)});
}

void GetModels(EndpointCall& call) {
  const auto model = call.state->model();
  if (!model) return call.exchange->Send(LoadingResponse(*call.state));
  Json data = Json::array();
  for (const std::string& name : call.state->model_names()) data.push_back(ModelJson(*model, name));
  for (const std::string& name : model->kv->Aliases()) data.push_back(ModelJson(*model, name));
  SendJson(call, {{"object", "list"}, {"data", std::move(data)}});
}

void GetTokenizerInfo(EndpointCall& call) {
  const auto model = call.state->model();
  if (!model) return call.exchange->Send(LoadingResponse(*call.state));
  const auto text_of = [&](const std::optional<TokenId>& id) {
    return id ? Json(model->tokenizer->TokenPiece(*id)) : Json(nullptr);
  };
  SendJson(call, {{"bos_token", text_of(model->tokenizer->bos())},
                  {"eos_token", text_of(model->tokenizer->eos())}});
}

void GetModel(EndpointCall& call) {
  const auto model = call.state->model();
  if (!model) return call.exchange->Send(LoadingResponse(*call.state));
  const std::string name = call.request.path.substr(kModelPrefix.size());
  const Result<void> known =
      name.empty() ? UnknownModelError(*call.state, name) : CheckModelName(*call.state, name);
  if (!known.ok()) return call.exchange->Send(ErrorResponse(known.error()));
  SendJson(call, ModelJson(*model, name));
}

}  // namespace masu
