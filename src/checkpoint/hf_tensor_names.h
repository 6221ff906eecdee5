// Names of tensors in Hugging Face checkpoints of the dense families.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "checkpoint/tensor_accounting.h"

namespace masu {

struct HfLayerTensor {
  uint32_t layer = 0;
  std::string_view name;  // "self_attn.q_proj.weight", a view of what was split
};
// nullopt if the name is not of the form "model.layers.<number>.<name>".
std::optional<HfLayerTensor> SplitHfLayer(std::string_view stored);

// "model.layers.3.self_attn.q_proj.weight" -> "blk.3.attn_q.weight"; "" for a name that no tensor
// of these families has.
std::string CanonicalFromHf(std::string_view stored);

class HfNaming final : public TensorNaming {
 public:
  std::string Stored(std::string_view name) const override;
  // Buffers that old exporters saved: they follow from the configuration.
  bool MayIgnore(std::string_view stored) const override;
  std::string_view allow_list() const override { return "*.rotary_emb.inv_freq"; }
};

}  // namespace masu
