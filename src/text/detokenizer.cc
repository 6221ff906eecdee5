#include "text/detokenizer.h"

#include <utility>

#include "text/utf8.h"

namespace masu {

Detokenizer::Detokenizer(const Tokenizer& tokenizer, bool skip_special, TextPosition position)
    : tokenizer_(tokenizer), skip_special_(skip_special), first_(position == TextPosition::kStart) {
  if (first_) strip_ = tokenizer.leading_strip();
}

std::string Detokenizer::Push(TokenId id) {
  if (!tokenizer_.IsValid(id) || (skip_special_ && tokenizer_.IsControl(id))) return {};
  const bool first = std::exchange(first_, false);
  std::string out;
  AppendDecided(first ? tokenizer_.FirstTokenBytes(id) : tokenizer_.TokenBytes(id), &pending_,
                &out);
  if (strip_.count > 0) StripLeading(&out);
  return out;
}

void Detokenizer::StripLeading(std::string* text) {
  while (strip_.count > 0 && !text->empty()) {
    if (!text->starts_with(strip_.content)) {
      strip_.count = 0;
      return;
    }
    text->erase(0, strip_.content.size());
    --strip_.count;
  }
}

std::string Detokenizer::Flush() {
  if (std::exchange(pending_, {}).empty()) return {};
  return std::string(kReplacementCharacter);
}

}  // namespace masu
