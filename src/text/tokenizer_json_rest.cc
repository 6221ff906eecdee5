// "post_processor" and "added_tokens" of tokenizer.json.
#include <utility>

#include "text/tokenizer_json.h"

namespace masu {
namespace {

// The ids that a template's special token stands for.
Result<std::vector<TokenId>> TemplateIds(const JsonNode& tokens, const std::string& name,
                                         const Vocabulary& known) {
  MASU_ASSIGN_OR_RETURN(const JsonNode entry, tokens.Get(name));
  MASU_ASSIGN_OR_RETURN(const JsonNode list, entry.Get("ids"));
  MASU_ASSIGN_OR_RETURN(const auto items, list.Items());
  std::vector<TokenId> ids;
  for (const JsonNode& item : items) {
    MASU_ASSIGN_OR_RETURN(const uint64_t id, item.Unsigned());
    if (id >= known.pieces.size()) return item.Wrong("is beyond the vocabulary");
    ids.push_back(static_cast<TokenId>(id));
  }
  return ids;
}

Result<void> ReadTemplate(const JsonNode& node, const Vocabulary& known, AroundText* around) {
  MASU_TRY(node.AllowOnly({"type", "single", "pair", "special_tokens"}));
  MASU_ASSIGN_OR_RETURN(const JsonNode single, node.Get("single"));
  MASU_ASSIGN_OR_RETURN(const auto items, single.Items());
  bool seen = false;
  std::vector<TokenId> before;
  std::vector<TokenId> after;
  for (const JsonNode& item : items) {
    if (item.Find("Sequence")) {
      if (seen) return single.Unsupported("has the text twice");
      seen = true;
      continue;
    }
    MASU_ASSIGN_OR_RETURN(const JsonNode special, item.Get("SpecialToken"));
    MASU_ASSIGN_OR_RETURN(const JsonNode name_node, special.Get("id"));
    MASU_ASSIGN_OR_RETURN(const std::string name, name_node.String());
    MASU_ASSIGN_OR_RETURN(const JsonNode tokens, node.Get("special_tokens"));
    MASU_ASSIGN_OR_RETURN(const auto ids, TemplateIds(tokens, name, known));
    std::vector<TokenId>& side = seen ? after : before;
    side.insert(side.end(), ids.begin(), ids.end());
  }
  if (!seen) return single.Unsupported("does not have the text");
  // Of several processors in a sequence, each goes around what the ones before made.
  around->given = true;
  around->prefix.insert(around->prefix.begin(), before.begin(), before.end());
  around->suffix.insert(around->suffix.end(), after.begin(), after.end());
  return {};
}

Result<void> ReadProcessor(const JsonNode& node, const Vocabulary& known, AroundText* around) {
  MASU_ASSIGN_OR_RETURN(const JsonNode type_node, node.Get("type"));
  MASU_ASSIGN_OR_RETURN(const std::string type, type_node.String());
  if (type == "TemplateProcessing") return ReadTemplate(node, known, around);
  // Concerns offsets, which nothing here reports.
  if (type == "ByteLevel") {
    return node.AllowOnly({"type", "add_prefix_space", "trim_offsets", "use_regex"});
  }
  if (type != "Sequence") {
    return type_node.Unsupported("\"" + Quoted(type) +
                                 "\" is not supported; known: Sequence, TemplateProcessing, "
                                 "ByteLevel");
  }
  MASU_TRY(node.AllowOnly({"type", "processors"}));
  MASU_ASSIGN_OR_RETURN(const JsonNode list, node.Get("processors"));
  MASU_ASSIGN_OR_RETURN(const auto items, list.Items());
  for (const JsonNode& item : items) MASU_TRY(ReadProcessor(item, known, around));
  return {};
}

}  // namespace

Result<AroundText> ReadPostProcessor(const std::optional<JsonNode>& node, const Vocabulary& known) {
  AroundText around;
  if (node) MASU_TRY(ReadProcessor(*node, known, &around));
  return around;
}

Result<AddedToken> ReadAddedToken(const JsonNode& node) {
  MASU_TRY(node.AllowOnly(
      {"id", "content", "single_word", "lstrip", "rstrip", "normalized", "special", "__type"}));
  AddedToken token;
  MASU_ASSIGN_OR_RETURN(const JsonNode content, node.Get("content"));
  MASU_ASSIGN_OR_RETURN(token.content, content.String());
  MASU_ASSIGN_OR_RETURN(token.special, node.BoolOr("special", false));
  MASU_ASSIGN_OR_RETURN(token.single_word, node.BoolOr("single_word", false));
  MASU_ASSIGN_OR_RETURN(token.lstrip, node.BoolOr("lstrip", false));
  MASU_ASSIGN_OR_RETURN(token.rstrip, node.BoolOr("rstrip", false));
  MASU_ASSIGN_OR_RETURN(token.normalized, node.BoolOr("normalized", !token.special));
  return token;
}

Result<std::vector<AddedToken>> ReadAddedTokens(const std::optional<JsonNode>& node) {
  std::vector<AddedToken> tokens;
  if (!node) return tokens;
  MASU_ASSIGN_OR_RETURN(const auto items, node->Items());
  for (const JsonNode& item : items) {
    MASU_ASSIGN_OR_RETURN(AddedToken token, ReadAddedToken(item));
    MASU_ASSIGN_OR_RETURN(const JsonNode id_node, item.Get("id"));
    MASU_ASSIGN_OR_RETURN(const uint64_t id, id_node.Unsigned());
    if (id > INT32_MAX) return id_node.Wrong("is too large");
    token.id = static_cast<TokenId>(id);
    tokens.push_back(std::move(token));
  }
  return tokens;
}

}  // namespace masu
