// "decoder" of tokenizer.json, as far as it can be told token by token (see token_decoder.h).
#include <algorithm>
#include <iterator>
#include <utility>

#include "text/tokenizer_json.h"
#include "text/utf8.h"

namespace masu {
namespace {

// Collects the parts of a decoder in order, and refuses an order that streaming cannot follow.
class DecoderReader {
 public:
  Result<void> Read(const JsonNode& node) {
    MASU_ASSIGN_OR_RETURN(const JsonNode type_node, node.Get("type"));
    MASU_ASSIGN_OR_RETURN(const std::string type, type_node.String());
    if (type == "Sequence") return ReadSequence(node);
    if (type == "Strip") return ReadStrip(node);
    if (type == "Fuse") {
      MASU_TRY(node.AllowOnly({"type"}));
      fused_ = true;
      return {};
    }
    static constexpr std::string_view kKnown[] = {"Replace", "Metaspace", "ByteLevel",
                                                  "ByteFallback"};
    if (std::find(std::begin(kKnown), std::end(kKnown), type) == std::end(kKnown)) {
      return type_node.Unsupported("\"" + Quoted(type) +
                                   "\" is not supported; known: Sequence, ByteLevel, ByteFallback, "
                                   "Fuse, Replace, Strip, Metaspace");
    }
    if (fused_ || decoder_.byte_fallback || decoder_.byte_level) {
      return type_node.Unsupported(
          "= \"" + type + "\" behind ByteFallback, ByteLevel or Fuse cannot decode token by token");
    }
    if (type == "Replace") return ReadReplace(node);
    if (type == "Metaspace") return ReadMetaspace(node);
    if (type == "ByteFallback") {
      decoder_.byte_fallback = true;
      return node.AllowOnly({"type"});
    }
    decoder_.byte_level = fused_ = true;
    return node.AllowOnly({"type", "add_prefix_space", "trim_offsets", "use_regex"});
  }

  TokenDecoder Take() { return std::move(decoder_); }

 private:
  Result<void> ReadSequence(const JsonNode& node) {
    MASU_TRY(node.AllowOnly({"type", "decoders"}));
    MASU_ASSIGN_OR_RETURN(const JsonNode list, node.Get("decoders"));
    MASU_ASSIGN_OR_RETURN(const auto items, list.Items());
    for (const JsonNode& item : items) MASU_TRY(Read(item));
    return {};
  }

  Result<void> ReadReplace(const JsonNode& node) {
    MASU_TRY(node.AllowOnly({"type", "pattern", "content"}));
    MASU_ASSIGN_OR_RETURN(const JsonNode pattern, node.Get("pattern"));
    MASU_ASSIGN_OR_RETURN(auto regex, ReadPattern(pattern));
    MASU_ASSIGN_OR_RETURN(const JsonNode content, node.Get("content"));
    MASU_ASSIGN_OR_RETURN(std::string by, content.String());
    decoder_.edits.push_back(MakeReplaceEdit(std::move(regex), std::move(by)));
    return {};
  }

  Result<void> ReadMetaspace(const JsonNode& node) {
    MASU_TRY(node.AllowOnly(
        {"type", "replacement", "add_prefix_space", "str_rep", "prepend_scheme", "split"}));
    MASU_ASSIGN_OR_RETURN(const std::string mark,
                          node.StringOr("replacement", std::string(kSpaceMark)));
    if (mark.empty()) return node.Wrong("has an empty replacement");
    MASU_ASSIGN_OR_RETURN(const bool prefix, node.BoolOr("add_prefix_space", true));
    MASU_ASSIGN_OR_RETURN(const std::string scheme,
                          node.StringOr("prepend_scheme", prefix ? "always" : "never"));
    decoder_.edits.push_back(MakeMetaspaceEdit(mark, scheme != "never"));
    return {};
  }

  Result<void> ReadStrip(const JsonNode& node) {
    MASU_TRY(node.AllowOnly({"type", "content", "start", "stop"}));
    MASU_ASSIGN_OR_RETURN(const JsonNode content_node, node.Get("content"));
    MASU_ASSIGN_OR_RETURN(std::string content, content_node.String());
    if (content.empty() || DecodeUtf8(content).length != content.size()) {
      return content_node.Wrong("is not one character");
    }
    MASU_ASSIGN_OR_RETURN(const uint64_t start, node.UnsignedOr("start", 0));
    MASU_ASSIGN_OR_RETURN(const uint64_t stop, node.UnsignedOr("stop", 0));
    if (!fused_ && !decoder_.byte_fallback) {
      decoder_.edits.push_back(MakeStripEdit(std::move(content), start, stop));
      return {};
    }
    if (!fused_) return node.Unsupported("between ByteFallback and Fuse is not supported");
    if (stop > 0) return node.Unsupported("cuts the end of a text, which cannot be streamed");
    if (decoder_.strip.count > 0) return node.Unsupported("is the second Strip of a whole text");
    if (start > UINT32_MAX) return node.Wrong("has a start that is too large");
    decoder_.strip = {std::move(content), static_cast<uint32_t>(start)};
    return {};
  }

  TokenDecoder decoder_;
  bool fused_ = false;  // what follows would work on the whole text
};

}  // namespace

Result<TokenDecoder> ReadDecoder(const std::optional<JsonNode>& node) {
  if (!node) {
    TokenDecoder spaced;
    spaced.separator = " ";  // what Hugging Face's tokenizers do without a decoder
    return spaced;
  }
  DecoderReader reader;
  MASU_TRY(reader.Read(*node));
  return reader.Take();
}

}  // namespace masu
