// Vision towers: transformer encoders over image patches, with biases and two layer norms a layer.
// Every rank holds them whole. Shapes: SigLIP of Gemma 3 in transformers 5, MoonViT of Kimi K2.5
// (vision_tower.* and mm_projector.* of its checkpoint).
#include <fmt/format.h>

#include "plan/model_shape.h"

namespace masu {

void AppendVisionTensors(const PlanVision& vision, uint32_t text_hidden_size,
                         std::vector<ShapeTensor>& tensors) {
  const uint64_t hidden = vision.hidden_size, wide = vision.intermediate_size;
  const auto add = [&](std::string name, uint64_t rows, uint64_t columns) {
    tensors.push_back({.name = std::move(name),
                       .kind = TensorKind::kVision,
                       .part = ModelPart::kVisionTower,
                       .rows = rows,
                       .columns = columns});
  };
  const auto linear = [&](const std::string& name, uint64_t rows, uint64_t columns) {
    add(name, rows, columns);
    add(name + ".bias", 1, rows);
  };
  const auto layer_norm = [&](const std::string& name, uint64_t size) { add(name, 2, size); };

  constexpr uint64_t kColours = 3;
  linear("vision_tower.patch_embed", hidden, kColours * vision.patch_size * vision.patch_size);
  add("vision_tower.position_embedding", vision.positions, hidden);
  for (uint32_t i = 0; i < vision.num_layers; ++i) {
    const std::string layer = fmt::format("vision_tower.layers.{}.", i);
    layer_norm(layer + "norm0", hidden);
    linear(layer + "qkv", 3 * hidden, hidden);
    linear(layer + "out", hidden, hidden);
    layer_norm(layer + "norm1", hidden);
    linear(layer + "fc0", wide, hidden);
    linear(layer + "fc1", hidden, wide);
  }
  layer_norm("vision_tower.final_norm", hidden);
  if (vision.projector == PlanVision::Projector::kPatchMerger) {
    const uint64_t merged = hidden * vision.merged_patches;
    layer_norm("mm_projector.pre_norm", hidden);
    linear("mm_projector.linear_1", merged, merged);
    linear("mm_projector.linear_2", text_hidden_size, merged);
  } else {
    add("multi_modal_projector.input_projection", hidden, text_hidden_size);
    add("multi_modal_projector.norm", 1, hidden);
  }
}

}  // namespace masu
