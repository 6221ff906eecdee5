#include "checkpoint/checkpoint.h"

#include <algorithm>
#include <filesystem>
#include <utility>

#include "checkpoint/hf_checkpoint.h"
#include "checkpoint/tensor_accounting.h"

namespace masu {
namespace {

class GgufCheckpoint final : public Checkpoint {
 public:
  GgufCheckpoint(std::unique_ptr<GgufFile> file, ModelConfig config,
                 std::vector<CheckpointTensor> tensors)
      : file_(std::move(file)), config_(std::move(config)), tensors_(std::move(tensors)) {}

  const std::string& path() const override { return file_->path(); }
  const ModelConfig& config() const override { return config_; }
  std::span<const CheckpointTensor> tensors() const override { return tensors_; }
  void Release(const CheckpointTensor& tensor) const override {
    const GgufTensor* stored = file_->FindTensor(tensor.stored_name);
    if (stored != nullptr) file_->Release(*stored);
  }
  std::span<const std::string> ignored() const override { return {}; }
  std::span<const std::string> warnings() const override { return {}; }
  // The format has no place for them.
  const KvScales* kv_scales() const override { return nullptr; }
  const std::string& kv_scales_problem() const override { return no_problem_; }
  const GgufFile* gguf() const override { return file_.get(); }
  const ModelDirectory* directory() const override { return nullptr; }

 private:
  std::unique_ptr<GgufFile> file_;
  ModelConfig config_;
  std::vector<CheckpointTensor> tensors_;
  std::string no_problem_;
};

Result<std::unique_ptr<Checkpoint>> OpenGgufCheckpoint(const std::string& path) {
  MASU_ASSIGN_OR_RETURN(auto file, GgufFile::Open(path));
  MASU_ASSIGN_OR_RETURN(ModelConfig config, ReadModelConfig(*file));
  MASU_ASSIGN_OR_RETURN(auto accounted,
                        AccountTensors(TensorsOf(*file), config, path, TensorNaming()));
  return std::unique_ptr<Checkpoint>(
      new GgufCheckpoint(std::move(file), std::move(config), std::move(accounted.tensors)));
}

}  // namespace

uint64_t CheckpointTensor::elements() const {
  uint64_t elements = 1;
  for (const uint64_t size : shape) elements *= size;
  return elements;
}

const CheckpointTensor* Checkpoint::Find(std::string_view name) const {
  const auto found = std::ranges::find(tensors(), name, &CheckpointTensor::name);
  return found == tensors().end() ? nullptr : &*found;
}

Result<std::unique_ptr<Checkpoint>> Checkpoint::Open(const std::string& path) {
  std::error_code error;
  if (!std::filesystem::exists(path, error)) {
    return MakeError(ErrorCode::kNotFound,
                     "{}: no such file; give the path of a .gguf file or of a Hugging Face "
                     "checkpoint directory",
                     path);
  }
  if (std::filesystem::is_directory(path, error)) return OpenHfCheckpoint(path);
  if (path.ends_with(".safetensors")) {
    return InvalidArgument(
        "{}: is one file of a checkpoint; give the directory that holds it and "
        "config.json",
        path);
  }
  return OpenGgufCheckpoint(path);
}

std::string_view FormatName(GgmlFormat format) {
  switch (format) {
    case GgmlFormat::kF32:
      return "F32";
    case GgmlFormat::kF16:
      return "F16";
    case GgmlFormat::kBF16:
      return "BF16";
    case GgmlFormat::kQ8_0:
      return "Q8_0";
    case GgmlFormat::kQ4_0:
      return "Q4_0";
    case GgmlFormat::kQ4_1:
      return "Q4_1";
    case GgmlFormat::kQ5_0:
      return "Q5_0";
    case GgmlFormat::kQ5_1:
      return "Q5_1";
    case GgmlFormat::kQ4_K:
      return "Q4_K";
    case GgmlFormat::kQ5_K:
      return "Q5_K";
    case GgmlFormat::kQ6_K:
      return "Q6_K";
  }
  return "?";
}

}  // namespace masu
