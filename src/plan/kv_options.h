// Ways to store K and V, from what users ask for: which encoding each layer and side has, and which
// the page of the first tokens. Pure; sizes follow from ops/kv_layout.h.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/result.h"
#include "checkpoint/model_config.h"
#include "checkpoint/plan_config.h"
#include "ops/kv_layout.h"

namespace masu {

// What a user asks for.
struct KvDtypeSpec {
  // An encoding ("int8", "auto"), or one for K and one for V ("int8/int4"), and after colons: a
  // scale mode of fp8 (dynamic, unit, checkpoint), "plain" (int4 in all layers and pages, the first
  // ones too), "norotate" (integers without rotation; to show what it is for).
  std::string dtype = "auto";
  std::string k = {};            // --kv-cache-dtype-k: in place of that side; empty: as dtype
  std::string v = {};            // --kv-cache-dtype-v
  std::string scale = "auto";    // --kv-scale, where dtype names none
  std::string skip_layers = {};  // --kv-cache-dtype-skip-layers
};

// What of a model matters here.
struct KvModelFacts {
  uint32_t num_layers = 0;
  std::vector<bool> slides = {};  // [num_layers], or empty: no sliding windows
  std::string wide = "bfloat16";  // the model's 16-bit type
  bool asks_for_fp8 = false;      // what "auto" means: the checkpoint wants an fp8 cache
  bool brings_scales = false;     // usable ones, for K and V of every layer
  bool latent = false;
  uint32_t head_dim = 0;  // 0: not known
};
KvModelFacts KvFactsOf(const PlanConfig& config);
KvModelFacts KvFactsOf(const ModelConfig& config);

struct KvOption {
  std::string name = {};                  // as the user wrote it: "fp8"
  std::string encoding = {};              // canonical: "fp8_e4m3", "int8/int4"
  std::string scale = {};                 // none | dynamic | unit | checkpoint
  std::string canonical = {};             // both: "fp8_e4m3:unit"; a name that MakeKvOption takes
  KvLayerSides sides = {};                // of the layers that are no exception
  std::vector<KvLayerSides> layers = {};  // [num_layers]
  // The fewest bits of a value in any layer.
  uint32_t bits() const;
  std::vector<KvLayerSides> first_page = {};  // [num_layers], of the first tokens; empty: as layers
};

// Errors are one line and name what there is. Without `facts.brings_scales` nothing gets the
// checkpoint's scales.
Result<KvOption> MakeKvOption(const KvDtypeSpec& spec, const KvModelFacts& facts);

// `names`: as KvDtypeSpec::dtype, or "all": those that a user may want to compare. `base` has the
// rest.
Result<std::vector<KvOption>> MakeKvOptions(const std::vector<std::string>& names,
                                            const KvDtypeSpec& base, const KvModelFacts& facts);

// Layers in a list such as "0,5,7-9,first:2,last:1,sliding_window": [num_layers].
Result<std::vector<bool>> ParseSkipLayers(const std::string& list, const KvModelFacts& facts);

}  // namespace masu
