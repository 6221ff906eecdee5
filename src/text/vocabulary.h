// The vocabulary of a GGUF file: pieces, their kinds, and the special ids. Immutable after loading.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/result.h"
#include "base/typed_id.h"
#include "checkpoint/gguf.h"

namespace masu {

// Numbers as in tokenizer.ggml.token_type.
enum class TokenKind : uint8_t {
  kNormal = 1,
  kUnknown = 2,
  kControl = 3,
  kUserDefined = 4,
  kUnused = 5,
  kByte = 6,
};

struct Vocabulary {
  std::vector<std::string> pieces;
  std::vector<TokenKind> kinds;
  std::unordered_map<std::string_view, TokenId> ids;  // views into `pieces`
  std::optional<TokenId> bos;
  std::optional<TokenId> eos;
  std::optional<TokenId> unknown;
  std::vector<TokenId> end_of_generation;
  std::optional<bool> add_bos;
  std::optional<bool> add_eos;

  // Behind a pointer, since `ids` refers to `pieces`.
  static Result<std::unique_ptr<Vocabulary>> FromGguf(const GgufFile& file);

  std::optional<TokenId> Find(std::string_view piece) const;
  bool IsValid(TokenId id) const { return id >= 0 && static_cast<size_t>(id) < pieces.size(); }
  // Tokens that steer the model and never are text of a user.
  bool IsControl(TokenId id) const {
    if (!IsValid(id)) return false;
    const TokenKind kind = kinds[static_cast<size_t>(id)];
    return kind == TokenKind::kControl || kind == TokenKind::kUnknown;
  }
};

}  // namespace masu
