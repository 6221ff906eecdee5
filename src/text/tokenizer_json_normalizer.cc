// "normalizer" of tokenizer.json.
#include <utility>

#include "text/base64.h"
#include "text/tokenizer_json.h"

namespace masu {
namespace {

using Made = Result<std::unique_ptr<Normalizer>>;

Made ReadSequence(const JsonNode& node) {
  MASU_TRY(node.AllowOnly({"type", "normalizers"}));
  MASU_ASSIGN_OR_RETURN(const JsonNode list, node.Get("normalizers"));
  MASU_ASSIGN_OR_RETURN(const auto items, list.Items());
  Normalizers parts;
  for (const JsonNode& item : items) {
    MASU_ASSIGN_OR_RETURN(auto part, ReadNormalizer(item));
    parts.push_back(std::move(part));
  }
  return MakeSequence(std::move(parts));
}

Made ReadReplace(const JsonNode& node) {
  MASU_TRY(node.AllowOnly({"type", "pattern", "content"}));
  MASU_ASSIGN_OR_RETURN(const JsonNode pattern, node.Get("pattern"));
  MASU_ASSIGN_OR_RETURN(auto regex, ReadPattern(pattern));
  MASU_ASSIGN_OR_RETURN(const JsonNode content, node.Get("content"));
  MASU_ASSIGN_OR_RETURN(std::string by, content.String());
  return MakeReplace(std::move(regex), std::move(by));
}

Made ReadPrecompiled(const JsonNode& node) {
  MASU_TRY(node.AllowOnly({"type", "precompiled_charsmap"}));
  const auto encoded = node.Find("precompiled_charsmap");
  if (!encoded) return MakeSequence({});  // SentencePiece's "identity"
  MASU_ASSIGN_OR_RETURN(const std::string text, encoded->String());
  const auto blob = DecodeBase64(text);
  if (!blob) return encoded->Wrong("is not base64");
  if (blob->empty()) return MakeSequence({});
  auto map = Charsmap::Parse(*blob);
  if (!map.ok()) return DataLoss("{}: {}", encoded->path(), map.error().message);
  return MakePrecompiled(std::move(*map));
}

Made ReadPrepend(const JsonNode& node) {
  MASU_TRY(node.AllowOnly({"type", "prepend"}));
  MASU_ASSIGN_OR_RETURN(const JsonNode prepend, node.Get("prepend"));
  MASU_ASSIGN_OR_RETURN(std::string text, prepend.String());
  return MakePrepend(std::move(text));
}

Made ReadStrip(const JsonNode& node) {
  MASU_TRY(node.AllowOnly({"type", "strip_left", "strip_right"}));
  MASU_ASSIGN_OR_RETURN(const bool left, node.BoolOr("strip_left", true));
  MASU_ASSIGN_OR_RETURN(const bool right, node.BoolOr("strip_right", true));
  return MakeStrip(left, right);
}

}  // namespace

Result<std::unique_ptr<Normalizer>> ReadNormalizer(const std::optional<JsonNode>& node) {
  if (!node) return std::unique_ptr<Normalizer>();
  MASU_ASSIGN_OR_RETURN(const JsonNode type_node, node->Get("type"));
  MASU_ASSIGN_OR_RETURN(const std::string type, type_node.String());
  if (type == "Sequence") return ReadSequence(*node);
  if (type == "Replace") return ReadReplace(*node);
  if (type == "Precompiled") return ReadPrecompiled(*node);
  if (type == "Prepend") return ReadPrepend(*node);
  if (type == "Strip") return ReadStrip(*node);
  static constexpr std::pair<std::string_view, UnicodeForm> kForms[] = {
      {"NFC", UnicodeForm::kNfc},
      {"NFD", UnicodeForm::kNfd},
      {"NFKC", UnicodeForm::kNfkc},
      {"NFKD", UnicodeForm::kNfkd}};
  for (const auto& [name, form] : kForms) {
    if (type != name) continue;
    MASU_TRY(node->AllowOnly({"type"}));
    return MakeFormNormalizer(form);
  }
  if (type == "Lowercase" || type == "StripAccents") {
    MASU_TRY(node->AllowOnly({"type"}));
    return type == "Lowercase" ? MakeLowercase() : MakeStripAccents();
  }
  return type_node.Unsupported("\"" + Quoted(type) +
                               "\" is not supported; known: Sequence, NFC, NFD, NFKC, NFKD, "
                               "Prepend, Replace, Lowercase, Strip, StripAccents, Precompiled");
}

}  // namespace masu
