// tokenizer.model: a SentencePiece model without a tokenizer.json beside it. Ids equal those of
// SentencePiece; control tokens come only from what the model's authors wrote.
#include <utility>

#include "text/huggingface_tokenizer.h"
#include "text/protobuf_reader.h"
#include "text/utf8.h"

namespace masu {
namespace {

constexpr std::string_view kName = "tokenizer.model";
constexpr size_t kMaxTrieText = size_t{16} << 20;  // see tokenizer_json_model.cc

enum ModelType : uint64_t { kUnigram = 1, kBpe = 2 };

// What a model says, with protobuf's defaults.
struct SentencePieceModel {
  Vocabulary vocabulary;  // without ids
  std::vector<float> scores;
  uint64_t model_type = kUnigram;
  bool byte_fallback = false;
  bool whitespace_as_suffix = false;
  std::string charsmap;
  bool add_dummy_prefix = true;
  bool remove_extra_whitespaces = true;
  bool escape_whitespaces = true;
  bool denormalizes = false;
};

Result<void> ReadPiece(std::string_view bytes, SentencePieceModel* model) {
  std::string_view piece;
  float score = 0;
  uint64_t type = 1;
  for (ProtobufReader reader(bytes); !reader.AtEnd();) {
    MASU_ASSIGN_OR_RETURN(const ProtobufField field, reader.Next());
    if (field.number == 1 && field.wire_type == 2) piece = field.bytes;
    if (field.number == 2 && field.wire_type == 5) score = field.AsFloat();
    if (field.number == 3 && field.wire_type == 0) type = field.value;
  }
  const size_t id = model->scores.size();
  if (type < 1 || type > 6) return DataLoss("piece {} has type {}, known are 1 to 6", id, type);
  if (static_cast<TokenKind>(type) == TokenKind::kUnused) {
    return MakeError(ErrorCode::kUnimplemented,
                     "piece {} (\"{}\") is marked unused, which is not supported", id,
                     Quoted(piece));
  }
  if (!(score > -1e30f && score < 1e30f)) return DataLoss("the score of piece {} is no number", id);
  MASU_TRY(PutPiece(&model->vocabulary, id, piece, static_cast<TokenKind>(type)));
  model->scores.push_back(score);
  return {};
}

Result<void> ReadTrainer(std::string_view bytes, SentencePieceModel* model) {
  for (ProtobufReader reader(bytes); !reader.AtEnd();) {
    MASU_ASSIGN_OR_RETURN(const ProtobufField field, reader.Next());
    if (field.wire_type != 0) continue;
    if (field.number == 3) model->model_type = field.value;
    if (field.number == 24) model->whitespace_as_suffix = field.value != 0;
    if (field.number == 35) model->byte_fallback = field.value != 0;
  }
  return {};
}

Result<void> ReadNormalizerSpec(std::string_view bytes, SentencePieceModel* model) {
  for (ProtobufReader reader(bytes); !reader.AtEnd();) {
    MASU_ASSIGN_OR_RETURN(const ProtobufField field, reader.Next());
    if (field.number == 2 && field.wire_type == 2) model->charsmap = field.bytes;
    if (field.wire_type != 0) continue;
    if (field.number == 3) model->add_dummy_prefix = field.value != 0;
    if (field.number == 4) model->remove_extra_whitespaces = field.value != 0;
    if (field.number == 5) model->escape_whitespaces = field.value != 0;
  }
  return {};
}

Result<void> ReadDenormalizerSpec(std::string_view bytes, SentencePieceModel* model) {
  for (ProtobufReader reader(bytes); !reader.AtEnd();) {
    MASU_ASSIGN_OR_RETURN(const ProtobufField field, reader.Next());
    if (field.number == 2 && field.wire_type == 2) model->denormalizes |= !field.bytes.empty();
  }
  return {};
}

Result<SentencePieceModel> ReadModel(std::string_view bytes) {
  SentencePieceModel model;
  size_t text = 0;
  for (ProtobufReader reader(bytes); !reader.AtEnd();) {
    MASU_ASSIGN_OR_RETURN(const ProtobufField field, reader.Next());
    if (field.wire_type != 2) continue;
    if (field.number == 1) {
      MASU_TRY(ReadPiece(field.bytes, &model));
      text += field.bytes.size();
    }
    if (field.number == 2) MASU_TRY(ReadTrainer(field.bytes, &model));
    if (field.number == 3) MASU_TRY(ReadNormalizerSpec(field.bytes, &model));
    if (field.number == 5) MASU_TRY(ReadDenormalizerSpec(field.bytes, &model));
    if (text > kMaxTrieText) return DataLoss("more than 16 MiB of pieces");
  }
  if (model.scores.empty()) return DataLoss("there are no pieces");
  if (model.model_type != kUnigram && model.model_type != kBpe) {
    return MakeError(ErrorCode::kUnimplemented,
                     "model_type {} is not supported; known: 1 (unigram), 2 (BPE)",
                     model.model_type);
  }
  if (model.whitespace_as_suffix || model.denormalizes) {
    return MakeError(ErrorCode::kUnimplemented, "{} is not supported",
                     model.denormalizes ? "a denormalizer" : "treat_whitespace_as_suffix");
  }
  return model;
}

// Control pieces, which trusted text may hold. User-defined ones are the model's own matter.
std::vector<AddedToken> ControlTokens(const Vocabulary& vocabulary) {
  std::vector<AddedToken> tokens;
  for (size_t i = 0; i < vocabulary.pieces.size(); ++i) {
    if (vocabulary.kinds[i] != TokenKind::kControl) continue;
    tokens.push_back({.content = vocabulary.pieces[i],
                      .id = static_cast<TokenId>(i),
                      .single_word = false,
                      .lstrip = false,
                      .rstrip = false,
                      .normalized = false,
                      .special = true});
  }
  return tokens;
}

Result<std::unique_ptr<Normalizer>> MakeNormalizer(const SentencePieceModel& model,
                                                   const TokenizerConfig& config) {
  SentencePieceNormalization options;
  if (!model.charsmap.empty()) {
    MASU_ASSIGN_OR_RETURN(options.map, Charsmap::Parse(model.charsmap));
    std::vector<std::pair<std::string_view, int32_t>> symbols;
    for (size_t i = 0; i < model.vocabulary.pieces.size(); ++i) {
      const bool symbol = model.vocabulary.kinds[i] == TokenKind::kUserDefined;
      if (symbol) symbols.emplace_back(model.vocabulary.pieces[i], 0);
    }
    options.symbols = std::make_shared<ByteTrie>(std::move(symbols));
  }
  options.add_dummy_prefix = model.add_dummy_prefix;
  options.prefix_at_start_only = !config.legacy.value_or(true);
  options.remove_extra_whitespaces = model.remove_extra_whitespaces;
  options.escape_whitespaces = model.escape_whitespaces;
  return MakeSentencePieceNormalizer(std::move(options));
}

std::optional<TokenId> FirstOfKind(const Vocabulary& vocabulary, TokenKind kind) {
  for (size_t i = 0; i < vocabulary.kinds.size(); ++i) {
    if (vocabulary.kinds[i] == kind) return static_cast<TokenId>(i);
  }
  return std::nullopt;
}

std::unique_ptr<TextModel> MakeModel(SentencePieceModel* model,
                                     std::shared_ptr<const Vocabulary> vocabulary) {
  const auto unknown = FirstOfKind(*vocabulary, TokenKind::kUnknown);
  model->scores.resize(vocabulary->pieces.size(), 0);  // added tokens come behind
  if (model->model_type == kBpe) {
    return MakeScoreBpe(std::move(vocabulary), std::move(model->scores),
                        {.unknown = unknown,
                         .byte_fallback = model->byte_fallback,
                         .user_defined_first = true,
                         .fuse_unknown = true});
  }
  return MakeSentencePieceUnigram(std::move(vocabulary), std::move(model->scores),
                                  {unknown, model->byte_fallback});
}

TokenizerOr Load(std::string_view bytes, TokenizerConfig config, const std::vector<TokenId>& ends) {
  MASU_ASSIGN_OR_RETURN(SentencePieceModel model, ReadModel(bytes));
  PipelineParts parts;
  MASU_ASSIGN_OR_RETURN(parts.normalizer, MakeNormalizer(model, config));
  parts.added_tokens = ControlTokens(model.vocabulary);
  MASU_TRY(CompleteAddedTokens(config, &parts.added_tokens));
  auto vocabulary = std::make_shared<Vocabulary>(std::move(model.vocabulary));
  // The names that SentencePiece gives by default.
  const auto has = [&](std::string_view piece) {
    for (const auto& token : parts.added_tokens) {
      if (token.content == piece) return true;
    }
    return false;
  };
  if (config.bos.empty() && has("<s>")) config.bos = "<s>";
  if (config.eos.empty() && has("</s>")) config.eos = "</s>";
  MASU_TRY(CompleteVocabulary(config, ends, &parts.added_tokens, vocabulary.get()));
  // Without a class, as LlamaTokenizer: it is the one that ships without tokenizer.json.
  if (config.tokenizer_class.empty()) config.tokenizer_class = "LlamaTokenizer";
  MASU_ASSIGN_OR_RETURN(const auto around, AroundByConfig(config, *vocabulary));
  if (around) {
    parts.prefix = around->prefix;
    parts.suffix = around->suffix;
  }
  parts.decoder.edits.push_back(MakeReplaceEdit(Regex::Literal(kSpaceMark), " "));
  parts.decoder.byte_fallback = model.byte_fallback;
  if (model.add_dummy_prefix || model.remove_extra_whitespaces) parts.decoder.strip = {" ", 1};
  parts.vocabulary = vocabulary;
  parts.model = MakeModel(&model, std::move(vocabulary));
  return std::unique_ptr<Tokenizer>(std::make_unique<PipelineTokenizer>(std::move(parts)));
}

}  // namespace

TokenizerOr LoadSentencePiece(std::string_view bytes, const TokenizerConfig& config,
                              const std::vector<TokenId>& ends) {
  auto loaded = Load(bytes, config, ends);
  if (loaded.ok()) return loaded;
  return Error{loaded.error().code, fmt::format("{}: {}", kName, loaded.error().message), {}};
}

}  // namespace masu
