#include "checkpoint/plan_config_keys.h"

namespace masu {

Result<PlanVision> ReadPlanVision(const nlohmann::json& json, const std::string& wrapper,
                                  const std::string& file) {
  const PlanConfigKeys keys(json, file);
  const auto either = [&](const std::string& key) {
    return keys.Required(keys.Find("vt_" + key) ? "vt_" + key : key, 1, kMaxPlanWidth);
  };
  PlanVision vision;
  MASU_ASSIGN_OR_RETURN(vision.num_layers, either("num_hidden_layers"));
  MASU_ASSIGN_OR_RETURN(vision.hidden_size, either("hidden_size"));
  MASU_ASSIGN_OR_RETURN(vision.intermediate_size, either("intermediate_size"));
  MASU_ASSIGN_OR_RETURN(vision.patch_size, keys.WithDefault("patch_size", 1, 1024, 14));
  if (vision.num_layers > kMaxPlanLayers) return keys.Wrong("num_hidden_layers", "at most 4096");
  if (wrapper == "kimi_k25") {
    MASU_ASSIGN_OR_RETURN(const uint32_t height,
                          keys.WithDefault("init_pos_emb_height", 1, 4096, 64));
    MASU_ASSIGN_OR_RETURN(const uint32_t width,
                          keys.WithDefault("init_pos_emb_width", 1, 4096, 64));
    vision.positions = height * width;
    vision.projector = PlanVision::Projector::kPatchMerger;
    vision.merged_patches = 4;  // merge_kernel_size [2, 2]
    return vision;
  }
  MASU_ASSIGN_OR_RETURN(const uint32_t image, keys.WithDefault("image_size", 1, 65536, 896));
  const uint32_t side = image / vision.patch_size;
  vision.positions = side * side;
  return vision;
}

}  // namespace masu
