#include "text/open_tokenizer.h"

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <utility>

#include "text/json_node.h"

namespace masu {
namespace {

namespace fs = std::filesystem;

Result<std::optional<std::string>> ReadIfThere(const std::string& path) {
  std::error_code error;
  if (!fs::is_regular_file(path, error)) return std::optional<std::string>();
  MASU_ASSIGN_OR_RETURN(std::string bytes, ReadWholeFile(path));
  return std::optional<std::string>(std::move(bytes));
}

// eos_token_id of generation_config.json: one id or several.
Result<std::vector<TokenId>> ReadEnds(const std::string& json) {
  MASU_ASSIGN_OR_RETURN(const auto document, JsonDocument::Parse(json, "generation_config.json"));
  std::vector<TokenId> ends;
  const auto node = document->root().Find("eos_token_id");
  if (!node) return ends;
  std::vector<JsonNode> items = {*node};
  if (node->IsArray()) {
    MASU_ASSIGN_OR_RETURN(items, node->Items());
  }
  for (const JsonNode& item : items) {
    MASU_ASSIGN_OR_RETURN(const uint64_t id, item.Unsigned());
    if (id > INT32_MAX) return item.Wrong("is too large");
    ends.push_back(static_cast<TokenId>(id));
  }
  return ends;
}

Result<HuggingFaceTokenizerFiles> ReadDirectory(const std::string& directory) {
  HuggingFaceTokenizerFiles files;
  const auto read = [&](const char* name) { return ReadIfThere(directory + "/" + name); };
  MASU_ASSIGN_OR_RETURN(files.tokenizer_json, read("tokenizer.json"));
  MASU_ASSIGN_OR_RETURN(files.tokenizer_config_json, read("tokenizer_config.json"));
  MASU_ASSIGN_OR_RETURN(files.special_tokens_map_json, read("special_tokens_map.json"));
  MASU_ASSIGN_OR_RETURN(files.tokenizer_model, read("tokenizer.model"));
  MASU_ASSIGN_OR_RETURN(files.tiktoken_model, read("tiktoken.model"));
  MASU_ASSIGN_OR_RETURN(const auto generation, read("generation_config.json"));
  if (generation) {
    MASU_ASSIGN_OR_RETURN(files.end_of_generation, ReadEnds(*generation));
  }
  return files;
}

// A template as text, or a list of {"name", "template"}.
Result<std::string> ChooseTemplate(const JsonNode& node, const std::string& name) {
  if (node.IsString()) return node.String();
  MASU_ASSIGN_OR_RETURN(const auto items, node.Items());
  const std::string wanted = name.empty() ? "default" : name;
  for (const JsonNode& item : items) {
    MASU_ASSIGN_OR_RETURN(const JsonNode name_node, item.Get("name"));
    MASU_ASSIGN_OR_RETURN(const std::string known, name_node.String());
    if (known != wanted) continue;
    MASU_ASSIGN_OR_RETURN(const JsonNode source, item.Get("template"));
    return source.String();
  }
  return node.Wrong("has no template named \"" + Quoted(wanted) + "\"");
}

Error NoTemplate(const std::string& path) {
  return MakeError(ErrorCode::kNotFound, "{} has no chat template", path);
}

Result<std::string> ReadGgufTemplate(const std::string& path, const std::string& name) {
  MASU_ASSIGN_OR_RETURN(const auto file, GgufFile::Open(path));
  const std::string key = "tokenizer.chat_template" + (name.empty() ? "" : "." + name);
  MASU_ASSIGN_OR_RETURN(const auto source, file->GetString(key));
  if (!source) return NoTemplate(path);
  return std::string(*source);
}

}  // namespace

Result<std::string> ReadWholeFile(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  std::error_code error;
  if (!in || fs::is_directory(path, error)) {
    return MakeError(ErrorCode::kNotFound, "{}: {}", path,
                     in ? "is a directory" : std::strerror(errno));
  }
  std::string bytes{std::istreambuf_iterator<char>(in), {}};
  if (in.bad()) return DataLoss("{}: {}", path, std::strerror(errno));
  return bytes;
}

Result<std::unique_ptr<Tokenizer>> OpenTokenizer(const std::string& path) {
  std::error_code error;
  HuggingFaceTokenizerFiles files;
  if (fs::is_directory(path, error)) {
    MASU_ASSIGN_OR_RETURN(files, ReadDirectory(path));
  } else if (path.ends_with(".json")) {
    MASU_ASSIGN_OR_RETURN(files.tokenizer_json, ReadWholeFile(path));
  } else if (path.ends_with(".model")) {
    MASU_ASSIGN_OR_RETURN(files.tokenizer_model, ReadWholeFile(path));
  } else {
    MASU_ASSIGN_OR_RETURN(const auto file, GgufFile::Open(path));
    return Tokenizer::FromGguf(*file);
  }
  auto tokenizer = Tokenizer::FromHuggingFace(files);
  if (tokenizer.ok()) return tokenizer;
  return Error{tokenizer.error().code, path + ": " + tokenizer.error().message, {}};
}

Result<std::string> ReadChatTemplate(const std::string& path, const std::string& name) {
  std::error_code error;
  if (!fs::is_directory(path, error)) return ReadGgufTemplate(path, name);
  // A file of its own beats what the configuration says.
  const std::string beside =
      name.empty() ? "/chat_template.jinja" : "/additional_chat_templates/" + name + ".jinja";
  MASU_ASSIGN_OR_RETURN(auto jinja, ReadIfThere(path + beside));
  if (jinja) return std::move(*jinja);
  for (const char* file : {"chat_template.json", "tokenizer_config.json"}) {
    MASU_ASSIGN_OR_RETURN(const auto json, ReadIfThere(path + "/" + file));
    if (!json) continue;
    MASU_ASSIGN_OR_RETURN(const auto document, JsonDocument::Parse(*json, file));
    const auto node = document->root().Find("chat_template");
    if (node) return ChooseTemplate(*node, name);
  }
  return NoTemplate(path);
}

}  // namespace masu
