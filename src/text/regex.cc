#include "text/regex.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <algorithm>
#include <cstdint>
#include <utility>

#include "text/utf8.h"

namespace masu {
namespace {

struct CodeDeleter {
  void operator()(pcre2_code* code) const { pcre2_code_free(code); }
};
struct CompileContextDeleter {
  void operator()(pcre2_compile_context* context) const { pcre2_compile_context_free(context); }
};
struct MatchDataDeleter {
  void operator()(pcre2_match_data* data) const { pcre2_match_data_free(data); }
};
struct MatchContextDeleter {
  void operator()(pcre2_match_context* context) const { pcre2_match_context_free(context); }
};
using Code = std::unique_ptr<pcre2_code, CodeDeleter>;
using CompileContext = std::unique_ptr<pcre2_compile_context, CompileContextDeleter>;
using MatchData = std::unique_ptr<pcre2_match_data, MatchDataDeleter>;
using MatchContext = std::unique_ptr<pcre2_match_context, MatchContextDeleter>;

// What one match may cost. Patterns of real tokenizers backtrack over one run of one class at most,
// a few steps per byte; a pattern that needs more would never come to an end.
constexpr uint64_t kStepsPerMatch = 100'000;
constexpr uint64_t kStepsPerByte = 16;
constexpr uint64_t kMaxSteps = UINT32_MAX;
// Frames of the interpreter, in KiB: a few hundred bytes for each byte of a text of 1 MB.
constexpr uint32_t kHeapLimitKib = 512 * 1024;

class PcreRegex final : public Regex {
 public:
  explicit PcreRegex(Code code) : code_(std::move(code)) {}

  std::vector<TextRange> FindAll(std::string_view text) const override {
    std::vector<TextRange> found;
    const MatchData data(pcre2_match_data_create_from_pattern(code_.get(), nullptr));
    const MatchContext context(pcre2_match_context_create(nullptr));
    const uint64_t steps = std::min(kMaxSteps, kStepsPerMatch + kStepsPerByte * text.size());
    pcre2_set_match_limit(context.get(), static_cast<uint32_t>(steps));
    pcre2_set_heap_limit(context.get(), kHeapLimitKib);
    size_t start = 0;
    size_t last_end = SIZE_MAX;
    while (start <= text.size()) {
      TextRange match;
      if (!Find(text, start, data.get(), context.get(), &match)) break;
      if (match.begin == match.end && match.end == last_end) {
        if (start >= text.size()) break;
        start += DecodeUtf8(text.substr(start)).length;
        last_end = SIZE_MAX;
        continue;
      }
      found.push_back(match);
      start = last_end = match.end;
    }
    return found;
  }

 private:
  bool Find(std::string_view text, size_t start, pcre2_match_data* data,
            pcre2_match_context* context, TextRange* match) const {
    const auto subject = reinterpret_cast<PCRE2_SPTR>(text.data());
    int count =
        pcre2_match(code_.get(), subject, text.size(), start, PCRE2_NO_UTF_CHECK, data, context);
    if (count == PCRE2_ERROR_JIT_STACKLIMIT) {
      // The JIT's fixed stack can run out where the interpreter, which uses the heap, does not.
      count = pcre2_match(code_.get(), subject, text.size(), start,
                          PCRE2_NO_UTF_CHECK | PCRE2_NO_JIT, data, context);
    }
    if (count < 0) return false;
    const PCRE2_SIZE* range = pcre2_get_ovector_pointer(data);
    // \K could put the end before the begin; TranslateRegex refuses it.
    *match = {range[0], range[1]};
    return range[0] <= range[1];
  }

  Code code_;
};

class LiteralRegex final : public Regex {
 public:
  explicit LiteralRegex(std::string_view text) : text_(text) {}

  std::vector<TextRange> FindAll(std::string_view text) const override {
    std::vector<TextRange> found;
    if (text_.empty()) return found;
    size_t begin = 0;
    while ((begin = text.find(text_, begin)) != std::string_view::npos) {
      found.push_back({begin, begin + text_.size()});
      begin += text_.size();
    }
    return found;
  }

 private:
  std::string text_;
};

}  // namespace

Result<std::unique_ptr<Regex>> Regex::Compile(std::string_view oniguruma) {
  MASU_ASSIGN_OR_RETURN(const std::string pattern, TranslateRegex(oniguruma));
  const CompileContext context(pcre2_compile_context_create(nullptr));
  pcre2_set_newline(context.get(), PCRE2_NEWLINE_LF);
  constexpr uint32_t kMaxNesting = 50;
  pcre2_set_parens_nest_limit(context.get(), kMaxNesting);
  int error = 0;
  PCRE2_SIZE offset = 0;
  Code code(pcre2_compile(
      reinterpret_cast<PCRE2_SPTR>(pattern.data()), pattern.size(),
      PCRE2_UTF | PCRE2_UCP | PCRE2_MULTILINE | PCRE2_NEVER_BACKSLASH_C | PCRE2_NO_AUTO_CAPTURE,
      &error, &offset, context.get()));
  if (!code) {
    unsigned char text[128] = {};
    pcre2_get_error_message(error, text, sizeof text);
    return MakeError(ErrorCode::kUnimplemented, "regular expression: {}",
                     reinterpret_cast<const char*>(text));
  }
  pcre2_jit_compile(code.get(), PCRE2_JIT_COMPLETE);  // without a JIT the interpreter serves
  return std::unique_ptr<Regex>(std::make_unique<PcreRegex>(std::move(code)));
}

std::unique_ptr<Regex> Regex::Literal(std::string_view text) {
  return std::make_unique<LiteralRegex>(text);
}

}  // namespace masu
