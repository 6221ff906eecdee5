// "model" of tokenizer.json.
#include <utility>

#include "text/tokenizer_json.h"
#include "text/utf8.h"

namespace masu {
namespace {

// Ids are int32, and a larger vocabulary than this is a damaged file.
constexpr uint64_t kMaxVocabulary = uint64_t{1} << 24;
// The trie over a unigram vocabulary takes up to 60 bytes for each of these; 250,000 pieces have 2
// MB.
constexpr size_t kMaxTrieText = size_t{16} << 20;

// Features that no known language model uses.
Result<void> RefuseRest(const JsonNode& model) {
  if (const auto dropout = model.Find("dropout")) {
    MASU_ASSIGN_OR_RETURN(const double value, dropout->Number());
    if (value != 0) return dropout->Unsupported("makes ids random, which is not supported");
  }
  for (const char* key : {"continuing_subword_prefix", "end_of_word_suffix"}) {
    MASU_ASSIGN_OR_RETURN(const std::string value, model.StringOr(key, ""));
    if (!value.empty()) {
      return model.Unsupported(
          fmt::format("has {} \"{}\", which is not supported", key, Quoted(value)));
    }
  }
  return {};
}

}  // namespace

Result<void> PutPiece(Vocabulary* vocabulary, uint64_t id, std::string_view piece, TokenKind kind) {
  if (id >= kMaxVocabulary) {
    return DataLoss("token \"{}\" has id {}; ids below {} are supported", Quoted(piece), id,
                    kMaxVocabulary);
  }
  if (id >= vocabulary->pieces.size()) {
    vocabulary->pieces.resize(id + 1);
    vocabulary->kinds.resize(id + 1, TokenKind::kUnused);
  }
  if (vocabulary->kinds[id] != TokenKind::kUnused) {
    return DataLoss("token id {} is both \"{}\" and \"{}\"", id, Quoted(vocabulary->pieces[id]),
                    Quoted(piece));
  }
  vocabulary->pieces[id] = piece;
  vocabulary->kinds[id] = kind;
  return {};
}

Result<ModelReader> ModelReader::Read(const JsonNode& model) {
  ModelReader reader(model);
  // Old files do not say the type; only BPE has merges.
  const std::string fallback = model.Find("merges") ? "BPE" : "";
  MASU_ASSIGN_OR_RETURN(const std::string type, model.StringOr("type", fallback));
  if (type == "BPE") {
    MASU_TRY(model.AllowOnly({"type", "dropout", "unk_token", "continuing_subword_prefix",
                              "end_of_word_suffix", "fuse_unk", "byte_fallback", "ignore_merges",
                              "vocab", "merges"}));
    MASU_TRY(RefuseRest(model));
  } else if (type == "Unigram") {
    MASU_TRY(model.AllowOnly({"type", "unk_id", "vocab", "byte_fallback"}));
    reader.unigram_ = true;
  } else {
    return model.Unsupported("has type \"" + Quoted(type) +
                             "\", which is not supported; known: BPE, Unigram");
  }
  return reader;
}

Result<void> ModelReader::ReadVocabulary(Vocabulary* vocabulary) const {
  return unigram_ ? ReadListVocabulary(vocabulary) : ReadObjectVocabulary(vocabulary);
}

Result<void> ModelReader::ReadObjectVocabulary(Vocabulary* vocabulary) const {
  MASU_ASSIGN_OR_RETURN(const JsonNode node, model_.Get("vocab"));
  simdjson::dom::object object;
  if (node.raw().get(object)) return node.Wrong("is not an object");
  vocabulary->pieces.reserve(object.size());
  vocabulary->kinds.reserve(object.size());
  for (const auto field : object) {
    uint64_t id = 0;
    if (field.value.get(id)) return node.Wrong("has an id that is not a whole number");
    const Result<void> put = PutPiece(vocabulary, id, field.key, TokenKind::kNormal);
    if (!put.ok()) return node.Wrong(": " + put.error().message);
  }
  return {};
}

Result<void> ModelReader::ReadListVocabulary(Vocabulary* vocabulary) const {
  MASU_ASSIGN_OR_RETURN(const JsonNode node, model_.Get("vocab"));
  simdjson::dom::array array;
  if (node.raw().get(array)) return node.Wrong("is not an array");
  size_t total = 0;
  for (const simdjson::dom::element entry : array) {
    std::string_view piece;
    if (entry.at(0).get(piece)) return node.Wrong("has an entry that is not [piece, score]");
    total += piece.size();
    if (total > kMaxTrieText) return node.Wrong("has more than 16 MiB of text");
    MASU_TRY(PutPiece(vocabulary, vocabulary->pieces.size(), piece, TokenKind::kNormal));
  }
  return {};
}

Result<std::vector<PairMerge>> ModelReader::ReadMerges() const {
  MASU_ASSIGN_OR_RETURN(const JsonNode node, model_.Get("merges"));
  simdjson::dom::array array;
  if (node.raw().get(array)) return node.Wrong("is not an array");
  std::vector<PairMerge> merges;
  merges.reserve(array.size());
  for (const simdjson::dom::element entry : array) {
    PairMerge merge;
    std::string_view line;
    if (!entry.get(line)) {  // the old spelling, for tokens without spaces
      if (line.starts_with("#version") && merges.empty()) continue;
      const size_t space = line.find(' ');
      if (space == std::string_view::npos || line.find(' ', space + 1) != std::string_view::npos) {
        return node.Wrong(
            fmt::format("[{}] is \"{}\", not two pieces", merges.size(), Quoted(line)));
      }
      merge = {line.substr(0, space), line.substr(space + 1)};
    } else if (entry.at(0).get(merge.left) || entry.at(1).get(merge.right) ||
               !entry.at(2).error()) {
      return node.Wrong(fmt::format("[{}] is not two pieces", merges.size()));
    }
    merge.rank = static_cast<uint32_t>(merges.size());
    merges.push_back(merge);
  }
  return merges;
}

Result<std::unique_ptr<TextModel>> ModelReader::Build(
    std::shared_ptr<const Vocabulary> vocabulary) const {
  auto built = unigram_ ? BuildUnigram(std::move(vocabulary)) : BuildBpe(std::move(vocabulary));
  if (!built.ok() && !built.error().message.starts_with(model_.path())) {
    return Error{built.error().code, model_.path() + ": " + built.error().message, {}};
  }
  return built;
}

Result<std::unique_ptr<TextModel>> ModelReader::BuildBpe(
    std::shared_ptr<const Vocabulary> vocabulary) const {
  PairBpeOptions options;
  MASU_ASSIGN_OR_RETURN(const std::string unknown, model_.StringOr("unk_token", ""));
  if (!unknown.empty()) {
    options.unknown = vocabulary->Find(unknown);
    if (!options.unknown) {
      return DataLoss("unk_token \"{}\" is not in the vocabulary", Quoted(unknown));
    }
  }
  MASU_ASSIGN_OR_RETURN(options.fuse_unknown, model_.BoolOr("fuse_unk", false));
  MASU_ASSIGN_OR_RETURN(options.byte_fallback, model_.BoolOr("byte_fallback", false));
  MASU_ASSIGN_OR_RETURN(options.ignore_merges, model_.BoolOr("ignore_merges", false));
  MASU_ASSIGN_OR_RETURN(const std::vector<PairMerge> merges, ReadMerges());
  return MakePairBpe(std::move(vocabulary), merges, options);
}

Result<std::unique_ptr<TextModel>> ModelReader::BuildUnigram(
    std::shared_ptr<const Vocabulary> vocabulary) const {
  UnigramOptions options;
  if (const auto id = model_.Find("unk_id")) {
    MASU_ASSIGN_OR_RETURN(const uint64_t value, id->Unsigned());
    if (value >= vocabulary->pieces.size()) return id->Wrong("is beyond the vocabulary");
    options.unknown = static_cast<TokenId>(value);
  }
  MASU_ASSIGN_OR_RETURN(options.byte_fallback, model_.BoolOr("byte_fallback", false));
  MASU_ASSIGN_OR_RETURN(const JsonNode node, model_.Get("vocab"));
  simdjson::dom::array array;
  if (node.raw().get(array)) return node.Wrong("is not an array");
  std::vector<double> scores;
  for (const simdjson::dom::element entry : array) {
    double score = 0;
    if (entry.at(1).get(score)) return node.Wrong("has an entry that is not [piece, score]");
    scores.push_back(score);
  }
  // Added tokens come behind, and are no pieces of the model.
  scores.resize(vocabulary->pieces.size(), 0);
  if (!options.unknown && !options.byte_fallback) {
    return model_.Unsupported("has neither unk_id nor byte_fallback");
  }
  return MakeUnigram(std::move(vocabulary), std::move(scores), options);
}

}  // namespace masu
