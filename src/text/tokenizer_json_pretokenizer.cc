// "pre_tokenizer" of tokenizer.json.
#include <utility>

#include "text/pretokenizer.h"
#include "text/tokenizer_json.h"
#include "text/utf8.h"

namespace masu {
namespace {

using Made = Result<std::unique_ptr<PreTokenizerStep>>;

Result<SplitBehavior> ReadBehavior(const JsonNode& node, std::string_view fallback) {
  static constexpr std::pair<std::string_view, SplitBehavior> kKnown[] = {
      {"Removed", SplitBehavior::kRemoved},
      {"Isolated", SplitBehavior::kIsolated},
      {"MergedWithPrevious", SplitBehavior::kMergedWithPrevious},
      {"MergedWithNext", SplitBehavior::kMergedWithNext},
      {"Contiguous", SplitBehavior::kContiguous}};
  MASU_ASSIGN_OR_RETURN(const std::string name, node.StringOr("behavior", std::string(fallback)));
  for (const auto& [known, behavior] : kKnown) {
    if (name == known) return behavior;
  }
  return node.Unsupported("has behavior \"" + Quoted(name) + "\", which is not known");
}

Made ReadSplit(const JsonNode& node) {
  MASU_TRY(node.AllowOnly({"type", "pattern", "behavior", "invert"}));
  MASU_ASSIGN_OR_RETURN(const JsonNode pattern, node.Get("pattern"));
  MASU_ASSIGN_OR_RETURN(auto regex, ReadPattern(pattern));
  Delimiter delimiter;
  MASU_ASSIGN_OR_RETURN(delimiter.behavior, ReadBehavior(node, ""));
  MASU_ASSIGN_OR_RETURN(delimiter.invert, node.BoolOr("invert", false));
  return MakeSplit(std::move(regex), delimiter);
}

Made ReadByteLevel(const JsonNode& node) {
  MASU_TRY(node.AllowOnly({"type", "add_prefix_space", "trim_offsets", "use_regex"}));
  MASU_ASSIGN_OR_RETURN(const bool prefix, node.BoolOr("add_prefix_space", true));
  MASU_ASSIGN_OR_RETURN(const bool use_regex, node.BoolOr("use_regex", true));
  std::unique_ptr<Regex> words;
  if (use_regex) {
    MASU_ASSIGN_OR_RETURN(words, Regex::Compile(kGpt2Words));
  }
  return MakeByteLevel(prefix, std::move(words));
}

Made ReadMetaspace(const JsonNode& node) {
  MASU_TRY(node.AllowOnly(
      {"type", "replacement", "add_prefix_space", "str_rep", "prepend_scheme", "split"}));
  MASU_ASSIGN_OR_RETURN(std::string mark, node.StringOr("replacement", std::string(kSpaceMark)));
  if (mark.empty() || DecodeUtf8(mark).length != mark.size()) {
    return node.Wrong("has a replacement that is not one character");
  }
  // The old spelling has a flag, the new one a scheme; a file with both means the scheme.
  MASU_ASSIGN_OR_RETURN(const bool prefix, node.BoolOr("add_prefix_space", true));
  MASU_ASSIGN_OR_RETURN(const std::string scheme,
                        node.StringOr("prepend_scheme", prefix ? "always" : "never"));
  MASU_ASSIGN_OR_RETURN(const bool split, node.BoolOr("split", true));
  if (scheme == "always") return MakeMetaspace(std::move(mark), PrependScheme::kAlways, split);
  if (scheme == "first") return MakeMetaspace(std::move(mark), PrependScheme::kFirst, split);
  if (scheme == "never") return MakeMetaspace(std::move(mark), PrependScheme::kNever, split);
  return node.Unsupported("has prepend_scheme \"" + Quoted(scheme) + "\", which is not known");
}

Made ReadDigits(const JsonNode& node) {
  MASU_TRY(node.AllowOnly({"type", "individual_digits"}));
  MASU_ASSIGN_OR_RETURN(const bool individual, node.BoolOr("individual_digits", false));
  return MakeClassSplit(CharacterClass::kNumber,
                        individual ? SplitBehavior::kIsolated : SplitBehavior::kContiguous);
}

Made ReadPunctuation(const JsonNode& node) {
  MASU_TRY(node.AllowOnly({"type", "behavior"}));
  MASU_ASSIGN_OR_RETURN(const SplitBehavior behavior, ReadBehavior(node, "Isolated"));
  return MakeClassSplit(CharacterClass::kPunctuation, behavior);
}

Made ReadWhitespace(const JsonNode& node) {
  MASU_TRY(node.AllowOnly({"type"}));
  // Words, and runs of what is neither word nor space; the rest goes.
  MASU_ASSIGN_OR_RETURN(auto regex, Regex::Compile(R"(\w+|[^\w\s]+)"));
  return MakeSplit(std::move(regex), {SplitBehavior::kRemoved, /*invert=*/true});
}

Made ReadStep(const JsonNode& node, const JsonNode& type_node, const std::string& type) {
  if (type == "Split") return ReadSplit(node);
  if (type == "ByteLevel") return ReadByteLevel(node);
  if (type == "Metaspace") return ReadMetaspace(node);
  if (type == "Digits") return ReadDigits(node);
  if (type == "Punctuation") return ReadPunctuation(node);
  if (type == "Whitespace") return ReadWhitespace(node);
  if (type == "WhitespaceSplit") {
    MASU_TRY(node.AllowOnly({"type"}));
    return MakeClassSplit(CharacterClass::kSpace, SplitBehavior::kRemoved);
  }
  return type_node.Unsupported("\"" + Quoted(type) +
                               "\" is not supported; known: Sequence, Split, ByteLevel, Metaspace, "
                               "Digits, Punctuation, Whitespace, WhitespaceSplit");
}

}  // namespace

Result<std::unique_ptr<Regex>> ReadPattern(const JsonNode& node) {
  MASU_TRY(node.AllowOnly({"String", "Regex"}));
  if (const auto literal = node.Find("String")) {
    MASU_ASSIGN_OR_RETURN(const std::string text, literal->String());
    if (text.empty()) return literal->Unsupported("is empty");
    return Regex::Literal(text);
  }
  MASU_ASSIGN_OR_RETURN(const JsonNode pattern, node.Get("Regex"));
  MASU_ASSIGN_OR_RETURN(const std::string text, pattern.String());
  auto regex = Regex::Compile(text);
  if (!regex.ok()) {
    return pattern.Unsupported("= \"" + Quoted(text) + "\": " + regex.error().message);
  }
  return regex;
}

Result<PreTokenizerSteps> ReadPreTokenizer(const std::optional<JsonNode>& node) {
  PreTokenizerSteps steps;
  if (!node) return steps;
  MASU_ASSIGN_OR_RETURN(const JsonNode type_node, node->Get("type"));
  MASU_ASSIGN_OR_RETURN(const std::string type, type_node.String());
  if (type != "Sequence") {
    MASU_ASSIGN_OR_RETURN(auto step, ReadStep(*node, type_node, type));
    steps.push_back(std::move(step));
    return steps;
  }
  MASU_TRY(node->AllowOnly({"type", "pretokenizers"}));
  MASU_ASSIGN_OR_RETURN(const JsonNode list, node->Get("pretokenizers"));
  MASU_ASSIGN_OR_RETURN(const auto items, list.Items());
  for (const JsonNode& item : items) {
    MASU_ASSIGN_OR_RETURN(PreTokenizerSteps inner, ReadPreTokenizer(item));
    for (auto& step : inner) steps.push_back(std::move(step));
  }
  return steps;
}

}  // namespace masu
