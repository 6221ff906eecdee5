// The part of CompletionSession that makes degenerate answers once more at 16 bits
// (--retry-on-degeneration), before the first byte is sent. A finished answer is judged on a
// worker; what it finds goes back to the I/O thread, which then waits for the retries as for the
// answers before them. Whatever goes wrong with a retry, the first answer is there to be sent.
#include <algorithm>

#include "server/completion_session.h"

namespace masu {

std::optional<Degeneration> CompletionSession::JudgeChoice(const Choice& choice) const {
  std::string_view text = choice.answer;
  // With the stop string or token in it, the text is not the JSON that the model wrote.
  if (spec_.request.include_stop) text = {};
  return FindDegeneration({.tokens = choice.tokens, .text = text, .finish = *choice.text.finish()});
}

void CompletionSession::JudgeAnswers() {
  std::vector<std::optional<Degeneration>> verdicts;
  for (const Choice& choice : choices_) verdicts.push_back(JudgeChoice(choice));
  deps_.io->Post([self = shared_from_this(), verdicts = std::move(verdicts)] {
    self->BeginRetries(verdicts);
  });
}

void CompletionSession::BeginRetries(const std::vector<std::optional<Degeneration>>& verdicts) {
  if (done_) return;  // the client went, or the server stopped, while the answer was judged
  retries_.resize(choices_.size());
  for (size_t i = 0; i < choices_.size(); ++i) {
    if (verdicts[i]) retries_[i].emplace(*verdicts[i], MakeChoice(PromptOf(i)));
  }
  for (size_t prompt = 0; prompt < spec_.prompts.size(); ++prompt) {
    std::vector<bool> wanted;
    for (uint32_t i = 0; i < n(); ++i) wanted.push_back(verdicts[prompt * n() + i].has_value());
    if (std::ranges::find(wanted, true) == wanted.end()) continue;
    deps_.workers->Post([self = shared_from_this(), prompt, wanted = std::move(wanted)] {
      self->SubmitRetry(prompt, wanted);
    });
  }
  FinishIfRetried();  // there may be none
}

void CompletionSession::SubmitRetry(size_t prompt, const std::vector<bool>& wanted) {
  Engine& engine = *deps_.model->engine;
  {
    std::lock_guard lock(mutex_);
    if (cancelled_) return;
  }
  // All choices, since the number of a choice is a part of what its random numbers come from.
  const Result<RequestId> id = engine.Submit(MakeRequest({.prompt = prompt, .is_retry = true}));
  if (!id.ok()) {
    return deps_.io->Post([self = shared_from_this(), prompt] { self->FailRetries(prompt); });
  }
  for (uint32_t i = 0; i < n(); ++i) {
    if (!wanted[i]) engine.StopChoice(*id, i);
  }
  bool gone = false;
  {
    std::lock_guard lock(mutex_);
    ids_.push_back(*id);
    gone = cancelled_;
  }
  if (gone) engine.Abort(*id);
}

void CompletionSession::FailRetries(size_t prompt) {
  if (done_) return;
  for (uint32_t i = 0; i < n(); ++i) {
    if (auto& retry = retries_[prompt * n() + i]) retry->failed = true;
  }
  FinishIfRetried();
}

void CompletionSession::HandleRetry(News news) {
  std::optional<Retry>& retry = retries_[news.origin.prompt * n() + news.update.choice];
  if (!retry || retry->ended()) return;
  const auto& finish = news.update.finish;
  // Errors, deadlines and aborts: the first answer was in time.
  retry->failed = finish && *finish != FinishReason::kStop && *finish != FinishReason::kLength;
  if (!retry->failed) Collect(retry->choice, Take(retry->choice, news));
  FinishIfRetried();
}

void CompletionSession::FinishIfRetried() {
  const bool all = std::ranges::all_of(
      retries_, [](const std::optional<Retry>& retry) { return !retry || retry->ended(); });
  if (all) FinishAnswer();
}

void CompletionSession::CountRetries() const {
  for (const std::optional<Retry>& retry : retries_) {
    if (!retry) continue;
    const RetryOutcome outcome = retry->failed                ? RetryOutcome::kFailed
                                 : JudgeChoice(retry->choice) ? RetryOutcome::kSame
                                                              : RetryOutcome::kBetter;
    deps_.record->metrics().CountRetry(retry->reason, outcome);
  }
}

bool CompletionSession::IsRetried(size_t index) const {
  return !retries_.empty() && retries_[index] && !retries_[index]->failed &&
         retries_[index]->ended();
}

const CompletionSession::Choice& CompletionSession::SentChoice(size_t index) const {
  return IsRetried(index) ? retries_[index]->choice : choices_[index];
}

ResponseHead CompletionSession::RetryHead(size_t index) const {
  const KvChoiceInfo& choice = deps_.model->engine->cache_info().choices[*retry_choice_];
  ResponseHead head = spec_.head;
  head.kv_cache_dtype = choice.kv_cache_dtype;
  head.kv_scale = choice.kv_scale;
  head.kv_why = std::string("retry:") + DegenerationName(retries_[index]->reason);
  return head;
}

// Of an answer all of whose choices were retried: that of the first.
ResponseHead CompletionSession::SentHead() const {
  for (size_t i = 0; i < choices_.size(); ++i) {
    if (!IsRetried(i)) return spec_.head;
  }
  return RetryHead(0);
}

}  // namespace masu
