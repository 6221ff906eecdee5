// From the numbers of the file format to the formats that quant/ can decode.
#pragma once

#include <cstdint>
#include <optional>

#include "checkpoint/gguf.h"
#include "quant/ggml_blocks.h"

namespace masu {

// nullopt: a type that masu does not read.
constexpr std::optional<GgmlFormat> FindGgmlFormat(uint32_t type) {
  switch (static_cast<GgmlType>(type)) {
    case GgmlType::kF32:
      return GgmlFormat::kF32;
    case GgmlType::kF16:
      return GgmlFormat::kF16;
    case GgmlType::kBF16:
      return GgmlFormat::kBF16;
    case GgmlType::kQ8_0:
      return GgmlFormat::kQ8_0;
    case GgmlType::kQ4_0:
      return GgmlFormat::kQ4_0;
    case GgmlType::kQ4_1:
      return GgmlFormat::kQ4_1;
    case GgmlType::kQ5_0:
      return GgmlFormat::kQ5_0;
    case GgmlType::kQ5_1:
      return GgmlFormat::kQ5_1;
    case GgmlType::kQ4_K:
      return GgmlFormat::kQ4_K;
    case GgmlType::kQ5_K:
      return GgmlFormat::kQ5_K;
    case GgmlType::kQ6_K:
      return GgmlFormat::kQ6_K;
  }
  return std::nullopt;
}

// Of a tensor that GgufFile handed out, so the type is one of those above.
constexpr GgmlFormat FormatOf(GgmlType type) {
  return FindGgmlFormat(static_cast<uint32_t>(type)).value();
}

}  // namespace masu
