#include "text/tokenizer_config.h"

#include <algorithm>
#include <charconv>

#include "text/tokenizer_json.h"

namespace masu {
namespace {

// A special token is given as text or as an added token.
Result<std::string> ContentOf(const JsonNode& node) {
  if (!node.IsObject()) return node.String();
  MASU_ASSIGN_OR_RETURN(const JsonNode content, node.Get("content"));
  return content.String();
}

Result<void> ReadNamed(const JsonNode& root, TokenizerConfig* config) {
  for (const char* key : {"bos_token", "eos_token", "unk_token", "pad_token", "sep_token",
                          "cls_token", "mask_token"}) {
    const auto node = root.Find(key);
    if (!node || (node->IsBool())) continue;  // some files say false for "none"
    MASU_ASSIGN_OR_RETURN(std::string content, ContentOf(*node));
    if (content.empty()) continue;
    const std::string_view name = key;
    std::string* known = name == "bos_token"   ? &config->bos
                         : name == "eos_token" ? &config->eos
                         : name == "unk_token" ? &config->unknown
                                               : nullptr;
    if (known != nullptr && known->empty()) *known = content;
    config->special.push_back(std::move(content));
  }
  for (const char* key : {"additional_special_tokens", "extra_special_tokens"}) {
    const auto node = root.Find(key);
    if (!node) continue;
    if (node->IsObject()) {
      MASU_ASSIGN_OR_RETURN(const auto members, node->Members());
      for (const auto& [name, value] : members) {
        MASU_ASSIGN_OR_RETURN(std::string content, ContentOf(value));
        config->special.push_back(std::move(content));
      }
      continue;
    }
    MASU_ASSIGN_OR_RETURN(const auto items, node->Items());
    for (const JsonNode& item : items) {
      MASU_ASSIGN_OR_RETURN(std::string content, ContentOf(item));
      config->special.push_back(std::move(content));
    }
  }
  return {};
}

Result<void> ReadAddedTokensDecoder(const JsonNode& root, TokenizerConfig* config) {
  const auto node = root.Find("added_tokens_decoder");
  if (!node) return {};
  MASU_ASSIGN_OR_RETURN(const auto members, node->Members());
  for (const auto& [key, value] : members) {
    TokenId id = -1;
    const auto parsed = std::from_chars(key.data(), key.data() + key.size(), id);
    if (parsed.ec != std::errc() || parsed.ptr != key.data() + key.size() || id < 0) {
      return value.Wrong("is not named by a token id");
    }
    MASU_ASSIGN_OR_RETURN(AddedToken token, ReadAddedToken(value));
    token.id = id;
    config->added.push_back(std::move(token));
  }
  return {};
}

Result<std::optional<bool>> OptionalBool(const JsonNode& root, const char* key) {
  const auto node = root.Find(key);
  if (!node) return std::optional<bool>();
  MASU_ASSIGN_OR_RETURN(const bool value, node->Bool());
  return std::optional<bool>(value);
}

Result<void> ReadAutoClass(const JsonNode& root, TokenizerConfig* config) {
  const auto map = root.Find("auto_map");
  const auto node = map ? map->Find("AutoTokenizer") : std::nullopt;
  if (!node) return {};
  if (node->IsString()) {
    MASU_ASSIGN_OR_RETURN(config->auto_class, node->String());
    return {};
  }
  MASU_ASSIGN_OR_RETURN(const auto items, node->Items());
  for (const JsonNode& item : items) {  // [slow, fast], either may be null
    if (item.IsString() && config->auto_class.empty()) {
      MASU_ASSIGN_OR_RETURN(config->auto_class, item.String());
    }
  }
  return {};
}

}  // namespace

bool TokenizerConfig::IsLlamaLike() const {
  static constexpr std::string_view kClasses[] = {"LlamaTokenizer", "GemmaTokenizer",
                                                  "CodeLlamaTokenizer", "CohereTokenizer"};
  std::string_view name = tokenizer_class;
  if (name.ends_with("Fast")) name.remove_suffix(4);
  return std::find(std::begin(kClasses), std::end(kClasses), name) != std::end(kClasses);
}

Result<TokenizerConfig> ReadTokenizerConfig(const HuggingFaceTokenizerFiles& files) {
  TokenizerConfig config;
  if (files.tokenizer_config_json) {
    MASU_ASSIGN_OR_RETURN(const auto document, JsonDocument::Parse(*files.tokenizer_config_json,
                                                                   "tokenizer_config.json"));
    const JsonNode root = document->root();
    if (!root.IsObject()) return root.Wrong("is not an object");
    config.present = true;
    MASU_ASSIGN_OR_RETURN(config.tokenizer_class, root.StringOr("tokenizer_class", ""));
    MASU_ASSIGN_OR_RETURN(config.add_bos, OptionalBool(root, "add_bos_token"));
    MASU_ASSIGN_OR_RETURN(config.add_eos, OptionalBool(root, "add_eos_token"));
    MASU_ASSIGN_OR_RETURN(config.legacy, OptionalBool(root, "legacy"));
    MASU_TRY(ReadAutoClass(root, &config));
    MASU_TRY(ReadNamed(root, &config));
    MASU_TRY(ReadAddedTokensDecoder(root, &config));
  }
  if (files.special_tokens_map_json) {
    MASU_ASSIGN_OR_RETURN(const auto document, JsonDocument::Parse(*files.special_tokens_map_json,
                                                                   "special_tokens_map.json"));
    MASU_TRY(ReadNamed(document->root(), &config));
  }
  return config;
}

}  // namespace masu
