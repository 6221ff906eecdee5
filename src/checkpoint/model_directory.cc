#include "checkpoint/model_directory.h"

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <utility>

#include "base/check.h"
#include "checkpoint/whole_file.h"

namespace masu {
namespace {

constexpr uint64_t kMiB = uint64_t{1} << 20;
constexpr std::string_view kTemplateFolder = "additional_chat_templates";

struct TextFile {
  std::string_view name;
  uint64_t max_bytes;
};
constexpr TextFile kTextFiles[] = {
    {"config.json", 4 * kMiB},
    {"generation_config.json", kMiB},
    {"tokenizer.json", kMaxTokenizerBytes},
    {"tokenizer_config.json", 64 * kMiB},
    {"tokenizer.model", 64 * kMiB},
    {"tiktoken.model", 64 * kMiB},
    {"special_tokens_map.json", 16 * kMiB},
    {"added_tokens.json", 64 * kMiB},
    {"chat_template.jinja", kMaxTemplateBytes},
    {"chat_template.json", kMaxTemplateBytes},
    {"hf_quant_config.json", 4 * kMiB},
    {"model.safetensors.index.json", 256 * kMiB},
};

}  // namespace

ModelDirectory::ModelDirectory(std::string path) : path_(std::move(path)) {
  while (path_.size() > 1 && path_.ends_with('/')) path_.pop_back();
}

std::string ModelDirectory::PathOf(std::string_view name) const {
  return path_ + "/" + std::string(name);
}

Result<std::optional<std::string>> ModelDirectory::Read(std::string_view name) const {
  const auto* file = std::ranges::find(kTextFiles, name, &TextFile::name);
  MASU_CHECK(file != std::end(kTextFiles));
  std::error_code error;
  if (!std::filesystem::exists(PathOf(name), error)) return std::optional<std::string>();
  MASU_ASSIGN_OR_RETURN(std::string text, ReadWholeFile(PathOf(name), file->max_bytes));
  return std::optional<std::string>(std::move(text));
}

Result<std::vector<std::string>> ModelDirectory::TemplateNames() const {
  std::vector<std::string> names;
  std::error_code error;
  const std::string folder = PathOf(kTemplateFolder);
  if (!std::filesystem::exists(folder, error)) return names;
  for (auto entry = std::filesystem::directory_iterator(folder, error);
       !error && entry != std::filesystem::directory_iterator(); entry.increment(error)) {
    if (entry->path().extension() == ".jinja") names.push_back(entry->path().stem().string());
  }
  if (error) return InvalidArgument("{}: cannot be read: {}", folder, error.message());
  std::ranges::sort(names);
  return names;
}

Result<std::string> ModelDirectory::ReadTemplate(const std::string& name) const {
  return ReadWholeFile(PathOf(kTemplateFolder) + "/" + name + ".jinja", kMaxTemplateBytes);
}

}  // namespace masu
