#include "checkpoint/json_text.h"

#include <algorithm>
#include <set>
#include <utility>
#include <vector>

#include "checkpoint/gguf_metadata.h"

namespace masu {
namespace {

using Json = nlohmann::json;

// Watches the parser: nlohmann alone keeps the last of two equal keys and any depth.
class Watcher {
 public:
  bool operator()(int depth, Json::parse_event_t event, const Json& parsed) {
    if (depth > kMaxJsonDepth) Fail(fmt::format("is nested deeper than {} levels", kMaxJsonDepth));
    switch (event) {
      case Json::parse_event_t::object_start:
        keys_.emplace_back();
        break;
      case Json::parse_event_t::object_end:
        keys_.pop_back();
        break;
      case Json::parse_event_t::key:
        if (!keys_.back().insert(parsed.get<std::string>()).second) {
          Fail(fmt::format("key {} occurs twice", QuoteName(parsed.get<std::string>())));
        }
        break;
      default:
        break;
    }
    return true;
  }
  const std::string& fault() const { return fault_; }

 private:
  void Fail(std::string fault) {
    if (fault_.empty()) fault_ = std::move(fault);
  }
  std::vector<std::set<std::string>> keys_;  // of the objects that are open
  std::string fault_;
};

// Brackets outside strings: what the parser's own stacks will hold.
bool IsTooDeep(std::string_view text) {
  JsonDepth depth;
  return std::ranges::any_of(text, [&](char c) { return depth.Push(c) > kMaxJsonDepth; });
}

}  // namespace

Result<Json> ParseStrictJson(std::string_view text) {
  if (IsTooDeep(text)) return DataLoss("is nested deeper than {} levels", kMaxJsonDepth);
  // The parser takes a zero byte for the end of the text and would not see what follows.
  if (text.find('\0') != std::string_view::npos) {
    return DataLoss("is not valid JSON: it has a zero byte");
  }
  Watcher watcher;
  try {
    Json json = Json::parse(text.begin(), text.end(), std::ref(watcher));
    if (!watcher.fault().empty()) return DataLoss("{}", watcher.fault());
    return json;
  } catch (const Json::exception& error) {
    std::string what = error.what();
    std::ranges::replace_if(
        what, [](char c) { return static_cast<unsigned char>(c) < ' '; }, ' ');
    return DataLoss("is not valid JSON: {}", what);
  }
}

Result<Json> ParseJson(std::string_view text, const std::string& file) {
  Result<Json> json = ParseStrictJson(text);
  if (!json.ok()) {
    return DataLoss("{}: {}; the file is damaged, fetch it again", file, json.error().message);
  }
  if (!json->is_object()) return DataLoss("{}: is not a JSON object; fetch it again", file);
  return json;
}

}  // namespace masu
