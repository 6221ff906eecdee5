// What a weight matrix takes in each format, scales and padding included.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/result.h"
#include "checkpoint/wide_modules.h"
#include "plan/model_shape.h"

namespace masu {

enum class WeightKind { kBFloat16, kFp8, kInt8, kInt4, kNvfp4, kMxfp4 };

struct WeightFormat {
  WeightKind kind = WeightKind::kBFloat16;
  uint32_t group = 0;        // kInt4: values with one scale
  bool zero_points = false;  // kInt4: beside the scales
};

// What `--weights` says: a format for all linear layers or for routed experts only, or the formats
// that the checkpoint has.
struct WeightChoice {
  std::string name;
  bool as_checkpoint = false;
  bool experts_only = false;
  WeightFormat format;
};

// "int4-g32", "fp8", ...: without "-experts".
Result<WeightFormat> ParseWeightFormat(std::string_view name);
// A format, a format with "-experts", or "checkpoint". Refuses "-experts" for a model without.
Result<WeightChoice> ParseWeightChoice(const std::string& name, const ModelShape& shape);

// What the checkpoint stores its linear layers as: "fp8", "bf16", "gguf".
std::string StoredFormatName(const ModelShape& shape);

// A matrix of `rows` outputs and `columns` inputs. Saturating.
uint64_t MatrixBytes(const WeightFormat& format, uint64_t rows, uint64_t columns);

// All `count` matrices of a tensor, as a whole (ranks == 1) or what one of `ranks` holds.
class TensorSizer {
 public:
  // `shape` and `choice` must outlive this.
  static Result<TensorSizer> Make(const ModelShape& shape, const WeightChoice& choice);
  uint64_t Bytes(const ShapeTensor& tensor, uint64_t ranks) const;

 private:
  TensorSizer(const ModelShape& shape, const WeightChoice& choice)
      : shape_(&shape), choice_(&choice) {}
  bool Quantized(const ShapeTensor& tensor) const;

  const ModelShape* shape_;
  const WeightChoice* choice_;
  WeightFormat format_;
  std::optional<WideModules> wide_;  // of a quantized checkpoint whose formats are taken
  uint32_t wide_bytes_ = 2;          // of an element that no format applies to
};

}  // namespace masu
