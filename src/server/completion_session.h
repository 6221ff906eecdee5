// One running request: its prompts in the engine, its choices on their way to text, its answer.
//
// Threads: Start on a worker; the engine's thread only leaves updates in an inbox; everything else
// happens on the I/O thread, where the inbox is drained. Writing a whole answer goes to a worker
// when the last choice has ended and nothing changes any more.
// States: submitting -> running -> (judging -> retrying) -> done (answered, failed or cancelled).
// Done is final: late updates are dropped. The states in brackets: session_retry.cc.
#pragma once

#include <chrono>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

#include "engine/choice_text.h"
#include "server/degeneration.h"
#include "server/executor.h"
#include "server/http.h"
#include "server/kv_selector.h"
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
  KvSelection kv;
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
    bool begun = false;        // its first chunk was sent
    uint64_t offset_base = 0;  // characters of the echoed prompt
    // Tokens that it did not have to compute; none before it has begun.
    std::optional<uint32_t> cached_tokens = {};
    std::string answer;               // without streaming: all text,
    std::vector<TokenOutput> tokens;  // tokens,
    std::vector<uint64_t> offsets;    // and where they begin
  };
  // Which prompt, and whether it is the first time that it is answered.
  struct Origin {
    size_t prompt = 0;
    bool is_retry = false;
  };
  struct News {
    Origin origin;
    RequestId id;
    ChoiceUpdate update;
    Clock::time_point when;
  };
  // A choice that is made once more, and what came of that.
  struct Retry {
    Retry(Degeneration why, Choice again) : reason(why), choice(std::move(again)) {}
    Degeneration reason;
    Choice choice;
    bool failed = false;  // the first answer stays
    bool ended() const { return failed || choice.text.finished(); }
  };

  void Enqueue(Origin origin, RequestId id, ChoiceUpdate update);
  Choice MakeChoice(size_t prompt) const;
  Request MakeRequest(Origin origin);
  void AbortAll();
  void Drain();
  void Handle(News news);
  ChoiceDelta Take(Choice& choice, News& news);
  static void Collect(Choice& choice, ChoiceDelta delta);
  void FinishAnswer();

  void JudgeAnswers();  // on a worker
  std::optional<Degeneration> JudgeChoice(const Choice& choice) const;
  void BeginRetries(const std::vector<std::optional<Degeneration>>& verdicts);
  void SubmitRetry(size_t prompt, const std::vector<bool>& wanted);  // on a worker
  void FailRetries(size_t prompt);
  void HandleRetry(News news);
  void FinishIfRetried();
  void CountRetries() const;  // on a worker, when all have ended
  bool IsRetried(size_t index) const;
  const Choice& SentChoice(size_t index) const;  // the one that the answer shows
  ResponseHead RetryHead(size_t index) const;
  ResponseHead SentHead() const;

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
  uint32_t CachedTokens(size_t prompt) const;                     // that no choice had to compute
  uint32_t CountedTokens(const ChoiceText& text) const;

  const SessionSpec spec_;
  const SessionDeps deps_;
  const bool drops_output_;  // echo with max_tokens 0: the prompt is scored, nothing generated
  // Where degenerate answers are made once more, of CacheInfo::choices; nullopt: they are sent.
  const std::optional<uint32_t> retry_choice_;

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
  size_t num_finished_ = 0;
  bool judged_ = false;
  std::vector<std::optional<Retry>> retries_;  // [prompts * n], or empty: none
  bool streaming_ = false;
  bool done_ = false;
  Clock::time_point last_write_ = Clock::now();
};

}  // namespace masu
