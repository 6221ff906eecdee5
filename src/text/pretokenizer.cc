#include "text/pretokenizer.h"

#include <utility>

#include "text/regex.h"

namespace masu {
namespace {

class RegexPreTokenizer final : public PreTokenizer {
 public:
  explicit RegexPreTokenizer(std::vector<std::unique_ptr<Regex>> patterns)
      : patterns_(std::move(patterns)) {}

  std::vector<std::string_view> Split(std::string_view text) const override {
    std::vector<std::string_view> pieces;
    if (!text.empty()) pieces.push_back(text);
    for (const auto& pattern : patterns_) {
      std::vector<std::string_view> next;
      next.reserve(pieces.size());
      for (const std::string_view piece : pieces) SplitOne(*pattern, piece, &next);
      pieces = std::move(next);
    }
    return pieces;
  }

 private:
  static void SplitOne(const Regex& pattern, std::string_view piece,
                       std::vector<std::string_view>* out) {
    size_t covered = 0;
    const auto cut = [&](size_t end) {
      if (end > covered) out->push_back(piece.substr(covered, end - covered));
      covered = end;
    };
    for (const TextRange& match : pattern.FindAll(piece)) {
      cut(match.begin);
      cut(match.end);
    }
    cut(piece.size());
  }

  std::vector<std::unique_ptr<Regex>> patterns_;
};

}  // namespace

Result<std::unique_ptr<PreTokenizer>> PreTokenizer::Create(
    const std::vector<std::string>& patterns) {
  std::vector<std::unique_ptr<Regex>> compiled;
  for (const std::string& pattern : patterns) {
    MASU_ASSIGN_OR_RETURN(auto regex, Regex::Compile(pattern));
    compiled.push_back(std::move(regex));
  }
  return std::unique_ptr<PreTokenizer>(std::make_unique<RegexPreTokenizer>(std::move(compiled)));
}

}  // namespace masu
