#include "text/token_decoder.h"

#include <utility>

#include "text/byte_level.h"
#include "text/text_model.h"

namespace masu {
namespace {

class ReplaceEdit final : public TokenEdit {
 public:
  ReplaceEdit(std::unique_ptr<Regex> pattern, std::string by)
      : pattern_(std::move(pattern)), by_(std::move(by)) {}
  std::string Apply(std::string token, bool) const override {
    std::string out;
    size_t covered = 0;
    for (const TextRange& match : pattern_->FindAll(token)) {
      out.append(token, covered, match.begin - covered).append(by_);
      covered = match.end;
    }
    return out.append(token, covered);
  }

 private:
  std::unique_ptr<Regex> pattern_;
  std::string by_;
};

class StripEdit final : public TokenEdit {
 public:
  StripEdit(std::string content, size_t start, size_t stop)
      : content_(std::move(content)), start_(start), stop_(stop) {}
  std::string Apply(std::string token, bool) const override {
    std::string_view rest = token;
    for (size_t i = 0; i < start_ && rest.starts_with(content_); ++i) {
      rest.remove_prefix(content_.size());
    }
    for (size_t i = 0; i < stop_ && rest.ends_with(content_); ++i) {
      rest.remove_suffix(content_.size());
    }
    return std::string(rest);
  }

 private:
  std::string content_;
  size_t start_;
  size_t stop_;
};

class MetaspaceEdit final : public TokenEdit {
 public:
  MetaspaceEdit(const std::string& mark, bool drop_first)
      : pattern_(Regex::Literal(mark)), drop_first_(drop_first) {}
  std::string Apply(std::string token, bool first) const override {
    std::string out;
    size_t covered = 0;
    for (const TextRange& match : pattern_->FindAll(token)) {
      out.append(token, covered, match.begin - covered);
      if (!(first && drop_first_)) out += ' ';
      covered = match.end;
    }
    return out.append(token, covered);
  }

 private:
  std::unique_ptr<Regex> pattern_;
  bool drop_first_;
};

}  // namespace

std::unique_ptr<TokenEdit> MakeReplaceEdit(std::unique_ptr<Regex> pattern, std::string by) {
  return std::make_unique<ReplaceEdit>(std::move(pattern), std::move(by));
}
std::unique_ptr<TokenEdit> MakeStripEdit(std::string content, size_t start, size_t stop) {
  return std::make_unique<StripEdit>(std::move(content), start, stop);
}
std::unique_ptr<TokenEdit> MakeMetaspaceEdit(const std::string& mark, bool drop_first) {
  return std::make_unique<MetaspaceEdit>(mark, drop_first);
}

std::string TokenDecoder::Bytes(std::string_view piece, bool added, bool first) const {
  std::string token(piece);
  for (const auto& edit : edits) token = edit->Apply(std::move(token), first);
  if (byte_fallback) {
    if (const auto byte = ParseByteToken(token)) return std::string(1, static_cast<char>(*byte));
  }
  if (byte_level && !added && IsByteLevel(token)) token = FromByteLevel(token);
  return first ? token : separator + token;
}

}  // namespace masu
