#include "checkpoint/hf_checkpoint.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <utility>

#include "checkpoint/hf_config.h"
#include "checkpoint/hf_kv_scales.h"
#include "checkpoint/hf_tensor_names.h"
#include "checkpoint/safetensors_shards.h"
#include "checkpoint/tensor_accounting.h"

namespace masu {
namespace {

class HfCheckpoint final : public Checkpoint {
 public:
  explicit HfCheckpoint(const std::string& path) : directory_(path) {}

  Result<void> Read() {
    MASU_TRY(ReadConfig());
    MASU_ASSIGN_OR_RETURN(files_, OpenShards(directory_));
    std::vector<CheckpointTensor> found = CollectTensors();
    const std::vector<CheckpointTensor> kv_scales = TakeKvScaleTensors(found, config_);
    SettleHead(found);
    MASU_ASSIGN_OR_RETURN(auto accounted,
                          AccountTensors(std::move(found), config_, path(), HfNaming()));
    tensors_ = std::move(accounted.tensors);
    ignored_.insert(ignored_.end(), accounted.ignored.begin(), accounted.ignored.end());
    kv_scales_ = ReadHfKvScales(kv_scales, kv_cache_, config_, path());
    ignored_.insert(ignored_.end(), kv_scales_.ignored.begin(), kv_scales_.ignored.end());
    if (!kv_scales_.problem.empty()) warnings_.push_back(kv_scales_.problem);
    return {};
  }

  const std::string& path() const override { return directory_.path(); }
  const ModelConfig& config() const override { return config_; }
  std::span<const CheckpointTensor> tensors() const override { return tensors_; }
  void Release(const CheckpointTensor& tensor) const override { Drop(tensor.data); }
  std::span<const std::string> ignored() const override { return ignored_; }
  std::span<const std::string> warnings() const override { return warnings_; }
  const KvScales* kv_scales() const override {
    return kv_scales_.scales ? &*kv_scales_.scales : nullptr;
  }
  const std::string& kv_scales_problem() const override { return kv_scales_.problem; }
  const GgufFile* gguf() const override { return nullptr; }
  const ModelDirectory* directory() const override { return &directory_; }

 private:
  Result<void> ReadConfig() {
    HfConfigText text{.config_path = directory_.PathOf("config.json"),
                      .config = "",
                      .generation_path = directory_.PathOf("generation_config.json"),
                      .generation = {},
                      .modelopt_path = directory_.PathOf("hf_quant_config.json"),
                      .modelopt = {}};
    MASU_ASSIGN_OR_RETURN(auto config, directory_.Read("config.json"));
    if (!config) {
      return MakeError(ErrorCode::kNotFound,
                       "{}: is missing; give a Hugging Face checkpoint directory or a .gguf file",
                       text.config_path);
    }
    text.config = std::move(*config);
    MASU_ASSIGN_OR_RETURN(text.generation, directory_.Read("generation_config.json"));
    MASU_ASSIGN_OR_RETURN(text.modelopt, directory_.Read("hf_quant_config.json"));
    MASU_ASSIGN_OR_RETURN(config_, ReadHfConfig(text, warnings_));
    MASU_ASSIGN_OR_RETURN(kv_cache_, ReadHfKvCacheScheme(text));
    config_.name = std::filesystem::path(path()).filename().string();
    return {};
  }

  std::vector<CheckpointTensor> CollectTensors() const {
    std::vector<CheckpointTensor> tensors;
    for (const SafetensorsFile& file : files_) {
      for (const SafetensorsTensor& tensor : file.tensors()) {
        tensors.push_back({.name = CanonicalFromHf(tensor.name),
                           .stored_name = tensor.name,
                           .format = tensor.format,
                           .shape = {tensor.shape.rbegin(), tensor.shape.rend()},
                           .data = tensor.data});  // of an opaque one no more is ever asked
      }
    }
    return tensors;
  }

  // A tied model whose file has a head as well: an equal one is the same matrix twice and is left
  // out. A different one is what was trained or merged last, so it is used and the user told;
  // transformers 5 decides the same.
  void SettleHead(std::vector<CheckpointTensor>& tensors) {
    const auto head = std::ranges::find(tensors, "output.weight", &CheckpointTensor::name);
    const auto embedding = std::ranges::find(tensors, "token_embd.weight", &CheckpointTensor::name);
    if (!config_.tied_embeddings || head == tensors.end() || embedding == tensors.end()) return;
    const bool equal = head->format == embedding->format && head->shape == embedding->shape &&
                       std::ranges::equal(head->data, embedding->data);
    Drop(head->data);
    Drop(embedding->data);
    if (equal) {
      ignored_.push_back(head->stored_name);
      tensors.erase(head);
      return;
    }
    config_.tied_embeddings = false;
    warnings_.push_back(fmt::format(
        "{}: tie_word_embeddings is true, but '{}' differs from '{}'; the head of the file is used "
        "(set tie_word_embeddings to false in config.json to say so)",
        path(), head->stored_name, embedding->stored_name));
  }

  void Drop(std::span<const std::byte> data) const {
    for (const SafetensorsFile& file : files_) {
      if (file.Holds(data)) return file.Release(data);
    }
  }

  ModelDirectory directory_;
  ModelConfig config_;
  KvCacheScheme kv_cache_;
  HfKvScales kv_scales_;
  std::vector<SafetensorsFile> files_;
  std::vector<CheckpointTensor> tensors_;
  std::vector<std::string> ignored_;
  std::vector<std::string> warnings_;
};

}  // namespace

Result<std::unique_ptr<Checkpoint>> OpenHfCheckpoint(const std::string& path) {
  auto checkpoint = std::make_unique<HfCheckpoint>(path);
  MASU_TRY(checkpoint->Read());
  return std::unique_ptr<Checkpoint>(std::move(checkpoint));
}

}  // namespace masu
