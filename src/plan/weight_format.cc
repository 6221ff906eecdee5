// Bytes per element: the specifications of the formats as published (DeepSeek-V3 report for fp8
// blocks, compressed-tensors for int8 and int4, NVIDIA ModelOpt for NVFP4, OCP MX 1.0 for MXFP4).
#include "plan/weight_format.h"

#include <algorithm>

#include "plan/saturating.h"

namespace masu {
namespace {

struct NamedFormat {
  std::string_view name;
  WeightFormat format;
};
constexpr NamedFormat kFormats[] = {
    {"bf16", {WeightKind::kBFloat16}},     {"fp8", {WeightKind::kFp8}},
    {"int8", {WeightKind::kInt8}},         {"int4-g32", {WeightKind::kInt4, 32}},
    {"int4-g64", {WeightKind::kInt4, 64}}, {"int4-g128", {WeightKind::kInt4, 128}},
    {"nvfp4", {WeightKind::kNvfp4}},       {"mxfp4", {WeightKind::kMxfp4}}};
constexpr std::string_view kExperts = "-experts";

// What one rank holds of the dimension that is split: whole units, at least one (KV heads that are
// fewer than ranks are replicated), the last rank's share rounded up.
uint64_t Share(uint64_t size, uint64_t units, uint64_t ranks) {
  return SaturatingMultiply(size / units, CeilDivide(units, ranks));
}

}  // namespace

Result<WeightFormat> ParseWeightFormat(std::string_view name) {
  for (const NamedFormat& known : kFormats) {
    if (known.name == name) return known.format;
  }
  return InvalidArgument(
      "unknown --weights '{}'; use bf16, fp8, int8, int4-g32, int4-g64, int4-g128, nvfp4 or mxfp4, "
      "each also with -experts (routed experts only), or checkpoint",
      name);
}

Result<WeightChoice> ParseWeightChoice(const std::string& name, const ModelShape& shape) {
  WeightChoice choice{.name = name, .format = {}};
  if (name == "checkpoint" || name == "auto") {
    choice.name = "checkpoint";
    choice.as_checkpoint = true;
    return choice;
  }
  std::string_view format = name;
  if (format.ends_with(kExperts)) {
    format.remove_suffix(kExperts.size());
    choice.experts_only = true;
    const bool has_experts = std::ranges::any_of(shape.tensors, [](const ShapeTensor& tensor) {
      return tensor.kind == TensorKind::kRoutedExpert;
    });
    if (!has_experts) {
      return InvalidArgument("--weights {}: this model has no routed experts; use {}", name,
                             format);
    }
  }
  MASU_ASSIGN_OR_RETURN(choice.format, ParseWeightFormat(format));
  return choice;
}

std::string StoredFormatName(const ModelShape& shape) {
  if (!shape.stored_format.empty()) return shape.stored_format;
  if (shape.config.quantization) return shape.config.quantization->format;
  return shape.config.dtype == "float32"   ? "fp32"
         : shape.config.dtype == "float16" ? "fp16"
                                           : "bf16";
}

uint64_t MatrixBytes(const WeightFormat& format, uint64_t rows, uint64_t columns) {
  const uint64_t elements = SaturatingMultiply(rows, columns);
  const auto scales = [&](uint64_t per_row, uint64_t bytes) {
    return SaturatingMultiply(SaturatingMultiply(rows, per_row), bytes);
  };
  // Two values a byte; rows are padded to whole bytes.
  const uint64_t nibbles = SaturatingMultiply(rows, CeilDivide(columns, 2));
  constexpr uint64_t kBlock = 128;
  switch (format.kind) {
    case WeightKind::kBFloat16:
      return SaturatingMultiply(elements, 2);
    case WeightKind::kFp8:  // one float32 per block of 128 x 128
      return SaturatingAdd(
          elements, SaturatingMultiply(CeilDivide(rows, kBlock), CeilDivide(columns, kBlock) * 4));
    case WeightKind::kInt8:  // one bfloat16 per output
      return SaturatingAdd(elements, scales(1, 2));
    case WeightKind::kInt4: {  // one bfloat16 per group, and half a byte of zero point
      const uint64_t groups = CeilDivide(columns, format.group);
      const uint64_t zeros =
          format.zero_points ? SaturatingMultiply(CeilDivide(rows, 2), groups) : 0;
      return SaturatingAdd(SaturatingAdd(nibbles, scales(groups, 2)), zeros);
    }
    case WeightKind::kNvfp4: {  // one e4m3 per 16, one float32 per matrix and one for its inputs
      constexpr uint64_t kTensorScales = 8;
      return SaturatingAdd(SaturatingAdd(nibbles, scales(CeilDivide(columns, 16), 1)),
                           kTensorScales);
    }
    case WeightKind::kMxfp4:  // one e8m0 per 32
      return SaturatingAdd(nibbles, scales(CeilDivide(columns, 32), 1));
  }
  return 0;
}

Result<TensorSizer> TensorSizer::Make(const ModelShape& shape, const WeightChoice& choice) {
  TensorSizer sizer(shape, choice);
  sizer.format_ = choice.format;
  if (!choice.as_checkpoint) return sizer;
  if (shape.config.dtype == "float32") sizer.wide_bytes_ = 4;
  if (const auto& quantization = shape.config.quantization; quantization) {
    MASU_ASSIGN_OR_RETURN(sizer.format_, ParseWeightFormat(quantization->format));
    sizer.format_.zero_points = quantization->zero_points;
    sizer.wide_.emplace(*quantization);
  }
  return sizer;
}

bool TensorSizer::Quantized(const ShapeTensor& tensor) const {
  if (!tensor.quantizable) return false;
  if (!choice_->as_checkpoint) {
    return !choice_->experts_only || tensor.kind == TensorKind::kRoutedExpert;
  }
  if (!wide_) return false;
  std::string module = tensor.name;
  if (const size_t star = module.find('*'); star != std::string::npos) module.replace(star, 1, "0");
  // A wrapper puts "language_model." in front; patterns are written for either form.
  return !wide_->Contains(module) &&
         (shape_->config.wrapper.empty() || !wide_->Contains("language_model." + module));
}

uint64_t TensorSizer::Bytes(const ShapeTensor& tensor, uint64_t ranks) const {
  uint64_t rows = tensor.rows, columns = tensor.columns;
  if (tensor.split == Split::kRows) rows = Share(rows, tensor.units, ranks);
  if (tensor.split == Split::kColumns) columns = Share(columns, tensor.units, ranks);
  if (choice_->as_checkpoint && tensor.stored_bytes) {
    // Blocks of a GGUF format lie along the columns, so a share of the rows is exact.
    const uint64_t whole = tensor.split == Split::kColumns ? tensor.columns : tensor.rows;
    const uint64_t part = tensor.split == Split::kColumns ? columns : rows;
    return part == whole ? *tensor.stored_bytes
                         : SaturatingMultiply(CeilDivide(*tensor.stored_bytes, whole), part);
  }
  const uint64_t element = tensor.element_bytes != 0 ? tensor.element_bytes : wide_bytes_;
  const uint64_t one = Quantized(tensor)
                           ? MatrixBytes(format_, rows, columns)
                           : SaturatingMultiply(SaturatingMultiply(rows, columns), element);
  return SaturatingMultiply(one, tensor.count);
}

}  // namespace masu
