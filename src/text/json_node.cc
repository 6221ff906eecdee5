#include "text/json_node.h"

#include <algorithm>

#include "text/utf8.h"

namespace masu {
namespace {

// The largest tokenizer.json of a known model has 33 MB.
constexpr size_t kMaxBytes = size_t{256} << 20;
// Nested sequences are as deep as this, so that recursion over them is bounded as well.
constexpr size_t kMaxDepth = 64;

std::string Join(const std::string& path, std::string_view key) {
  return path + (path.ends_with(':') ? " " : ".") + Quoted(key);
}

}  // namespace

std::string Quoted(std::string_view text) {
  constexpr size_t kLongest = 60;
  std::string out;
  for (const char c : text.substr(0, kLongest)) {
    const auto byte = static_cast<uint8_t>(c);
    if (byte < 0x20 || byte == 0x7F) {
      out += fmt::format("\\x{:02X}", byte);
    } else {
      out += c;
    }
  }
  out.resize(ValidUtf8Prefix(out));
  return text.size() > kLongest ? out + "..." : out;
}

Result<std::unique_ptr<JsonDocument>> JsonDocument::Parse(std::string_view text, std::string name) {
  if (text.size() > kMaxBytes) {
    return DataLoss("{} has {} bytes; at most {} are supported", name, text.size(), kMaxBytes);
  }
  auto document = std::make_unique<JsonDocument>();
  simdjson::error_code error = document->parser_.allocate(text.size() + 1, kMaxDepth);
  if (!error) error = document->parser_.parse(text.data(), text.size()).get(document->root_);
  if (error) {
    return DataLoss("{} is not valid JSON: {}", name, simdjson::error_message(error));
  }
  document->name_ = std::move(name);
  return document;
}

Result<JsonNode> JsonNode::Get(std::string_view key) const {
  if (!IsObject()) return Wrong("is not an object");
  auto found = Find(key);
  if (!found) return DataLoss("{} is missing", Join(path_, key));
  return std::move(*found);
}

std::optional<JsonNode> JsonNode::Find(std::string_view key) const {
  simdjson::dom::element value;
  if (element_.at_key(key).get(value) || value.is_null()) return std::nullopt;
  return JsonNode(value, Join(path_, key));
}

Result<std::string> JsonNode::String() const {
  std::string_view value;
  if (element_.get(value)) return Wrong("is not a string");
  return std::string(value);
}

Result<bool> JsonNode::Bool() const {
  bool value = false;
  if (element_.get(value)) return Wrong("is not true or false");
  return value;
}

Result<double> JsonNode::Number() const {
  double value = 0;
  if (element_.get(value)) return Wrong("is not a number");
  return value;
}

Result<uint64_t> JsonNode::Unsigned() const {
  uint64_t value = 0;
  if (element_.get(value)) return Wrong("is not a whole number from 0 on");
  return value;
}

Result<std::string> JsonNode::StringOr(std::string_view key, std::string fallback) const {
  const auto found = Find(key);
  return found ? found->String() : Result<std::string>(std::move(fallback));
}

Result<bool> JsonNode::BoolOr(std::string_view key, bool fallback) const {
  const auto found = Find(key);
  return found ? found->Bool() : Result<bool>(fallback);
}

Result<uint64_t> JsonNode::UnsignedOr(std::string_view key, uint64_t fallback) const {
  const auto found = Find(key);
  return found ? found->Unsigned() : Result<uint64_t>(fallback);
}

Result<std::vector<JsonNode>> JsonNode::Items() const {
  simdjson::dom::array array;
  if (element_.get(array)) return Wrong("is not an array");
  std::vector<JsonNode> items;
  for (const simdjson::dom::element element : array) {
    items.emplace_back(element, fmt::format("{}[{}]", path_, items.size()));
  }
  return items;
}

Result<std::vector<std::pair<std::string, JsonNode>>> JsonNode::Members() const {
  simdjson::dom::object object;
  if (element_.get(object)) return Wrong("is not an object");
  std::vector<std::pair<std::string, JsonNode>> members;
  for (const auto field : object) {
    members.emplace_back(std::string(field.key), JsonNode(field.value, Join(path_, field.key)));
  }
  return members;
}

Result<void> JsonNode::AllowOnly(std::initializer_list<std::string_view> keys) const {
  simdjson::dom::object object;
  if (element_.get(object)) return Wrong("is not an object");
  for (const auto field : object) {
    if (std::find(keys.begin(), keys.end(), field.key) != keys.end()) continue;
    return MakeError(ErrorCode::kUnimplemented, "{} is not known", Join(path_, field.key));
  }
  return {};
}

}  // namespace masu
