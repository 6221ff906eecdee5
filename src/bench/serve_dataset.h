// The prompts of a load test.
#pragma once

#include <string>
#include <variant>
#include <vector>

#include "base/result.h"
#include "base/typed_id.h"
#include "bench/serve_options.h"
#include "text/tokenizer.h"

namespace masu {

struct BenchPrompt {
  std::variant<std::string, std::vector<TokenId>> content = {};
  uint32_t num_tokens = 0;  // of the prompt; an estimate for text without a tokenizer
  uint32_t max_tokens = 0;  // of the answer
};

struct BenchPrompts {
  std::vector<BenchPrompt> prompts = {};
  std::vector<std::string> notes = {};  // lines that the user should know
};

// The built-in lengths of `sharegpt` without a file: log-normal, cut as the file's are. The medians
// are chosen so that the means after the cut are those that Kwon et al. (PagedAttention, SOSP 2023,
// figure 11) report for ShareGPT, 161 and 338 tokens; the spreads are ours.
struct ShareGptLengths {
  static constexpr double kPromptMedian = 99.8;
  static constexpr double kPromptSigma = 1.2;  // of the logarithm
  static constexpr double kOutputMedian = 233.5;
  static constexpr double kOutputSigma = 1.0;
};

// `count` prompts. `tokenizer` may be null. Random ones are lists of token ids, so that their
// lengths are exact whatever tokenizer the server has. Errors: a file that cannot be read or does
// not hold what its format asks for, named with the line.
Result<BenchPrompts> MakePrompts(const ServeDatasetOptions& options, size_t count, uint64_t seed,
                                 const Tokenizer* tokenizer);

}  // namespace masu
