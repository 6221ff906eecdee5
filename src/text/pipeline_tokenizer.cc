#include "text/pipeline_tokenizer.h"

#include <algorithm>
#include <utility>

#include "text/byte_level.h"
#include "text/utf8.h"

namespace masu {

// Which parts of the whole text its authors wrote.
class PipelineTokenizer::RunTrust {
 public:
  explicit RunTrust(std::span<const TrustRun> runs) : runs_(runs) {}

  Trust Of(size_t begin, size_t end) const {
    bool all = true;
    bool any = false;
    for (size_t run = RunAt(begin); begin < end && run < runs_.size(); ++run) {
      any |= runs_[run].trusted;
      all &= runs_[run].trusted;
      begin = runs_[run].end;
    }
    return all && any ? Trust::kAll : (any ? Trust::kSome : Trust::kNone);
  }

  // One flag for each byte; empty if none is trusted.
  std::vector<uint8_t> Flags(size_t begin, size_t end) const {
    if (Of(begin, end) == Trust::kNone) return {};
    std::vector<uint8_t> flags;
    for (size_t run = RunAt(begin); begin < end && run < runs_.size(); ++run) {
      const size_t to = std::min(runs_[run].end, end);
      flags.insert(flags.end(), to - begin, runs_[run].trusted ? 1 : 0);
      begin = to;
    }
    return flags;
  }

 private:
  size_t RunAt(size_t at) const {
    const auto found = std::upper_bound(runs_.begin(), runs_.end(), at,
                                        [](size_t a, const TrustRun& run) { return a < run.end; });
    return static_cast<size_t>(found - runs_.begin());
  }

  std::span<const TrustRun> runs_;
};

PipelineTokenizer::PipelineTokenizer(PipelineParts parts)
    : parts_(std::move(parts)),
      added_(parts_.added_tokens, parts_.normalizer.get()),
      is_added_(parts_.vocabulary->pieces.size()) {
  for (const AddedToken& token : parts_.added_tokens) {
    is_added_[static_cast<size_t>(token.id)] = true;
    if (!token.normalized || !parts_.normalizer) continue;
    const SourceText spelled = Normalized(token.content, parts_.normalizer.get());
    if (spelled.text != token.content) respelled_.emplace(token.id, spelled.text);
  }
  if (parts_.decoder.byte_fallback) byte_tokens_ = ByteTokens(vocabulary());
}

bool PipelineTokenizer::IsValid(TokenId id) const {
  return vocabulary().IsValid(id) &&
         vocabulary().kinds[static_cast<size_t>(id)] != TokenKind::kUnused;
}

std::string PipelineTokenizer::TokenPiece(TokenId id) const {
  return IsValid(id) ? vocabulary().pieces[static_cast<size_t>(id)] : std::string();
}

std::string PipelineTokenizer::Bytes(TokenId id, bool first) const {
  if (!IsValid(id)) return {};
  const auto index = static_cast<size_t>(id);
  const auto respelled = respelled_.find(id);
  const std::string& piece =
      respelled == respelled_.end() ? vocabulary().pieces[index] : respelled->second;
  return parts_.decoder.Bytes(piece, is_added_[index], first);
}

std::vector<TokenId> PipelineTokenizer::Encode(std::string_view text, EncodeOptions options) const {
  const TrustRun run{text.size(), options.parse_special};
  return EncodeRuns(text, {&run, 1}, options.add_special);
}

std::vector<TokenId> PipelineTokenizer::EncodeSegments(std::span<const TextSegment> segments,
                                                       bool add_special) const {
  const TrustedText joined = JoinSegments(segments);
  return EncodeRuns(joined.text, joined.runs, add_special);
}

std::vector<TokenId> PipelineTokenizer::EncodeRuns(std::string_view text,
                                                   std::span<const TrustRun> runs,
                                                   bool add_special) const {
  std::vector<TokenId> ids;
  const RunTrust trust(runs);
  const auto trust_of = [&](size_t begin, size_t end) { return trust.Of(begin, end); };
  for (const AddedSplit& split : added_.SplitRaw(text, trust_of)) {
    if (split.id) {
      ids.push_back(*split.id);
    } else {
      EncodeOrdinary(text.substr(split.begin, split.end - split.begin), split.begin, trust, &ids);
    }
  }
  if (!add_special) return ids;
  // A text that already begins with BOS gets no second one.
  const auto& prefix = parts_.prefix;
  const bool has_prefix =
      ids.size() >= prefix.size() && std::equal(prefix.begin(), prefix.end(), ids.begin());
  if (!has_prefix) ids.insert(ids.begin(), prefix.begin(), prefix.end());
  ids.insert(ids.end(), parts_.suffix.begin(), parts_.suffix.end());
  return ids;
}

// Valid UTF-8 goes its way in whole stretches; each byte between them is encoded alone.
void PipelineTokenizer::EncodeOrdinary(std::string_view text, size_t begin, const RunTrust& trust,
                                       std::vector<TokenId>* out) const {
  bool continues = false;
  while (!text.empty()) {
    const size_t valid = ValidUtf8Prefix(text);
    if (valid == 0) {
      EncodeInvalidByte(text[0], out);
      text.remove_prefix(1);
      ++begin;
    } else {
      SourceText source{.text = std::string(text.substr(0, valid)),
                        .at_start = begin == 0,
                        .continues = continues,
                        .trusted = {}};
      if (added_.has_special_normalized()) source.trusted = trust.Flags(begin, begin + valid);
      EncodeStretch(std::move(source), out);
      text.remove_prefix(valid);
      begin += valid;
    }
    continues = true;
  }
}

void PipelineTokenizer::EncodeInvalidByte(char byte, std::vector<TokenId>* out) const {
  const std::string_view bytes(&byte, 1);
  if (parts_.decoder.byte_level) {
    const auto id = vocabulary().Find(ToByteLevel(bytes));
    if (id && !is_added_[static_cast<size_t>(*id)]) return out->push_back(*id);
  }
  // Vocabularies need no token for bytes that never occur in UTF-8, such as 0xFF.
  if (byte_tokens_.Append(bytes, out)) return;
  EncodeStretch({.text = std::string(kReplacementCharacter),
                 .at_start = false,
                 .continues = true,
                 .trusted = {}},
                out);
}

void PipelineTokenizer::EncodeStretch(SourceText source, std::vector<TokenId>* out) const {
  if (parts_.normalizer) parts_.normalizer->Apply(&source);
  if (!added_.has_normalized()) return EncodeNormalized(std::move(source), out);
  const auto trust_of = [&](size_t begin, size_t end) {
    if (source.AllTrusted(begin, end)) return Trust::kAll;
    const auto from = source.trusted.begin();
    const bool any =
        !source.trusted.empty() && std::any_of(from + static_cast<std::ptrdiff_t>(begin),
                                               from + static_cast<std::ptrdiff_t>(end),
                                               [](uint8_t flag) { return flag != 0; });
    return any ? Trust::kSome : Trust::kNone;
  };
  for (const AddedSplit& split : added_.SplitNormalized(source.text, trust_of)) {
    if (split.id) {
      out->push_back(*split.id);
      continue;
    }
    const bool first = split.begin == 0;
    EncodeNormalized({.text = source.text.substr(split.begin, split.end - split.begin),
                      .at_start = source.at_start && first,
                      .continues = source.continues && first,
                      .trusted = {}},
                     out);
  }
}

void PipelineTokenizer::EncodeNormalized(SourceText source, std::vector<TokenId>* out) const {
  PieceList list = PieceList::Of(std::move(source));
  for (const auto& step : parts_.steps) step->Apply(&list);
  const std::string_view text = list.text;
  for (const Piece& piece : list.pieces) {
    parts_.model->Encode(text.substr(piece.begin, piece.end - piece.begin), out);
  }
}

}  // namespace masu
