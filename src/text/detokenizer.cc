#include "text/detokenizer.h"

#include <utility>

#include "text/utf8.h"

namespace masu {

Detokenizer::Detokenizer(const Tokenizer& tokenizer, bool skip_special)
    : tokenizer_(tokenizer), skip_special_(skip_special) {}

std::string Detokenizer::Push(TokenId id) {
  if (!tokenizer_.IsValid(id) || (skip_special_ && tokenizer_.IsControl(id))) return {};
  std::string out;
  AppendDecided(tokenizer_.TokenBytes(id), &pending_, &out);
  return out;
}

std::string Detokenizer::Flush() {
  if (std::exchange(pending_, {}).empty()) return {};
  return std::string(kReplacementCharacter);
}

}  // namespace masu
