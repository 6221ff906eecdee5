#include "server/logprobs_json.h"

#include <algorithm>
#include <cmath>

#include "text/utf8.h"

namespace masu {
namespace {

Json ByteList(std::string_view bytes) {
  Json list = Json::array();
  for (const char c : bytes) list.push_back(static_cast<unsigned char>(c));
  return list;
}

std::span<const TokenLogprob> TopOf(const TokenOutput& token, uint32_t top) {
  return std::span(token.top).first(std::min<size_t>(top, token.top.size()));
}

}  // namespace

double FiniteLogprob(float logprob) {
  return std::isfinite(logprob) ? std::max(logprob, kLogprobFloor) : kLogprobFloor;
}

std::string TokenLabel(const Tokenizer& tokenizer, TokenId id, bool as_ids) {
  if (as_ids || !tokenizer.IsValid(id)) return fmt::format("token_id:{}", id);
  std::string bytes = tokenizer.TokenBytes(id);
  if (ValidUtf8Prefix(bytes) == bytes.size()) return bytes;
  std::string label = "bytes:";
  for (const char c : bytes) {
    label += fmt::format("\\x{:02x}", static_cast<unsigned char>(c));
  }
  return label;
}

void LegacyLogprobs::AddFirst(TokenId id, uint64_t text_offset) {
  offsets_.push_back(text_offset);
  logprobs_.push_back(nullptr);
  tokens_.push_back(TokenLabel(tokenizer_, id, as_ids_));
  tops_.push_back(nullptr);
}

void LegacyLogprobs::Add(const TokenOutput& token, uint64_t text_offset) {
  offsets_.push_back(text_offset);
  logprobs_.push_back(FiniteLogprob(token.logprob));
  const std::string label = TokenLabel(tokenizer_, token.token, as_ids_);
  Json top = Json::object();
  for (const TokenLogprob& entry : TopOf(token, top_)) {
    // Two tokens may have the same text: the likelier one keeps the key.
    const std::string key = TokenLabel(tokenizer_, entry.token, as_ids_);
    if (!top.contains(key)) top[key] = FiniteLogprob(entry.logprob);
  }
  // The sampled token is always there, as in the OpenAI API (so up to top + 1 entries).
  if (!top.contains(label)) top[label] = FiniteLogprob(token.logprob);
  tops_.push_back(std::move(top));
  tokens_.push_back(label);
}

Json LegacyLogprobs::Take() {
  return {{"text_offset", std::exchange(offsets_, Json::array())},
          {"token_logprobs", std::exchange(logprobs_, Json::array())},
          {"tokens", std::exchange(tokens_, Json::array())},
          {"top_logprobs", std::exchange(tops_, Json::array())}};
}

Json ChatLogprob(const Tokenizer& tokenizer, const TokenOutput& token, uint32_t top, bool as_ids) {
  const auto entry = [&](TokenId id, float logprob) {
    Json json = {{"token", TokenLabel(tokenizer, id, as_ids)},
                 {"logprob", FiniteLogprob(logprob)},
                 {"bytes", nullptr}};
    if (tokenizer.IsValid(id)) json["bytes"] = ByteList(tokenizer.TokenBytes(id));
    return json;
  };
  Json json = entry(token.token, token.logprob);
  Json tops = Json::array();
  for (const TokenLogprob& likely : TopOf(token, top)) {
    tops.push_back(entry(likely.token, likely.logprob));
  }
  json["top_logprobs"] = std::move(tops);
  return json;
}

Json PromptLogprobs(const Tokenizer& tokenizer, std::span<const TokenOutput> tokens, uint32_t top) {
  Json list = Json::array();
  list.push_back(nullptr);
  for (const TokenOutput& token : tokens) {
    const auto entry = [&](TokenId id, float logprob, uint32_t rank) {
      return Json{{"logprob", FiniteLogprob(logprob)},
                  {"rank", rank},
                  {"decoded_token", TokenLabel(tokenizer, id, false)}};
    };
    Json object = Json::object();
    object[std::to_string(token.token)] = entry(token.token, token.logprob, token.rank);
    uint32_t rank = 0;
    for (const TokenLogprob& likely : TopOf(token, top)) {
      ++rank;
      const std::string key = std::to_string(likely.token);
      if (!object.contains(key)) object[key] = entry(likely.token, likely.logprob, rank);
    }
    list.push_back(std::move(object));
  }
  return list;
}

}  // namespace masu
