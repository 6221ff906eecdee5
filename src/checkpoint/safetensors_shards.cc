#include "checkpoint/safetensors_shards.h"

#include <filesystem>
#include <map>
#include <set>
#include <utility>

#include "checkpoint/gguf_metadata.h"
#include "checkpoint/json_text.h"

namespace masu {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kSingle = "model.safetensors";
constexpr std::string_view kIndex = "model.safetensors.index.json";

// What to say when there are no safetensors to read: directories with weights of another kind are
// common.
Error NoWeights(const ModelDirectory& directory) {
  std::string other;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(directory.path(), error)) {
    const std::string name = entry.path().filename().string();
    const std::string extension = entry.path().extension().string();
    if (extension == ".safetensors" || extension == ".bin" || extension == ".pth" ||
        extension == ".gguf") {
      if (other.empty() || name < other) other = name;
    }
  }
  if (other.empty()) {
    return MakeError(ErrorCode::kNotFound, "{}: has neither {} nor {}; fetch the weights",
                     directory.path(), kSingle, kIndex);
  }
  return MakeError(ErrorCode::kNotFound,
                   "{}: has neither {} nor {}, but {}; fetch the safetensors files with their "
                   "index, or give the path of a .gguf file",
                   directory.path(), kSingle, kIndex, QuoteName(other));
}

// A name in this folder, never a path out of it.
bool IsPlainName(const std::string& name) {
  return !name.empty() && name.front() != '.' && name.find('/') == std::string::npos &&
         name.find('\0') == std::string::npos;
}

using Index = std::map<std::string, std::set<std::string>>;  // file -> its tensors

Result<Index> ReadIndex(const ModelDirectory& directory, const std::string& text) {
  const std::string file = directory.PathOf(kIndex);
  MASU_ASSIGN_OR_RETURN(const nlohmann::json json, ParseJson(text, file));
  const auto map = json.find("weight_map");
  if (map == json.end() || !map->is_object() || map->empty()) {
    return DataLoss("{}: has no object 'weight_map' with tensors; fetch it again", file);
  }
  Index index;
  for (const auto& [tensor, shard] : map->items()) {
    if (!shard.is_string() || !IsPlainName(shard.get<std::string>())) {
      return DataLoss(
          "{}: tensor {} is said to be in {}, expected the name of a file beside the "
          "index; fetch it again",
          file, QuoteName(tensor),
          shard.is_string() ? QuoteName(shard.get<std::string>()) : "no string");
    }
    index[shard.get<std::string>()].insert(tensor);
  }
  return index;
}

Result<SafetensorsFile> OpenShard(const ModelDirectory& directory, const std::string& name,
                                  const std::set<std::string>& promised) {
  auto shard = SafetensorsFile::Open(directory.PathOf(name));
  if (!shard.ok() && shard.error().code == ErrorCode::kNotFound) {
    return MakeError(ErrorCode::kNotFound,
                     "{}: is missing; {} says that it holds {} tensors, first {}; fetch it",
                     directory.PathOf(name), kIndex, promised.size(), QuoteName(*promised.begin()));
  }
  if (!shard.ok()) return shard.error();
  std::set<std::string> left = promised;
  for (const SafetensorsTensor& tensor : shard->tensors()) {
    if (left.erase(tensor.name) == 1) continue;
    return DataLoss("{}: holds tensor {}, which {} does not place there; fetch both again",
                    shard->path(), QuoteName(tensor.name), kIndex);
  }
  if (left.empty()) return shard;
  return DataLoss("{}: {} tensors that {} places there are missing, first {}; fetch both again",
                  shard->path(), left.size(), kIndex, QuoteName(*left.begin()));
}

}  // namespace

Result<std::vector<SafetensorsFile>> OpenShards(const ModelDirectory& directory) {
  std::vector<SafetensorsFile> files;
  std::error_code error;
  // The single file first, as transformers does.
  if (fs::exists(directory.PathOf(kSingle), error)) {
    MASU_ASSIGN_OR_RETURN(SafetensorsFile file, SafetensorsFile::Open(directory.PathOf(kSingle)));
    files.push_back(std::move(file));
    return files;
  }
  MASU_ASSIGN_OR_RETURN(const auto text, directory.Read(kIndex));
  if (!text) return NoWeights(directory);
  MASU_ASSIGN_OR_RETURN(const Index index, ReadIndex(directory, *text));
  for (const auto& [name, tensors] : index) {
    MASU_ASSIGN_OR_RETURN(SafetensorsFile file, OpenShard(directory, name, tensors));
    files.push_back(std::move(file));
  }
  return files;
}

}  // namespace masu
