// The text files of a Hugging Face checkpoint directory: tokenizer, templates, settings. They are
// read when asked for; weights need not be there.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "base/result.h"

namespace masu {

class ModelDirectory {
 public:
  explicit ModelDirectory(std::string path);

  const std::string& path() const { return path_; }
  std::string PathOf(std::string_view name) const;

  // One of: config.json, generation_config.json, tokenizer.json, tokenizer_config.json,
  // tokenizer.model, tiktoken.model, special_tokens_map.json, added_tokens.json,
  // chat_template.jinja, chat_template.json, model.safetensors.index.json. nullopt: there is none.
  // An error if it is larger than such a file can be, or cannot be read.
  Result<std::optional<std::string>> Read(std::string_view name) const;

 private:
  std::string path_;
};

}  // namespace masu
