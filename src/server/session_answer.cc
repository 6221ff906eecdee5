// The part of CompletionSession that writes: chunks of a stream, and whole answers.
#include "server/completion_session.h"
#include "server/logprobs_json.h"
#include "server/sse.h"

namespace masu {

void CompletionSession::OpenStream() {
  if (streaming_) return;
  streaming_ = true;
  deps_.exchange->StartStream(200, std::string(kSseContentType),
                              {{"Cache-Control", "no-cache"}, {"X-Accel-Buffering", "no"}});
  if (!spec_.request.chat) return;
  for (size_t i = 0; i < choices_.size(); ++i) {
    Json chunk = ChunkBody(spec_.head, Json::array({RoleChoice(static_cast<uint32_t>(i))}));
    if (spec_.request.return_token_ids) {
      chunk["prompt_token_ids"] = spec_.prompts[PromptOf(i)].tokens;
    }
    if (spec_.request.continuous_usage) {
      chunk["usage"] = UsageJson(UsageOf(i, 0));
    }
    SendEvent(chunk);
  }
}

void CompletionSession::SendEvent(const Json& json) {
  last_write_ = Clock::now();
  deps_.exchange->Write(SseEvent(json));
}

void CompletionSession::KeepAlive(std::chrono::seconds interval) {
  if (done_ || !spec_.request.stream || Clock::now() - last_write_ < interval) return;
  {
    std::lock_guard lock(mutex_);
    if (!submitted_) return;  // may still be refused, with a status of its own
  }
  OpenStream();
  last_write_ = Clock::now();
  deps_.exchange->Write(std::string(kSseKeepAlive));
}

// What the first chunk of a choice carries before anything was generated: the echoed prompt.
ChoicePart CompletionSession::EchoPart(size_t index) {
  const BuiltPrompt& prompt = spec_.prompts[PromptOf(index)];
  ChoicePart part;
  part.index = static_cast<uint32_t>(index);
  if (spec_.request.echo) part.text = prompt.text;
  if (spec_.request.return_token_ids && !spec_.request.chat) part.prompt_token_ids = prompt.tokens;
  return part;
}

Json CompletionSession::StreamLogprobs(size_t index, const ChoiceDelta& delta) {
  if (!WantsLogprobs()) return nullptr;
  const Tokenizer& tokenizer = *deps_.model->tokenizer;
  const uint32_t top = *spec_.request.sampling.logprobs;
  const bool as_ids = spec_.request.tokens_as_token_ids;
  if (spec_.request.chat) {
    if (delta.tokens.empty()) return nullptr;
    Json content = Json::array();
    for (const TokenOutput& token : delta.tokens) {
      content.push_back(ChatLogprob(tokenizer, token, top, as_ids));
    }
    return {{"content", std::move(content)}};
  }
  LegacyLogprobs logprobs(tokenizer, top, as_ids);
  if (!choices_[index].begun && spec_.request.echo) AddPromptLogprobs(PromptOf(index), &logprobs);
  for (size_t i = 0; i < delta.tokens.size(); ++i) {
    logprobs.Add(delta.tokens[i], delta.text_offsets[i]);
  }
  return logprobs.Take();
}

void CompletionSession::StreamDelta(size_t index, const ChoiceDelta& delta) {
  OpenStream();
  Choice& choice = choices_[index];
  const bool has_echo = !choice.begun && spec_.request.echo;
  const bool has_tokens =
      !delta.tokens.empty() && (WantsLogprobs() || spec_.request.return_token_ids);
  // Text that is held back, or half a character: nothing to say yet.
  if (delta.text.empty() && !delta.finish && !has_tokens && !has_echo) return;
  ChoicePart part;
  part.index = static_cast<uint32_t>(index);
  if (!choice.begun) part = EchoPart(index);
  part.text += delta.text;
  part.logprobs = StreamLogprobs(index, delta);
  part.token_ids = TokenIds(delta.tokens);
  part.finish = delta.finish;
  if (delta.finish) part.stop_reason = StopReason(choice.text);
  choice.begun = true;
  Json chunk = ChunkBody(spec_.head, Json::array({ChunkChoice(spec_.head, std::move(part))}));
  if (delta.finish) AddMasuObject(spec_.head, &chunk);
  if (spec_.request.continuous_usage) {
    chunk["usage"] = UsageJson(UsageOf(index, CountedTokens(choice.text)));
  }
  SendEvent(chunk);
}

void CompletionSession::FinishStream() {
  if (spec_.request.include_usage) {
    Json chunk = ChunkBody(spec_.head, Json::array());
    chunk["usage"] = UsageJson(TotalUsage());
    AddMasuObject(spec_.head, &chunk);
    SendEvent(chunk);
  }
  deps_.exchange->Write(std::string(kSseDone));
  deps_.exchange->Finish();
  End(EndOutcome());
}

void CompletionSession::AddPromptLogprobs(size_t prompt, LegacyLogprobs* logprobs) const {
  const BuiltPrompt& built = spec_.prompts[prompt];
  Detokenizer detokenizer(*deps_.model->tokenizer, spec_.request.skip_special_tokens);
  uint64_t offset = 0;
  logprobs->AddFirst(built.tokens.front(), 0);
  offset += CountCharacters(detokenizer.Push(built.tokens.front()));
  for (const TokenOutput& token : prompt_logprobs_[prompt]) {
    logprobs->Add(token, offset);
    offset += CountCharacters(detokenizer.Push(token.token));
  }
}

ChoicePart CompletionSession::AnswerPart(size_t index) const {
  const GenerationRequest& request = spec_.request;
  const Choice& choice = SentChoice(index);
  const BuiltPrompt& prompt = spec_.prompts[PromptOf(index)];
  const Tokenizer& tokenizer = *deps_.model->tokenizer;
  ChoicePart part;
  part.index = static_cast<uint32_t>(index);
  part.text = request.echo ? prompt.text + choice.answer : choice.answer;
  part.finish = choice.text.finish();
  part.stop_reason = StopReason(choice.text);
  part.token_ids = TokenIds(choice.tokens);
  if (request.return_token_ids) part.prompt_token_ids = prompt.tokens;
  if (request.sampling.prompt_logprobs) {
    part.prompt_logprobs = PromptLogprobs(tokenizer, prompt_logprobs_[PromptOf(index)],
                                          *request.sampling.prompt_logprobs);
  }
  if (!WantsLogprobs()) return part;
  const uint32_t top = *request.sampling.logprobs;
  if (request.chat) {
    Json content = Json::array();
    for (const TokenOutput& token : choice.tokens) {
      content.push_back(ChatLogprob(tokenizer, token, top, request.tokens_as_token_ids));
    }
    part.logprobs = {{"content", std::move(content)}};
    return part;
  }
  LegacyLogprobs logprobs(tokenizer, top, request.tokens_as_token_ids);
  if (request.echo) AddPromptLogprobs(PromptOf(index), &logprobs);
  for (size_t i = 0; i < choice.tokens.size(); ++i) {
    logprobs.Add(choice.tokens[i], choice.offsets[i]);
  }
  part.logprobs = logprobs.Take();
  return part;
}

void CompletionSession::SendAnswer() const {
  const ResponseHead head = SentHead();
  Json choices = Json::array();
  Json prompt_logprobs;
  for (size_t i = 0; i < choices_.size(); ++i) {
    ChoicePart part = AnswerPart(i);
    if (head.chat) prompt_logprobs = std::move(part.prompt_logprobs);
    choices.push_back(AnswerChoice(head, std::move(part)));
    if (IsRetried(i)) AddMasuObject(RetryHead(i), &choices.back());
  }
  Json body = AnswerBody(head, std::move(choices), TotalUsage());
  if (head.chat) {
    if (!prompt_logprobs.is_null()) body["prompt_logprobs"] = std::move(prompt_logprobs);
    if (spec_.request.return_token_ids) body["prompt_token_ids"] = spec_.prompts.front().tokens;
  }
  deps_.exchange->Send({.status = 200, .body = DumpJson(body)});
}

}  // namespace masu
