#include "text/open_tokenizer.h"

#include <filesystem>

#include "checkpoint/generation_config.h"
#include "checkpoint/model_directory.h"
#include "checkpoint/whole_file.h"

namespace masu {
namespace {

Result<HuggingFaceTokenizerFiles> ReadDirectory(const ModelDirectory& directory) {
  HuggingFaceTokenizerFiles files;
  MASU_ASSIGN_OR_RETURN(files.tokenizer_json, directory.Read("tokenizer.json"));
  MASU_ASSIGN_OR_RETURN(files.tokenizer_config_json, directory.Read("tokenizer_config.json"));
  MASU_ASSIGN_OR_RETURN(files.special_tokens_map_json, directory.Read("special_tokens_map.json"));
  MASU_ASSIGN_OR_RETURN(files.tokenizer_model, directory.Read("tokenizer.model"));
  MASU_ASSIGN_OR_RETURN(files.tiktoken_model, directory.Read("tiktoken.model"));
  MASU_ASSIGN_OR_RETURN(files.end_of_generation, ReadEosIds(directory));
  return files;
}

Result<std::unique_ptr<Tokenizer>> FromFiles(const HuggingFaceTokenizerFiles& files,
                                             const std::string& path) {
  auto tokenizer = Tokenizer::FromHuggingFace(files);
  if (tokenizer.ok()) return tokenizer;
  return Error{tokenizer.error().code, path + ": " + tokenizer.error().message, {}};
}

}  // namespace

Result<std::unique_ptr<Tokenizer>> OpenTokenizer(const std::string& path) {
  std::error_code error;
  HuggingFaceTokenizerFiles files;
  if (std::filesystem::is_directory(path, error)) {
    MASU_ASSIGN_OR_RETURN(files, ReadDirectory(ModelDirectory(path)));
  } else if (path.ends_with(".json")) {
    MASU_ASSIGN_OR_RETURN(files.tokenizer_json, ReadWholeFile(path, kMaxTokenizerBytes));
  } else if (path.ends_with(".model")) {
    MASU_ASSIGN_OR_RETURN(files.tokenizer_model, ReadWholeFile(path, kMaxTokenizerBytes));
  } else {
    MASU_ASSIGN_OR_RETURN(const auto file, GgufFile::Open(path));
    return Tokenizer::FromGguf(*file);
  }
  return FromFiles(files, path);
}

Result<std::unique_ptr<Tokenizer>> OpenTokenizer(const Checkpoint& checkpoint) {
  if (checkpoint.gguf() != nullptr) return Tokenizer::FromGguf(*checkpoint.gguf());
  MASU_ASSIGN_OR_RETURN(const HuggingFaceTokenizerFiles files,
                        ReadDirectory(*checkpoint.directory()));
  return FromFiles(files, checkpoint.path());
}

}  // namespace masu
