#include "text/huggingface_tokenizer.h"

#include <algorithm>
#include <unordered_map>
#include <utility>

#include "text/json_node.h"

namespace masu {
namespace {

AddedToken* FindAdded(std::vector<AddedToken>* tokens, std::string_view content) {
  const auto found = std::find_if(tokens->begin(), tokens->end(), [&](const AddedToken& token) {
    return token.content == content;
  });
  return found == tokens->end() ? nullptr : &*found;
}

// A named token that is looked for in text, as transformers registers it.
AddedToken NamedToken(const std::string& content) {
  return {.content = content,
          .id = -1,
          .single_word = false,
          .lstrip = false,
          .rstrip = false,
          .normalized = false,
          .special = true};
}

Result<std::optional<TokenId>> Named(const std::string& content, const Vocabulary& vocabulary,
                                     const char* key) {
  if (content.empty()) return std::optional<TokenId>();
  const auto id = vocabulary.Find(content);
  if (!id) {
    return DataLoss("tokenizer_config.json: {} \"{}\" is not in the vocabulary", key,
                    Quoted(content));
  }
  return std::optional<TokenId>(*id);
}

}  // namespace

Result<void> CompleteAddedTokens(const TokenizerConfig& config, std::vector<AddedToken>* tokens) {
  std::unordered_map<std::string, size_t> places;
  for (size_t i = 0; i < tokens->size(); ++i) places.emplace((*tokens)[i].content, i);
  for (const AddedToken& token : config.added) {
    const auto [place, is_new] = places.emplace(token.content, tokens->size());
    if (is_new) {
      tokens->push_back(token);
      continue;
    }
    AddedToken& known = (*tokens)[place->second];
    if (known.id != token.id) {
      return DataLoss("token \"{}\" has id {} in tokenizer.json and {} in tokenizer_config.json",
                      Quoted(token.content), known.id, token.id);
    }
    known = token;  // the flags that transformers would use
  }
  for (const std::string& content : config.special) {
    if (content.empty()) continue;
    if (AddedToken* known = FindAdded(tokens, content); known != nullptr) {
      known->special = true;
    } else {
      tokens->push_back(NamedToken(content));
    }
  }
  return {};
}

Result<void> CompleteVocabulary(const TokenizerConfig& config, const std::vector<TokenId>& ends,
                                std::vector<AddedToken>* tokens, Vocabulary* vocabulary) {
  std::unordered_map<std::string_view, TokenId> model_ids;
  for (size_t i = 0; i < vocabulary->pieces.size(); ++i) {
    if (vocabulary->kinds[i] != TokenKind::kUnused) {
      model_ids.emplace(vocabulary->pieces[i], static_cast<TokenId>(i));
    }
  }
  std::vector<const AddedToken*> missing;
  for (AddedToken& token : *tokens) {
    const auto found = model_ids.find(token.content);
    if (found == model_ids.end()) {
      if (token.id >= 0) missing.push_back(&token);
      continue;
    }
    if (token.id >= 0 && token.id != found->second) {
      return DataLoss("added token \"{}\" has id {}, but the model's vocabulary has it at {}",
                      Quoted(token.content), token.id, found->second);
    }
    token.id = found->second;
    if (token.special) vocabulary->kinds[static_cast<size_t>(token.id)] = TokenKind::kControl;
  }
  for (const AddedToken* token : missing) {
    const TokenKind kind = token->special ? TokenKind::kControl : TokenKind::kUserDefined;
    MASU_TRY(PutPiece(vocabulary, static_cast<uint64_t>(token->id), token->content, kind));
  }
  // A named token that no vocabulary has (a padding token, most often) is none.
  std::erase_if(*tokens, [](const AddedToken& token) { return token.id < 0; });
  vocabulary->ids.reserve(vocabulary->pieces.size());
  for (size_t i = 0; i < vocabulary->pieces.size(); ++i) {
    if (vocabulary->kinds[i] == TokenKind::kUnused) continue;
    vocabulary->ids.emplace(vocabulary->pieces[i], static_cast<TokenId>(i));
  }
  MASU_ASSIGN_OR_RETURN(vocabulary->bos, Named(config.bos, *vocabulary, "bos_token"));
  MASU_ASSIGN_OR_RETURN(vocabulary->eos, Named(config.eos, *vocabulary, "eos_token"));
  auto& all_ends = vocabulary->end_of_generation;
  if (vocabulary->eos) all_ends.push_back(*vocabulary->eos);
  for (const TokenId id : ends) {
    if (std::find(all_ends.begin(), all_ends.end(), id) == all_ends.end()) all_ends.push_back(id);
  }
  return {};
}

Result<std::optional<AroundText>> AroundByConfig(const TokenizerConfig& config,
                                                 const Vocabulary& vocabulary) {
  const bool llama = config.IsLlamaLike();
  if (!llama && !config.add_bos && !config.add_eos) return std::optional<AroundText>();
  AroundText around;
  if (config.add_bos.value_or(llama) && vocabulary.bos) around.prefix = {*vocabulary.bos};
  if (config.add_eos.value_or(false) && vocabulary.eos) around.suffix = {*vocabulary.eos};
  around.given = true;
  return std::optional<AroundText>(std::move(around));
}

TokenizerOr LoadTokenizerJson(std::string_view json, const TokenizerConfig& config,
                              const std::vector<TokenId>& ends) {
  MASU_ASSIGN_OR_RETURN(const auto document, JsonDocument::Parse(json, "tokenizer.json"));
  const JsonNode root = document->root();
  // Truncation and padding are of no concern to an engine that batches by itself.
  MASU_TRY(root.AllowOnly({"version", "truncation", "padding", "added_tokens", "normalizer",
                           "pre_tokenizer", "post_processor", "decoder", "model"}));
  PipelineParts parts;
  MASU_ASSIGN_OR_RETURN(parts.added_tokens, ReadAddedTokens(root.Find("added_tokens")));
  MASU_TRY(CompleteAddedTokens(config, &parts.added_tokens));
  MASU_ASSIGN_OR_RETURN(parts.normalizer, ReadNormalizer(root.Find("normalizer")));
  MASU_ASSIGN_OR_RETURN(parts.steps, ReadPreTokenizer(root.Find("pre_tokenizer")));
  MASU_ASSIGN_OR_RETURN(parts.decoder, ReadDecoder(root.Find("decoder")));
  MASU_ASSIGN_OR_RETURN(const JsonNode model_node, root.Get("model"));
  MASU_ASSIGN_OR_RETURN(const ModelReader model, ModelReader::Read(model_node));
  auto vocabulary = std::make_shared<Vocabulary>();
  MASU_TRY(model.ReadVocabulary(vocabulary.get()));
  MASU_TRY(CompleteVocabulary(config, ends, &parts.added_tokens, vocabulary.get()));
  MASU_ASSIGN_OR_RETURN(AroundText around,
                        ReadPostProcessor(root.Find("post_processor"), *vocabulary));
  MASU_ASSIGN_OR_RETURN(auto configured, AroundByConfig(config, *vocabulary));
  if (configured) around = std::move(*configured);
  // Without a configuration, the token that every text begins with is BOS.
  if (!vocabulary->bos && around.prefix.size() == 1) vocabulary->bos = around.prefix.front();
  parts.prefix = std::move(around.prefix);
  parts.suffix = std::move(around.suffix);
  parts.vocabulary = std::move(vocabulary);
  MASU_ASSIGN_OR_RETURN(parts.model, model.Build(parts.vocabulary));
  return std::unique_ptr<Tokenizer>(std::make_unique<PipelineTokenizer>(std::move(parts)));
}

Result<std::unique_ptr<Tokenizer>> Tokenizer::FromHuggingFace(
    const HuggingFaceTokenizerFiles& files) {
  MASU_ASSIGN_OR_RETURN(const TokenizerConfig config, ReadTokenizerConfig(files));
  if (files.tokenizer_json) {
    return LoadTokenizerJson(*files.tokenizer_json, config, files.end_of_generation);
  }
  if (files.tokenizer_model) {
    return LoadSentencePiece(*files.tokenizer_model, config, files.end_of_generation);
  }
  if (files.tiktoken_model) {
    return LoadTiktoken(*files.tiktoken_model, config, files.end_of_generation);
  }
  return MakeError(
      ErrorCode::kNotFound,
      "there is none of tokenizer.json, tokenizer.model and tiktoken.model; fetch it, too");
}

}  // namespace masu
