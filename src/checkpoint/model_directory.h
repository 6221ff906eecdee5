// The text files of a Hugging Face checkpoint directory: tokenizer, templates, settings. They are
// read when asked for; weights need not be there.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace masu {

// Limits are about ten times the largest published file.
inline constexpr uint64_t kMaxTokenizerBytes = uint64_t{512} << 20;
inline constexpr uint64_t kMaxTemplateBytes = uint64_t{4} << 20;

class ModelDirectory {
 public:
  explicit ModelDirectory(std::string path);

  const std::string& path() const { return path_; }
  std::string PathOf(std::string_view name) const;

  // One of: config.json, generation_config.json, tokenizer.json, tokenizer_config.json,
  // tokenizer.model, tiktoken.model, special_tokens_map.json, added_tokens.json,
  // chat_template.jinja, chat_template.json, hf_quant_config.json, model.safetensors.index.json.
  // nullopt: there is none.
  // An error if it is larger than such a file can be, or cannot be read.
  Result<std::optional<std::string>> Read(std::string_view name) const;
  // additional_chat_templates/NAME.jinja: which there are, and the text of one of them.
  Result<std::vector<std::string>> TemplateNames() const;
  Result<std::string> ReadTemplate(const std::string& name) const;

 private:
  std::string path_;
};

}  // namespace masu
