// Parsed JSON whose errors say where: "tokenizer.json: model.merges[3] is not a string". Only for
// readers of tokenizer files; simdjson is slow to compile. A node lives as long as its document.
#pragma once

#include <simdjson.h>

#include <cstdint>
#include <initializer_list>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/result.h"

namespace masu {

class JsonNode {
 public:
  JsonNode(simdjson::dom::element element, std::string path)
      : element_(element), path_(std::move(path)) {}

  bool IsObject() const { return element_.is_object(); }
  bool IsArray() const { return element_.is_array(); }
  bool IsString() const { return element_.is_string(); }
  bool IsBool() const { return element_.is_bool(); }

  // A member that must be there.
  Result<JsonNode> Get(std::string_view key) const;
  // Nothing if it is absent or null, or if this is no object.
  std::optional<JsonNode> Find(std::string_view key) const;

  Result<std::string> String() const;
  Result<bool> Bool() const;
  Result<double> Number() const;
  Result<uint64_t> Unsigned() const;
  Result<std::string> StringOr(std::string_view key, std::string fallback) const;
  Result<bool> BoolOr(std::string_view key, bool fallback) const;
  Result<uint64_t> UnsignedOr(std::string_view key, uint64_t fallback) const;
  Result<std::vector<JsonNode>> Items() const;
  Result<std::vector<std::pair<std::string, JsonNode>>> Members() const;

  // What a file says must be understood: other members than these are refused by name.
  Result<void> AllowOnly(std::initializer_list<std::string_view> keys) const;
  // "tokenizer.json: path what", for a value that is damaged.
  Error Wrong(std::string_view what) const { return DataLoss("{} {}", path_, what); }
  // The same for a value that is sound and not supported.
  Error Unsupported(std::string_view what) const {
    return MakeError(ErrorCode::kUnimplemented, "{} {}", path_, what);
  }

  // For vocabularies, where a path per entry would cost more than reading it.
  const simdjson::dom::element& raw() const { return element_; }
  const std::string& path() const { return path_; }

 private:
  simdjson::dom::element element_;
  std::string path_;
};

class JsonDocument {
 public:
  // `name` begins every error. At most 256 MiB and 64 levels.
  static Result<std::unique_ptr<JsonDocument>> Parse(std::string_view text, std::string name);
  JsonNode root() const { return {root_, name_ + ":"}; }

 private:
  simdjson::dom::parser parser_;
  simdjson::dom::element root_;
  std::string name_;
};

// One line, for error messages: control characters as \xNN, cut at 60 bytes.
std::string Quoted(std::string_view text);

}  // namespace masu
