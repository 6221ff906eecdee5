#include "quality/prompt_tokens.h"

#include <algorithm>

namespace masu {

std::vector<TokenId> EncodePrompt(const Tokenizer& tokenizer, std::string_view text) {
  std::vector<TokenId> tokens = tokenizer.Encode("", {.add_special = true});
  const auto eos = std::find_if(tokens.begin(), tokens.end(), [&](TokenId token) {
    return token == tokenizer.eos() && token != tokenizer.bos();
  });
  tokens.erase(eos, tokens.end());
  const std::vector<TokenId> own = tokenizer.Encode(text, {.add_special = false});
  tokens.insert(tokens.end(), own.begin(), own.end());
  return tokens;
}

ScoreQuery EncodePair(const Tokenizer& tokenizer, std::string_view context,
                      std::string_view continuation, uint32_t max_tokens) {
  const size_t last = context.find_last_not_of(" \t\n\r\f\v");
  const size_t end = last == std::string_view::npos ? 0 : last + 1;
  std::string whole(context);
  whole += continuation;
  ScoreQuery query;
  std::vector<TokenId> before = EncodePrompt(tokenizer, context.substr(0, end));
  query.tokens = EncodePrompt(tokenizer, whole);
  if (before.empty()) {
    const TokenId begin = tokenizer.bos().value_or(tokenizer.eos().value_or(0));
    before.push_back(begin);
    query.tokens.insert(query.tokens.begin(), begin);
  }
  // A continuation that melts into the context's last token leaves that token to be scored.
  size_t first = std::clamp<size_t>(before.size(), 1, std::max<size_t>(2, query.tokens.size()) - 1);
  if (query.tokens.size() > max_tokens) {
    const size_t cut = query.tokens.size() - max_tokens;
    query.tokens.erase(query.tokens.begin(), query.tokens.begin() + static_cast<ptrdiff_t>(cut));
    first = first > cut + 1 ? first - cut : 1;
  }
  query.first = static_cast<uint32_t>(first);
  return query;
}

GenerateQuery MakeGenerateQuery(const EvalTarget& target, std::string_view prompt,
                                uint32_t max_tokens, std::vector<std::string> stop) {
  const uint32_t room = target.max_model_len();
  GenerateQuery query{.prompt = EncodePrompt(target.tokenizer(), prompt),
                      .max_tokens = max_tokens,
                      .stop = std::move(stop)};
  if (query.prompt.size() + max_tokens <= room) return query;
  query.max_tokens = std::min(max_tokens, std::max(1U, room / 2));
  const size_t longest = room - query.max_tokens;
  if (query.prompt.size() > longest) {
    query.prompt.erase(query.prompt.begin(), query.prompt.end() - static_cast<ptrdiff_t>(longest));
  }
  return query;
}

}  // namespace masu
