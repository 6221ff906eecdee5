// Random numbers to measure with: products of zeros, or of one number, are faster than those of a
// model. Nothing here is meant to be a model's distribution.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/result.h"
#include "base/typed_id.h"
#include "ops/kv_layout.h"
#include "ops/ops.h"
#include "quant/ggml_blocks.h"

namespace masu {

// Standard normal numbers, rounded to bfloat16 on request: what a product takes as such.
std::vector<float> RandomActivations(size_t count, bool bf16 = false);

// A weight as a checkpoint stores it: normal numbers of variance 1 / inputs, so that products are
// of size 1. Some rows are drawn and encoded, the others repeat them. `inputs` is a multiple of the
// format's block.
std::vector<std::byte> RandomWeight(GgmlFormat format, uint32_t outputs, uint32_t inputs,
                                    uint64_t seed = 1);

// "bf16", "q8_0" and the like, as --format takes them; errors name the known ones.
Result<GgmlFormat> ParseWeightFormat(const std::string& name);

// Pages of a layout full of standard normal K and V, in the layout's encodings. A few are drawn and
// encoded; pages of the cache get one after the other.
class RandomPages {
 public:
  explicit RandomPages(const KvPageLayout& layout);
  // Overwrites the page at this offset of the arena.
  void Write(Ops& ops, KvArena& arena, uint64_t offset);

 private:
  std::vector<std::vector<std::byte>> images_;
  size_t next_ = 0;
};

}  // namespace masu
