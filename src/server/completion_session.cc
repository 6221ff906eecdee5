#include "server/completion_session.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "server/api_error.h"
#include "server/sse.h"

namespace masu {
namespace {

// A session that is far behind the engine lets the others have the I/O thread in between.
constexpr size_t kUpdatesPerTurn = 64;

// A stream has been read before it is known to be bad. Scores of the prompt come with the answer
// and of the same cache, so what asks for them stays as it is.
bool MayRetry(const GenerationRequest& request) {
  const bool scores_prompt =
      request.sampling.prompt_logprobs || (request.echo && request.sampling.logprobs.has_value());
  return !request.stream && !scores_prompt && request.max_tokens != 0u;
}

}  // namespace

class CompletionSession::PromptSink : public OutputSink {
 public:
  PromptSink(std::shared_ptr<CompletionSession> session, Origin origin)
      : session_(std::move(session)), origin_(origin) {}
  void OnUpdate(RequestId id, ChoiceUpdate update) override {
    session_->Enqueue(origin_, id, std::move(update));
  }

 private:
  std::shared_ptr<CompletionSession> session_;
  Origin origin_;
};

CompletionSession::CompletionSession(SessionSpec spec, SessionDeps deps)
    : spec_(std::move(spec)),
      deps_(std::move(deps)),
      drops_output_(spec_.request.max_tokens == 0u),
      retry_choice_(MayRetry(spec_.request) ? deps_.model->kv->RetryChoice(spec_.kv.choice)
                                            : std::nullopt),
      prompt_logprobs_(spec_.prompts.size()) {
  for (size_t i = 0; i < spec_.prompts.size() * n(); ++i)
    choices_.push_back(MakeChoice(PromptOf(i)));
  uint64_t prompt_tokens = 0;
  uint32_t max_tokens = 0;
  for (const BuiltPrompt& prompt : spec_.prompts) {
    prompt_tokens += prompt.tokens.size();
    max_tokens = std::max(max_tokens, prompt.max_tokens);
  }
  deps_.record->OnAdmitted(static_cast<uint32_t>(choices_.size()), n(), max_tokens, prompt_tokens);
  deps_.record->metrics().CountKvChoice(
      deps_.model->engine->cache_info().choices[spec_.kv.choice].name);
}

CompletionSession::Choice CompletionSession::MakeChoice(size_t prompt) const {
  const GenerationRequest& request = spec_.request;
  Choice choice(*deps_.model->tokenizer, {.stop = request.stop,
                                          .include_stop = request.include_stop,
                                          .skip_special_tokens = request.skip_special_tokens,
                                          .min_tokens = request.sampling.min_tokens,
                                          .stop_token_ids = request.sampling.stop_token_ids});
  if (request.echo) choice.offset_base = CountCharacters(spec_.prompts[prompt].text);
  return choice;
}

void CompletionSession::Start() {
  for (size_t i = 0; i < spec_.prompts.size(); ++i) {
    Result<RequestId> id = deps_.model->engine->Submit(MakeRequest({.prompt = i}));
    if (!id.ok()) {
      AbortAll();
      const bool ours = HttpStatus(id.error().code) == 500;
      // On the I/O thread, like every other end: a disconnect may come at the same time.
      deps_.io->Post([self = shared_from_this(), error = id.error(), ours] {
        self->Fail(error, ours ? Outcome::kFailed : Outcome::kRejected);
      });
      return;
    }
    std::lock_guard lock(mutex_);
    ids_.push_back(*id);
    if (cancelled_) break;
  }
  bool gone = false;
  {
    // Nothing was drained so far: once a stream has begun, an error could not be an HTTP status.
    std::lock_guard lock(mutex_);
    submitted_ = true;
    gone = cancelled_;
    drain_posted_ = true;
  }
  if (gone) AbortAll();
  deps_.io->Post([self = shared_from_this()] { self->Drain(); });
}

Request CompletionSession::MakeRequest(Origin origin) {
  Request request;
  const BuiltPrompt& prompt = spec_.prompts[origin.prompt];
  request.prompt = prompt.tokens;
  request.sampling = spec_.request.sampling;
  request.sampling.max_tokens = prompt.max_tokens;
  if (spec_.request.echo && WantsLogprobs()) {
    request.sampling.prompt_logprobs =
        std::max(request.sampling.prompt_logprobs.value_or(0), *request.sampling.logprobs);
  }
  request.priority = spec_.request.priority;
  request.owner = spec_.owner;
  request.deadline = spec_.deadline;
  request.cache_salt = spec_.request.cache_salt;
  const uint32_t kv_choice = origin.is_retry ? *retry_choice_ : spec_.kv.choice;
  request.kv_cache_dtype = deps_.model->engine->cache_info().choices[kv_choice].name;
  request.kv_class = spec_.kv.kv_class;
  request.sink = std::make_shared<PromptSink>(shared_from_this(), origin);
  return request;
}

void CompletionSession::AbortAll() {
  std::vector<RequestId> ids;
  {
    std::lock_guard lock(mutex_);
    ids = ids_;
  }
  for (const RequestId id : ids) deps_.model->engine->Abort(id);
}

void CompletionSession::Cancel() {
  {
    std::lock_guard lock(mutex_);
    cancelled_ = true;
  }
  AbortAll();
  deps_.io->Post([self = shared_from_this()] { self->End(Outcome::kAborted); });
}

void CompletionSession::Shutdown() {
  {
    std::lock_guard lock(mutex_);
    cancelled_ = true;
  }
  AbortAll();
  deps_.io->Post([self = shared_from_this()] {
    self->Fail(MakeError(ErrorCode::kUnavailable, "the server is stopping"), Outcome::kFailed);
  });
}

void CompletionSession::Enqueue(Origin origin, RequestId id, ChoiceUpdate update) {
  {
    std::lock_guard lock(mutex_);
    inbox_.push_back({origin, id, std::move(update), Clock::now()});
    if (!submitted_ || drain_posted_) return;
    drain_posted_ = true;
  }
  deps_.io->Post([self = shared_from_this()] { self->Drain(); });
}

void CompletionSession::Drain() {
  {
    std::lock_guard lock(mutex_);
    drain_posted_ = false;
    // Aborts that we asked for: whoever cancelled has posted, or is about to post, the end.
    if (cancelled_) return;
    std::move(inbox_.begin(), inbox_.end(), std::back_inserter(backlog_));
    inbox_.clear();
  }
  for (size_t i = 0; i < kUpdatesPerTurn && !backlog_.empty(); ++i) {
    if (done_) return;
    News news = std::move(backlog_.front());
    backlog_.pop_front();
    Handle(std::move(news));
  }
  if (backlog_.empty()) return;
  {
    std::lock_guard lock(mutex_);
    if (std::exchange(drain_posted_, true)) return;
  }
  deps_.io->Post([self = shared_from_this()] { self->Drain(); });
}

void CompletionSession::Handle(News news) {
  if (news.update.choice >= n()) return;
  if (news.origin.is_retry) return HandleRetry(std::move(news));
  const size_t index = news.origin.prompt * n() + news.update.choice;
  Choice& choice = choices_[index];
  if (choice.text.finished()) return;
  if (news.update.finish == FinishReason::kError) {
    return Fail(MakeError(ErrorCode::kInternal, "{}", news.update.error), Outcome::kFailed);
  }
  if (news.update.finish == FinishReason::kTimeout) {
    return Fail(TimeoutError(), Outcome::kTimedOut);
  }
  if (news.update.finish == FinishReason::kAbort) {  // not by us
    return Fail(MakeError(ErrorCode::kUnavailable, "the engine aborted the request{}{}",
                          news.update.error.empty() ? "" : ": ", news.update.error),
                Outcome::kFailed);
  }
  deps_.record->OnTokens(static_cast<uint32_t>(index),
                         static_cast<uint32_t>(news.update.tokens.size()), news.when);
  std::vector<TokenOutput>& prompt_logprobs = prompt_logprobs_[news.origin.prompt];
  if (prompt_logprobs.empty()) prompt_logprobs = std::move(news.update.prompt_logprobs);
  ChoiceDelta delta = Take(choice, news);
  if (delta.finish) ++num_finished_;
  if (spec_.request.stream) {
    StreamDelta(index, delta);
    if (num_finished_ == choices_.size()) FinishStream();
  } else {
    Collect(choice, std::move(delta));
    if (num_finished_ == choices_.size()) FinishAnswer();
  }
}

// What the update adds to the choice; tells the engine if a stop string ended it.
ChoiceDelta CompletionSession::Take(Choice& choice, News& news) {
  if (choice.text.num_tokens() == 0 && !news.update.tokens.empty())
    choice.cached_tokens = news.update.cached_tokens;
  const uint32_t number = news.update.choice;
  ChoiceDelta delta = choice.text.Push(std::move(news.update));
  if (delta.stopped_by_string) deps_.model->engine->StopChoice(news.id, number);
  if (drops_output_) {
    delta.text.clear();
    delta.tokens.clear();
    delta.text_offsets.clear();
  }
  for (uint64_t& offset : delta.text_offsets) offset += choice.offset_base;
  return delta;
}

void CompletionSession::Collect(Choice& choice, ChoiceDelta delta) {
  choice.answer += delta.text;
  choice.offsets.insert(choice.offsets.end(), delta.text_offsets.begin(), delta.text_offsets.end());
  std::move(delta.tokens.begin(), delta.tokens.end(), std::back_inserter(choice.tokens));
}

void CompletionSession::FinishAnswer() {
  // The worker reads what no one changes any more.
  if (retry_choice_ && !std::exchange(judged_, true))
    return deps_.workers->Post([self = shared_from_this()] { self->JudgeAnswers(); });
  deps_.workers->Post([self = shared_from_this()] {
    self->CountRetries();
    self->SendAnswer();
  });
  End(EndOutcome());
}

Outcome CompletionSession::EndOutcome() const {
  for (size_t i = 0; i < choices_.size(); ++i) {
    if (SentChoice(i).text.finish() == FinishReason::kLength) return Outcome::kLength;
  }
  return Outcome::kStop;
}

void CompletionSession::End(Outcome outcome) {
  if (done_) return;
  done_ = true;
  for (const std::optional<Retry>& retry : retries_) {
    if (retry && !retry->ended())
      deps_.record->metrics().CountRetry(retry->reason, RetryOutcome::kAborted);
  }
  deps_.record->Finish(outcome);
  deps_.on_done();
}

void CompletionSession::Fail(const Error& error, Outcome outcome) {
  if (done_) return;
  AbortAll();
  if (streaming_) {
    SendEvent(ErrorJson(error));
    deps_.exchange->Write(std::string(kSseDone));
    deps_.exchange->Finish();
  } else {
    deps_.exchange->Send(ErrorResponse(error));
  }
  End(outcome);
}

Error CompletionSession::TimeoutError() const {
  const std::chrono::duration<double> allowed = *spec_.deadline - deps_.record->start();
  return MakeError(ErrorCode::kDeadlineExceeded,
                   "the request was not finished within {} s (deadline_ms, or --request-timeout of "
                   "the server)",
                   allowed.count());
}

uint32_t CompletionSession::CountedTokens(const ChoiceText& text) const {
  return drops_output_ ? 0 : text.num_tokens();
}

Usage CompletionSession::TotalUsage() const {
  Usage usage;
  for (const BuiltPrompt& prompt : spec_.prompts) usage.prompt_tokens += prompt.tokens.size();
  for (size_t i = 0; i < spec_.prompts.size(); ++i) usage.cached_tokens += CachedTokens(i);
  for (size_t i = 0; i < choices_.size(); ++i)
    usage.completion_tokens += CountedTokens(SentChoice(i).text);
  return usage;
}

uint32_t CompletionSession::CachedTokens(size_t prompt) const {
  std::optional<uint32_t> cached;
  for (size_t i = prompt * n(); i < (prompt + 1) * n(); ++i) {
    const std::optional<uint32_t>& of_choice = SentChoice(i).cached_tokens;
    if (of_choice) cached = std::min(cached.value_or(*of_choice), *of_choice);
  }
  return cached.value_or(0);
}

Usage CompletionSession::UsageOf(size_t index, uint32_t completion_tokens) const {
  const size_t prompt = PromptOf(index);
  return {.prompt_tokens = spec_.prompts[prompt].tokens.size(),
          .completion_tokens = completion_tokens,
          .cached_tokens = CachedTokens(prompt)};
}

Json CompletionSession::StopReason(const ChoiceText& text) const {
  if (text.stop_string()) return *text.stop_string();
  if (text.stop_token()) return *text.stop_token();
  return nullptr;
}

Json CompletionSession::TokenIds(const std::vector<TokenOutput>& tokens) const {
  if (!spec_.request.return_token_ids) return nullptr;
  Json ids = Json::array();
  for (const TokenOutput& token : tokens) ids.push_back(token.token);
  return ids;
}

}  // namespace masu
