#include "quality/long_context.h"

namespace masu {
namespace {

constexpr uint32_t kLengths[] = {512, 1024, 2048};

// Sentences are counted one by one; where they are joined a tokenizer may need a token more.
constexpr uint64_t kSlack = 16;

}  // namespace

Result<std::vector<uint32_t>> ContextLengths(const EvalTaskOptions& options,
                                             const EvalTarget& target) {
  const uint32_t most = target.max_model_len();
  for (const uint32_t length : options.lengths) {
    if (length > most) {
      return InvalidArgument(
          "a context of {} tokens was asked for, the model holds {}; give smaller --lengths or "
          "raise "
          "--max-model-len",
          length, most);
    }
  }
  if (!options.lengths.empty()) return options.lengths;
  std::vector<uint32_t> lengths;
  for (const uint32_t length : kLengths) {
    if (length <= most) lengths.push_back(length);
  }
  if (lengths.empty()) lengths.push_back(most);
  return lengths;
}

Result<uint64_t> FillerRoom(const EvalTarget& target, uint32_t length, uint32_t max_tokens,
                            const Conversation& bare) {
  MASU_ASSIGN_OR_RETURN(const std::vector<TokenId> prompt, EncodeConversation(target, bare));
  const uint64_t taken = prompt.size() + max_tokens + kSlack;
  if (taken > length) {
    return InvalidArgument(
        "a context of {} tokens is shorter than its question, which takes {}; give larger "
        "--lengths",
        length, taken);
  }
  return length - taken;
}

}  // namespace masu
