// One choice's way from tokens to text: detokenizes, finds stop strings, counts. Not thread-safe.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "engine/request.h"
#include "text/detokenizer.h"
#include "text/stop_matcher.h"

namespace masu {

struct ChoiceTextOptions {
  std::vector<std::string> stop = {};
  bool include_stop = false;  // keep the stop string, or the stop token's text, in the answer
  bool skip_special_tokens = true;
  uint32_t min_tokens = 0;  // stop strings are not looked for among the first so many tokens
  std::vector<TokenId> stop_token_ids = {};
};

// What one update adds to the answer.
struct ChoiceDelta {
  std::string text;
  std::vector<TokenOutput> tokens;     // those that count
  std::vector<uint64_t> text_offsets;  // of each token, in characters of the choice's text
  std::optional<FinishReason> finish;  // set once
  bool stopped_by_string = false;      // the engine does not know yet: Engine::StopChoice
};

class ChoiceText {
 public:
  ChoiceText(const Tokenizer& tokenizer, const ChoiceTextOptions& options);

  // Tokens after a stop string are dropped and not counted. After a finish nothing comes any more.
  ChoiceDelta Push(ChoiceUpdate update);

  bool finished() const { return finish_.has_value(); }
  std::optional<FinishReason> finish() const { return finish_; }
  uint32_t num_tokens() const { return num_tokens_; }
  // What `stop_reason` says: the stop string, or the token of stop_token_ids, or neither (EOS).
  const std::optional<std::string>& stop_string() const { return stop_string_; }
  std::optional<TokenId> stop_token() const { return stop_token_; }

 private:
  void Release(std::string_view piece, ChoiceDelta* delta);
  bool MatchedString(ChoiceDelta* delta);
  void Finish(const ChoiceUpdate& update, ChoiceDelta* delta);

  ChoiceTextOptions options_;
  Detokenizer detokenizer_;
  StopMatcher stops_;
  uint32_t num_tokens_ = 0;
  uint64_t characters_ = 0;  // decoded so far, held back or not
  std::optional<FinishReason> finish_;
  std::optional<std::string> stop_string_;
  std::optional<TokenId> stop_token_;
};

// Code points of valid UTF-8: what Python's len() and text_offset count.
uint64_t CountCharacters(std::string_view text);

}  // namespace masu
