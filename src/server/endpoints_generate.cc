#include "server/api_error.h"
#include "server/cancellation.h"
#include "server/endpoints.h"

namespace masu {
namespace {

struct Job {
  EndpointCall call;
  bool chat = false;
  std::shared_ptr<const ServedModel> model;
  std::shared_ptr<RequestRecord> record;
  std::shared_ptr<Cancellation> cancellation = std::make_shared<Cancellation>();
};

RequestLimits LimitsOf(const ServerState& state, const ServedModel& model) {
  RequestLimits limits;
  limits.max_logprobs = model.engine->config().max_logprobs;
  limits.max_choices = state.config().max_choices;
  limits.defaults = model.generation;
  return limits;
}

ResponseHead HeadOf(const Job& job, const GenerationRequest& request, const KvSelection& kv) {
  const KvChoiceInfo& choice = job.model->engine->cache_info().choices[kv.choice];
  const std::string_view header = job.call.request.Header("X-Request-Id");
  ResponseHead head;
  head.chat = job.chat;
  head.id = MakeResponseId(job.chat, header.empty() ? request.request_id : header);
  head.created = std::time(nullptr);
  head.model = kv.model;
  head.kv_cache_dtype = choice.kv_cache_dtype;
  head.kv_scale = choice.kv_scale;
  head.kv_why = kv.why;
  return head;
}

// The nearer of what the request and the server allow, from its arrival on.
std::optional<RequestRecord::Clock::time_point> DeadlineOf(const Job& job,
                                                           const GenerationRequest& request) {
  std::optional<std::chrono::milliseconds> allowed = job.call.state->config().request_timeout;
  if (request.deadline_ms) {
    const std::chrono::milliseconds asked(*request.deadline_ms);
    allowed = std::min(allowed.value_or(asked), asked);
  }
  if (!allowed) return std::nullopt;
  return job.record->start() + *allowed;
}

// From the body to what a session needs.
Result<SessionSpec> Prepare(Job& job) {
  const ServerState& state = *job.call.state;
  MASU_ASSIGN_OR_RETURN(Json body, ParseBody(job.call.request));
  job.call.request.body = {};  // the tree has taken over
  const RequestLimits limits = LimitsOf(state, *job.model);
  SessionSpec spec;
  MASU_ASSIGN_OR_RETURN(spec.request, job.chat ? ParseChatRequest(std::move(body), limits)
                                               : ParseCompletionRequest(std::move(body), limits));
  MASU_TRY(CheckModelName(state, spec.request.model));
  spec.owner = job.call.owner;
  MASU_ASSIGN_OR_RETURN(spec.kv,
                        job.model->kv->Select({.model = spec.request.model,
                                               .kv_cache_dtype = spec.request.kv_cache_dtype,
                                               .owner = spec.owner,
                                               .headers = &job.call.request.headers}));
  MASU_ASSIGN_OR_RETURN(spec.prompts, BuildPrompts(*job.model, spec.request, spec.kv.choice));
  spec.head = HeadOf(job, spec.request, spec.kv);
  spec.deadline = DeadlineOf(job, spec.request);
  return spec;
}

void Reject(const Job& job, const Error& error) {
  job.record->Finish(HttpStatus(error.code) == 500 ? Outcome::kFailed : Outcome::kRejected);
  job.call.exchange->Send(ErrorResponse(error));
}

void Run(Job& job) {
  auto turn = job.call.state->TakeTurn(job.call.request.body.size());
  if (job.cancellation->cancelled()) return job.record->Finish(Outcome::kAborted);
  Result<SessionSpec> spec = Prepare(job);
  if (turn) turn.unlock();
  if (!spec.ok()) return Reject(job, spec.error());
  const auto state = job.call.state;
  // The session is found by its address when it is done; it cannot hold itself.
  const auto slot = std::make_shared<std::weak_ptr<CompletionSession>>();
  auto session = std::make_shared<CompletionSession>(
      std::move(*spec), SessionDeps{.model = job.model,
                                    .io = state->io,
                                    .workers = &state->workers(),
                                    .exchange = job.call.exchange,
                                    .record = job.record,
                                    .on_done = [state = std::weak_ptr(state), slot] {
                                      const auto owner = state.lock();
                                      const auto done = slot->lock();
                                      if (owner && done) owner->Unregister(done.get());
                                    }});
  *slot = session;
  if (!state->Register(session)) {
    return Reject(job, ShuttingDownError());
  }
  job.cancellation->SetHandler([weak = std::weak_ptr(session)] {
    if (const auto alive = weak.lock()) alive->Cancel();
  });
  session->Start();
}

void Generate(EndpointCall call, bool chat) {
  auto job = std::make_shared<Job>();
  job->record = std::make_shared<RequestRecord>(call.state->metrics());
  job->chat = chat;
  job->model = call.state->model();
  job->call = std::move(call);
  if (job->call.state->shutting_down()) return Reject(*job, ShuttingDownError());
  if (!job->model) return Reject(*job, LoadingError(*job->call.state));
  job->call.exchange->OnDisconnect([cancellation = job->cancellation] { cancellation->Cancel(); });
  WorkerPool& workers = job->call.state->workers();
  workers.Post([job] { Run(*job); });
}

}  // namespace

void PostCompletions(EndpointCall& call) { Generate(std::move(call), /*chat=*/false); }
void PostChatCompletions(EndpointCall& call) { Generate(std::move(call), /*chat=*/true); }

}  // namespace masu
