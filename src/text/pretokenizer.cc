#include "text/pretokenizer.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <cstdint>
#include <utility>

#include "text/utf8.h"

namespace masu {
namespace {

struct CodeDeleter {
  void operator()(pcre2_code* code) const { pcre2_code_free(code); }
};
struct MatchDataDeleter {
  void operator()(pcre2_match_data* data) const { pcre2_match_data_free(data); }
};
struct MatchContextDeleter {
  void operator()(pcre2_match_context* context) const { pcre2_match_context_free(context); }
};
using Code = std::unique_ptr<pcre2_code, CodeDeleter>;
using MatchData = std::unique_ptr<pcre2_match_data, MatchDataDeleter>;
using MatchContext = std::unique_ptr<pcre2_match_context, MatchContextDeleter>;

class PcrePreTokenizer final : public PreTokenizer {
 public:
  PcrePreTokenizer(std::vector<Code> codes, MatchContext context)
      : codes_(std::move(codes)), context_(std::move(context)) {}

  std::vector<std::string_view> Split(std::string_view text) const override {
    std::vector<std::string_view> pieces;
    if (!text.empty()) pieces.push_back(text);
    for (const Code& code : codes_) {
      std::vector<std::string_view> next;
      next.reserve(pieces.size());
      MatchData data(pcre2_match_data_create_from_pattern(code.get(), nullptr));
      for (const std::string_view piece : pieces) SplitOne(code.get(), data.get(), piece, &next);
      pieces = std::move(next);
    }
    return pieces;
  }

 private:
  // Length 0 at the end of the piece if nothing matches any more.
  std::pair<size_t, size_t> Find(const pcre2_code* code, pcre2_match_data* data,
                                 std::string_view piece, size_t start) const {
    const auto subject = reinterpret_cast<PCRE2_SPTR>(piece.data());
    int count =
        pcre2_match(code, subject, piece.size(), start, PCRE2_NO_UTF_CHECK, data, context_.get());
    if (count < 0 && count != PCRE2_ERROR_NOMATCH) {
      // The JIT's fixed stack can run out where the interpreter, which uses the heap, does not.
      count = pcre2_match(code, subject, piece.size(), start, PCRE2_NO_UTF_CHECK | PCRE2_NO_JIT,
                          data, context_.get());
    }
    if (count < 0) return {piece.size(), 0};
    const PCRE2_SIZE* range = pcre2_get_ovector_pointer(data);
    return {range[0], range[1] - range[0]};
  }

  void SplitOne(const pcre2_code* code, pcre2_match_data* data, std::string_view piece,
                std::vector<std::string_view>* out) const {
    size_t covered = 0;
    size_t start = 0;
    while (start < piece.size()) {
      const auto [begin, length] = Find(code, data, piece, start);
      if (length == 0) {
        if (begin >= piece.size()) break;
        start = begin + DecodeUtf8(piece.substr(begin)).length;  // an empty match cuts nothing
        continue;
      }
      if (begin > covered) out->push_back(piece.substr(covered, begin - covered));
      out->push_back(piece.substr(begin, length));
      covered = start = begin + length;
    }
    if (covered < piece.size()) out->push_back(piece.substr(covered));
  }

  std::vector<Code> codes_;
  MatchContext context_;
};

}  // namespace

Result<std::unique_ptr<PreTokenizer>> PreTokenizer::Create(
    const std::vector<std::string>& patterns) {
  std::vector<Code> codes;
  for (const std::string& pattern : patterns) {
    int error = 0;
    PCRE2_SIZE offset = 0;
    Code code(pcre2_compile(reinterpret_cast<PCRE2_SPTR>(pattern.data()), pattern.size(),
                            PCRE2_UTF | PCRE2_UCP | PCRE2_DOLLAR_ENDONLY, &error, &offset,
                            nullptr));
    if (!code) {
      return MakeError(ErrorCode::kInternal, "pre-tokenizer pattern fails at {}: PCRE2 error {}",
                       offset, error);
    }
    pcre2_jit_compile(code.get(), PCRE2_JIT_COMPLETE);  // without a JIT the interpreter serves
    codes.push_back(std::move(code));
  }
  MatchContext context(pcre2_match_context_create(nullptr));
  // The patterns backtrack over one run of one class at most, so their work is linear; the default
  // limit of ten million steps would only cut long runs.
  pcre2_set_match_limit(context.get(), UINT32_MAX);
  return std::unique_ptr<PreTokenizer>(
      std::make_unique<PcrePreTokenizer>(std::move(codes), std::move(context)));
}

}  // namespace masu
