#include "text/open_chat_template.h"

#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>
#include <vector>

#include "checkpoint/gguf.h"
#include "checkpoint/model_directory.h"
#include "text/json_node.h"

namespace masu {
namespace {

constexpr const char* kDefault = "default";
constexpr const char* kToolUse = "tool_use";

using Sources = std::map<std::string, std::string>;  // by name

Result<Sources> ReadGguf(const GgufFile& file) {
  constexpr std::string_view kKey = "tokenizer.chat_template";
  Sources sources;
  for (const std::string& key : file.keys()) {
    const bool named = key.starts_with(kKey) && key.size() > kKey.size() && key[kKey.size()] == '.';
    if (key != kKey && !named) continue;
    MASU_ASSIGN_OR_RETURN(auto source, file.GetString(key));
    sources[named ? key.substr(kKey.size() + 1) : kDefault] = std::move(source).value_or("");
  }
  return sources;
}

// A template as text, or a list of {"name", "template"}.
Result<Sources> ReadNode(const JsonNode& node) {
  Sources sources;
  if (node.IsString()) {
    MASU_ASSIGN_OR_RETURN(sources[kDefault], node.String());
    return sources;
  }
  MASU_ASSIGN_OR_RETURN(const auto items, node.Items());
  for (const JsonNode& item : items) {
    MASU_ASSIGN_OR_RETURN(const JsonNode name_node, item.Get("name"));
    MASU_ASSIGN_OR_RETURN(const std::string name, name_node.String());
    MASU_ASSIGN_OR_RETURN(const JsonNode source, item.Get("template"));
    MASU_ASSIGN_OR_RETURN(sources[name], source.String());
  }
  return sources;
}

Result<Sources> ReadDirectory(const ModelDirectory& directory) {
  // Files of templates beat what a configuration says, all together, as in transformers.
  Sources sources;
  MASU_ASSIGN_OR_RETURN(auto jinja, directory.Read("chat_template.jinja"));
  if (jinja) sources[kDefault] = std::move(*jinja);
  MASU_ASSIGN_OR_RETURN(const auto names, directory.TemplateNames());
  for (const std::string& name : names) {
    MASU_ASSIGN_OR_RETURN(sources[name], directory.ReadTemplate(name));
  }
  if (!sources.empty()) return sources;
  for (const char* file : {"chat_template.json", "tokenizer_config.json"}) {
    MASU_ASSIGN_OR_RETURN(const auto json, directory.Read(file));
    if (!json) continue;
    MASU_ASSIGN_OR_RETURN(const auto document, JsonDocument::Parse(*json, directory.PathOf(file)));
    const auto node = document->root().Find("chat_template");
    if (node) return ReadNode(*node);
  }
  return sources;
}

Result<std::unique_ptr<ChatTemplate>> ParseNamed(const Sources& sources, const std::string& name) {
  const auto found = sources.find(name);
  if (found == sources.end()) {
    if (sources.empty()) {
      return MakeError(ErrorCode::kNotFound, "the checkpoint has no chat template");
    }
    std::string known;
    for (const auto& [other, source] : sources) {
      known += (known.empty() ? "" : ", ") + Quoted(other);
    }
    return MakeError(ErrorCode::kNotFound,
                     "the checkpoint has no chat template named '{}'; it has: {}", Quoted(name),
                     known);
  }
  auto parsed = ChatTemplate::Parse(found->second);
  if (parsed.ok()) return parsed;
  return Error{parsed.error().code,
               "the checkpoint's chat template cannot be used: " + parsed.error().message,
               {}};
}

// Two templates that take turns.
class ToolAwareTemplate final : public ChatTemplate {
 public:
  ToolAwareTemplate(std::unique_ptr<ChatTemplate> plain, std::unique_ptr<ChatTemplate> with_tools)
      : plain_(std::move(plain)), with_tools_(std::move(with_tools)) {}

  Result<std::vector<TextSegment>> Render(const ChatTemplateInput& input) const override {
    const bool has_tools = input.tools != nullptr && !input.tools->is_null();
    return (has_tools ? with_tools_ : plain_)->Render(input);
  }

 private:
  std::unique_ptr<ChatTemplate> plain_;
  std::unique_ptr<ChatTemplate> with_tools_;
};

Result<std::unique_ptr<ChatTemplate>> Choose(const Sources& sources, const std::string& name) {
  MASU_ASSIGN_OR_RETURN(auto plain, ParseNamed(sources, name.empty() ? kDefault : name));
  if (!name.empty() || !sources.contains(kToolUse)) return plain;
  MASU_ASSIGN_OR_RETURN(auto with_tools, ParseNamed(sources, kToolUse));
  return std::unique_ptr<ChatTemplate>(
      std::make_unique<ToolAwareTemplate>(std::move(plain), std::move(with_tools)));
}

}  // namespace

Result<std::unique_ptr<ChatTemplate>> OpenChatTemplate(const std::string& path,
                                                       const std::string& name) {
  std::error_code error;
  Sources sources;
  if (std::filesystem::is_directory(path, error)) {
    MASU_ASSIGN_OR_RETURN(sources, ReadDirectory(ModelDirectory(path)));
  } else {
    MASU_ASSIGN_OR_RETURN(const auto file, GgufFile::Open(path));
    MASU_ASSIGN_OR_RETURN(sources, ReadGguf(*file));
  }
  return Choose(sources, name);
}

Result<std::unique_ptr<ChatTemplate>> OpenChatTemplate(const Checkpoint& checkpoint,
                                                       const std::string& name) {
  const GgufFile* gguf = checkpoint.gguf();
  MASU_ASSIGN_OR_RETURN(const Sources sources,
                        gguf != nullptr ? ReadGguf(*gguf) : ReadDirectory(*checkpoint.directory()));
  return Choose(sources, name);
}

}  // namespace masu
