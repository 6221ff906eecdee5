// One running request: its prompts in the engine, its choices on their way to text, its answer.
//
// Threads: Start on a worker; the engine's thread only leaves updates in an inbox; everything else
// happens on the I/O thread, where the inbox is drained. Writing a whole answer goes to a worker
// when the last choice has ended and nothing changes any more.
// States: submitting -> running -> done (answered, failed or cancelled). Done is final: late
// updates are dropped.
#pragma once

#include <chrono>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "engine/choice_text.h"
#include "server/executor.h"
#include "server/http.h"
#include "server/metrics.h"
#include "server/openai_request.h"
#include "server/openai_response.h"
#include "server/prompt_builder.h"
#include "server/served_model.h"
#include "server/worker_pool.h"

namespace masu {

class LegacyLogprobs;

struct SessionSpec {
  GenerationRequest request;
  std::vector<BuiltPrompt> prompts;
  ResponseHead head;
  std::string owner;  // whose key it came with
  std::optional<RequestRecord::Clock::time_point> deadline;
};

// What a session works with; shared by all sessions of a server. `workers` outlives the I/O loop.
struct SessionDeps {
  std::shared_ptr<const ServedModel> model;
  std::shared_ptr<Executor> io;
  WorkerPool* workers = nullptr;
  std::shared_ptr<HttpExchange> exchange;
  std::shared_ptr<RequestRecord> record;
  std::function<void()> on_done;  // once, any thread
};

class CompletionSession : public std::enable_shared_from_this<CompletionSession> {
 public:
  CompletionSession(SessionSpec spec, SessionDeps deps);

  // Submits all prompts, or answers with the error of the first that is refused.
  void Start();
  // The client has gone. Any thread; idempotent.
  void Cancel();
  // The server stops: the client gets an error. Any thread.
  void Shutdown();
  // I/O thread: keeps proxies from closing a quiet stream.
  void KeepAlive(std::chrono::seconds interval);

 private:
  using Clock = std::chrono::steady_clock;
  class PromptSink;
  struct Choice {
    Choice(const Tokenizer& tokenizer, const ChoiceTextOptions& options)
        : text(tokenizer, options) {}
    ChoiceText text;
    bool begun = false;               // its first chunk was sent
    uint64_t offset_base = 0;         // characters of the echoed prompt
    std::string answer;               // without streaming: all text,
    std::vector<TokenOutput> tokens;  // tokens,
    std::vector<uint64_t> offsets;    // and where they begin
  };
  struct News {
    size_t prompt;
    RequestId id;
    ChoiceUpdate update;
    Clock::time_point when;
  };

  void Enqueue(size_t prompt, RequestId id, ChoiceUpdate update);
  Request MakeRequest(size_t prompt);
  void AbortAll();
  void Drain();
  void Handle(News news);
  static void Collect(Choice& choice, ChoiceDelta delta);
  void FinishAnswer();
  Outcome EndOutcome() const;
  void End(Outcome outcome);
  void Fail(const Error& error, Outcome outcome);
  Error TimeoutError() const;

  void OpenStream();
  void SendEvent(const Json& json);
  void StreamDelta(size_t index, const ChoiceDelta& delta);
  ChoicePart EchoPart(size_t index);
  void FinishStream();
  Json StreamLogprobs(size_t index, const ChoiceDelta& delta);

  void SendAnswer() const;
  ChoicePart AnswerPart(size_t index) const;

  uint32_t n() const { return spec_.request.sampling.n; }
  size_t PromptOf(size_t index) const { return index / n(); }
  bool WantsLogprobs() const { return spec_.request.sampling.logprobs.has_value(); }
  // Log probabilities and offsets of the echoed prompt's tokens.
  void AddPromptLogprobs(size_t prompt, LegacyLogprobs* logprobs) const;
  Json TokenIds(const std::vector<TokenOutput>& tokens) const;
  Json StopReason(const ChoiceText& text) const;
  Usage TotalUsage() const;
  Usage UsageOf(size_t index, uint32_t completion_tokens) const;  // of one choice so far
  uint32_t CountedTokens(const ChoiceText& text) const;

  const SessionSpec spec_;
  const SessionDeps deps_;
  const bool drops_output_;  // echo with max_tokens 0: the prompt is scored, nothing generated

  std::mutex mutex_;  // guards the next five
  std::vector<RequestId> ids_;
  std::vector<News> inbox_;
  bool submitted_ = false;
  bool drain_posted_ = false;
  bool cancelled_ = false;

  // I/O thread only, once Start has returned.
  std::deque<News> backlog_;                               // taken from the inbox, not handled yet
  std::vector<Choice> choices_;                            // [prompts * n]
  std::vector<std::vector<TokenOutput>> prompt_logprobs_;  // [prompts]
  // [prompts] tokens that no choice had to compute; none before a choice has begun.
  std::vector<std::optional<uint32_t>> cached_tokens_;
  size_t num_finished_ = 0;
  bool streaming_ = false;
  bool done_ = false;
  Clock::time_point last_write_ = Clock::now();
};

}  // namespace masu
