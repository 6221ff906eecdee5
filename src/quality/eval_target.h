// What an evaluation asks of one setting (an encoding of the KV cache, say) of one model. Tests
// give a fake, `masu eval` an engine.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "base/typed_id.h"
#include "text/chat_template.h"
#include "text/tokenizer.h"

namespace masu {

// The log-likelihood of tokens[first..) given those before: what multiple choice is scored with.
struct ScoreQuery {
  std::vector<TokenId> tokens;  // at least first + 1
  uint32_t first = 1;           // at least 1
};
struct ScoreResult {
  double log_likelihood = 0;  // sum of natural logs over the scored tokens
  bool greedy = false;        // each of them is the likeliest at its place
};

// Greedy generation.
struct GenerateQuery {
  std::vector<TokenId> prompt;
  uint32_t max_tokens = 256;
  std::vector<std::string> stop = {};  // not part of the answer; tokens behind it are not generated
};
struct GenerateResult {
  std::vector<TokenId> tokens;
  std::string text;
  bool stopped = false;       // by a stop string or an end token; false: by max_tokens
  double log_likelihood = 0;  // of the generated tokens
};

class EvalTarget {
 public:
  // `done` of `total` queries; called on the calling thread.
  using Progress = std::function<void(size_t done, size_t total)>;

  virtual ~EvalTarget() = default;
  virtual const Tokenizer& tokenizer() const = 0;
  virtual const ChatTemplate* chat_template() const = 0;  // nullptr if the model has none
  virtual uint32_t max_model_len() const = 0;             // tokens, prompt and answer together
  // Results in the order of the queries. Errors: a query that does not fit max_model_len().
  virtual Result<std::vector<ScoreResult>> Score(std::span<const ScoreQuery> queries,
                                                 const Progress& progress) = 0;
  virtual Result<std::vector<GenerateResult>> Generate(std::span<const GenerateQuery> queries,
                                                       const Progress& progress) = 0;
};

}  // namespace masu
