// A tokenizer of bytes and of the pieces that a test names.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "text/tokenizer.h"

namespace masu {

// Ids 0 to 255 are bytes, 256 is BOS, 257 is EOS, from 258 on the given pieces.
class FakeTokenizer : public Tokenizer {
 public:
  static constexpr TokenId kBos = 256, kEos = 257, kFirstPiece = 258;
  explicit FakeTokenizer(std::vector<std::string> pieces = {}, bool has_bos = true)
      : pieces_(std::move(pieces)), has_bos_(has_bos) {}

  std::vector<TokenId> Encode(std::string_view text, EncodeOptions options) const override {
    std::vector<TokenId> ids;
    if (options.add_special && has_bos_) ids.push_back(kBos);
    for (const char c : text) ids.push_back(static_cast<unsigned char>(c));
    return ids;
  }
  std::vector<TokenId> EncodeSegments(std::span<const TextSegment> segments,
                                      bool add_special) const override {
    std::string text;
    for (const TextSegment& segment : segments) text += segment.text;
    return Encode(text, {.add_special = add_special});
  }
  uint32_t vocab_size() const override {
    return static_cast<uint32_t>(kFirstPiece + pieces_.size());
  }
  bool IsValid(TokenId id) const override {
    return id >= 0 && id < static_cast<TokenId>(vocab_size());
  }
  bool IsControl(TokenId id) const override { return id == kBos || id == kEos; }
  std::string TokenBytes(TokenId id) const override {
    if (id == kBos) return "<s>";
    if (id == kEos) return "</s>";
    if (id < kBos) return std::string(1, static_cast<char>(id));
    return pieces_.at(static_cast<size_t>(id - kFirstPiece));
  }
  std::string TokenPiece(TokenId id) const override { return TokenBytes(id); }
  std::optional<TokenId> FindToken(std::string_view) const override { return std::nullopt; }
  std::string Decode(std::span<const TokenId> ids, bool skip_special) const override {
    std::string text;
    for (const TokenId id : ids) {
      if (!skip_special || !IsControl(id)) text += TokenBytes(id);
    }
    return text;
  }
  std::optional<TokenId> bos() const override {
    return has_bos_ ? std::optional<TokenId>(kBos) : std::nullopt;
  }
  std::span<const TokenId> end_of_generation() const override { return ends_; }
  std::optional<TokenId> eos() const override { return kEos; }

 private:
  std::vector<std::string> pieces_;
  bool has_bos_;
  std::vector<TokenId> ends_ = {kEos};
};

inline std::vector<TokenId> BytesOf(std::string_view text) {
  std::vector<TokenId> ids;
  for (const char c : text) ids.push_back(static_cast<unsigned char>(c));
  return ids;
}

}  // namespace masu
