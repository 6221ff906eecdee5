#include "engine/choice_text.h"

#include <algorithm>

namespace masu {

uint64_t CountCharacters(std::string_view text) {
  uint64_t count = 0;
  for (const char c : text) count += (static_cast<unsigned char>(c) & 0xC0) != 0x80;
  return count;
}

ChoiceText::ChoiceText(const Tokenizer& tokenizer, const ChoiceTextOptions& options)
    : options_(options),
      detokenizer_(tokenizer, options.skip_special_tokens),
      stops_(options.stop, options.include_stop) {}

ChoiceDelta ChoiceText::Push(ChoiceUpdate update) {
  ChoiceDelta delta;
  if (finished()) return delta;
  for (size_t i = 0; i < update.tokens.size(); ++i) {
    TokenOutput& token = update.tokens[i];
    ++num_tokens_;
    delta.text_offsets.push_back(characters_);
    const bool stop_token = update.stop_token && i + 1 == update.tokens.size();
    // The text of the token that ended the answer is not part of it, unless asked for.
    std::string piece;
    if (!stop_token || options_.include_stop) piece = detokenizer_.Push(token.token);
    delta.tokens.push_back(std::move(token));
    Release(piece, &delta);
    if (MatchedString(&delta)) {
      delta.stopped_by_string = !update.finish;
      return delta;
    }
  }
  if (update.finish) Finish(update, &delta);
  return delta;
}

void ChoiceText::Release(std::string_view piece, ChoiceDelta* delta) {
  characters_ += CountCharacters(piece);
  if (num_tokens_ <= options_.min_tokens) {
    delta->text += piece;
  } else {
    delta->text += stops_.Push(piece);
  }
}

bool ChoiceText::MatchedString(ChoiceDelta* delta) {
  if (!stops_.match()) return false;
  stop_string_ = options_.stop[stops_.match()->stop_index];
  finish_ = delta->finish = FinishReason::kStop;
  return true;
}

void ChoiceText::Finish(const ChoiceUpdate& update, ChoiceDelta* delta) {
  Release(detokenizer_.Flush(), delta);
  delta->text += stops_.Flush();
  if (MatchedString(delta)) return;
  finish_ = delta->finish = update.finish;
  const auto& asked = options_.stop_token_ids;
  if (update.stop_token &&
      std::find(asked.begin(), asked.end(), *update.stop_token) != asked.end()) {
    stop_token_ = update.stop_token;
  }
}

}  // namespace masu
