#include "plan/model_shape.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

#include "plan/memory_plan.h"
#include "plan/weight_format.h"
#include "tests/support/model_configs.h"
#include "tests/support/tiny_models.h"

namespace masu {
namespace {

const ShapeTensor& Find(const ModelShape& shape, const std::string& name,
                        ModelPart part = ModelPart::kLanguageModel) {
  for (const ShapeTensor& tensor : shape.tensors) {
    if (tensor.name == name && tensor.part == part) return tensor;
  }
  ADD_FAILURE() << "no tensor " << name;
  return shape.tensors.front();
}

uint64_t RankBytes(const ModelShape& shape, const ShapeTensor& tensor, const std::string& weights,
                   uint64_t ranks) {
  const WeightChoice choice = ParseWeightChoice(weights, shape).value();
  return TensorSizer::Make(shape, choice).value().Bytes(tensor, ranks);
}

TEST(ModelShape, GroupedAttentionSplitsHeadsAndReplicatesFewKvHeads) {
  const ModelShape shape = MakeModelShape(
      ParsePlanConfig(DenseConfig({"qwen2", 3584, 18944, 28, 28, 4, 128, 152064}), "c").value());
  const ShapeTensor& q = Find(shape, "model.layers.0.self_attn.q_proj");
  EXPECT_EQ(q.rows, 3584u);
  EXPECT_EQ(RankBytes(shape, q, "bf16", 7), 2u * 512 * 3584);
  const ShapeTensor& k = Find(shape, "model.layers.27.self_attn.k_proj");
  EXPECT_EQ(RankBytes(shape, k, "bf16", 1), 2u * 512 * 3584);
  EXPECT_EQ(RankBytes(shape, k, "bf16", 4), 2u * 128 * 3584);
  EXPECT_EQ(RankBytes(shape, k, "bf16", 28), 2u * 128 * 3584);
  EXPECT_EQ(RankBytes(shape, Find(shape, "model.layers.0.self_attn.k_proj.bias"), "fp8", 2), 512u);
  const ShapeTensor& down = Find(shape, "model.layers.0.mlp.down_proj");
  EXPECT_EQ(RankBytes(shape, down, "bf16", 4), 2u * 3584 * 18944 / 4);
  EXPECT_EQ(RankBytes(shape, Find(shape, "model.norm"), "fp8", 4), 2u * 3584);
  EXPECT_EQ(RankBytes(shape, Find(shape, "lm_head"), "fp8", 4), 2u * 152064 / 4 * 3584);
}

TEST(ModelShape, LatentAttentionKeepsDownProjectionsWhole) {
  const ModelShape shape = MakeModelShape(ParsePlanConfig(Glm52Config(), "c").value());
  const std::string attention = "model.layers.5.self_attn.";
  for (const char* name : {"q_a_proj", "kv_a_proj_with_mqa", "q_a_layernorm", "kv_a_layernorm"}) {
    EXPECT_EQ(Find(shape, attention + name).split, Split::kReplicated) << name;
  }
  EXPECT_EQ(RankBytes(shape, Find(shape, attention + "q_b_proj"), "bf16", 8), 2u * 8 * 256 * 2048);
  EXPECT_EQ(RankBytes(shape, Find(shape, attention + "o_proj"), "bf16", 8), 2u * 6144 * 8 * 256);
  const ShapeTensor& copy =
      Find(shape, attention + "kv_b_proj (absorbed)", ModelPart::kAbsorbedCopies);
  EXPECT_EQ(RankBytes(shape, copy, "fp8", 8), 2u * 8 * (192 + 256) * 512);
  // Layer 5 reuses the picks of layer 2; the drafting layer has an indexer of its own.
  int indexers = 0;
  for (const ShapeTensor& tensor : shape.tensors) {
    indexers += tensor.name.ends_with("indexer.wq_b") ? 1 : 0;
  }
  EXPECT_EQ(indexers, 22);
  EXPECT_EQ(Find(shape, "model.layers.78.self_attn.indexer.wk", ModelPart::kMtpLayers).rows, 128u);
  EXPECT_EQ(Find(shape, "model.layers.78.eh_proj", ModelPart::kMtpLayers).columns, 12288u);
}

TEST(ModelShape, ExpertsAreOneEntryWithACount) {
  const ModelShape shape = MakeModelShape(ParsePlanConfig(KimiK26Config(), "c").value());
  const ShapeTensor& up = Find(shape, "model.layers.1.mlp.experts.*.up_proj");
  EXPECT_EQ(up.count, 384u);
  EXPECT_EQ(up.kind, TensorKind::kRoutedExpert);
  EXPECT_EQ(RankBytes(shape, up, "checkpoint", 1), 384u * 2048 * (7168 / 2 + 7168 / 32 * 2));
  const ShapeTensor& shared = Find(shape, "model.layers.1.mlp.shared_experts.up_proj");
  EXPECT_EQ(RankBytes(shape, shared, "checkpoint", 8), 2u * 2048 / 8 * 7168);
  EXPECT_EQ(Find(shape, "model.layers.0.mlp.up_proj").rows, 18432u);
  const ShapeTensor& bias = Find(shape, "model.layers.1.mlp.gate.e_score_correction_bias");
  EXPECT_EQ(RankBytes(shape, bias, "checkpoint", 8), 4u * 384);
}

TEST(ModelShape, GgufFilesBringTheirOwnTensorsAndBytes) {
  const ByteVector bytes = MakeTinyRand({.layers = 3, .weights = GgmlFormat::kQ4_1}).value();
  const auto file = GgufFile::Parse(bytes, "tiny.gguf").value();
  const ModelShape shape = MakeGgufShape(ReadModelConfig(*file).value(), *file).value();
  PlanRequest request;
  request.memory = GiB(1);
  const MemoryPlan plan = MakeMemoryPlan(shape, request).value();
  uint64_t stored = 0;
  for (const GgufTensor& tensor : file->tensors()) stored += tensor.data.size();
  EXPECT_EQ(plan.rows[0].weights.checkpoint_bytes, stored);
  EXPECT_EQ(plan.rows[0].weights.weights_bytes_per_rank, stored);
  EXPECT_EQ(plan.rows[0].kv_bytes_per_token, 2u * 3 * 2 * 16 * 2);
  EXPECT_EQ(RankBytes(shape, Find(shape, "blk.0.attn_q.weight"), "checkpoint", 4),
            64u / 4 * 64 / 32 * 20);
  EXPECT_EQ(RankBytes(shape, Find(shape, "blk.0.attn_q.weight"), "bf16", 4), 2u * 64 / 4 * 64);
  EXPECT_EQ(Find(shape, "output_norm.weight").split, Split::kReplicated);
}

}  // namespace
}  // namespace masu
