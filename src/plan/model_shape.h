// The tensors of a model and the groups of its KV cache, listed one by one, so that bytes per
// weight format, per rank and per part are sums over a list that tests can look at. Covers more
// families than masu can run. Pure data.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/model_config.h"
#include "checkpoint/plan_config.h"

namespace masu {

enum class TensorKind {
  kEmbedding,
  kOutputHead,
  kNorm,
  kBias,
  kRouter,
  kAttention,
  kIndexer,
  kDenseMlp,
  kSharedExpert,
  kRoutedExpert,
  kDraft,  // what joins a drafting layer to the model
  kVision,
};

// What a server may hold or leave out.
enum class ModelPart { kLanguageModel, kMtpLayers, kVisionTower, kAbsorbedCopies };

// How tensor parallelism divides a matrix [rows, columns]. Rows are outputs, columns inputs.
enum class Split { kReplicated, kRows, kColumns };

struct ShapeTensor {
  std::string name;  // as in the checkpoint; "*" stands for the number of an expert
  TensorKind kind = TensorKind::kNorm;
  ModelPart part = ModelPart::kLanguageModel;
  uint64_t rows = 1;
  uint64_t columns = 0;
  uint64_t count = 1;  // experts
  Split split = Split::kReplicated;
  uint64_t units = 0;  // what the split dimension consists of (heads); a rank gets whole units
  bool quantizable = false;    // a linear layer that weight formats apply to
  uint32_t element_bytes = 0;  // 0: those of the checkpoint's dtype
  std::optional<uint64_t> stored_bytes = std::nullopt;  // in the file, where the file was looked at
  std::optional<uint64_t> packed_bytes =
      std::nullopt;           // in memory, where the CPU backend serves it
  uint64_t elements() const;  // saturating
};

enum class PlanKvGroupKind { kAttention, kLatent, kIndexer };

// Layers whose caches grow alike.
struct PlanKvGroup {
  PlanKvGroupKind kind = PlanKvGroupKind::kAttention;
  uint32_t num_layers = 0;
  uint32_t num_kv_heads = 0;  // kAttention
  uint32_t head_dim = 0;      // kAttention, kIndexer
  uint32_t latent_dim = 0;    // kLatent
  uint32_t rope_dim = 0;      // kLatent
  std::optional<uint32_t> window = std::nullopt;
  std::vector<uint32_t> layers = {};  // kAttention: which of the model; empty: none of its own
};

struct ModelShape {
  PlanConfig config;
  std::vector<ShapeTensor> tensors;
  std::vector<PlanKvGroup> kv_groups;
  std::string stored_format = {};  // of a file that was looked at: "gguf"

  // Parameters of a part, as model cards count them.
  uint64_t parameters(ModelPart part) const;
};

ModelShape MakeModelShape(const PlanConfig& config);

// A GGUF file: the tensors are those that the file has, with the bytes that they take there.
Result<ModelShape> MakeGgufShape(const ModelConfig& config, const GgufFile& file);

// A checkpoint of either kind as `masu serve` loads it: the tensors that the model computes with,
// with the bytes that they take in the file and in memory.
ModelShape MakeServedShape(const Checkpoint& checkpoint);

// Used by the two above: groups of the configuration's layers.
std::vector<PlanKvGroup> MakeKvGroups(const PlanConfig& config);
// The tensors of a vision tower and its projector.
void AppendVisionTensors(const PlanVision& vision, uint32_t text_hidden_size,
                         std::vector<ShapeTensor>& tensors);

}  // namespace masu
