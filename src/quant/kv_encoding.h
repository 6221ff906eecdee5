// How one K or V vector of one token and KV head is stored: encoding, scale and rotation. Scalar
// reference.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "base/result.h"

namespace masu {

enum class KvEncoding : uint8_t { kFloat32, kBFloat16, kFloat16, kFp8E4M3, kFp8E5M2, kInt8 };

// kNone: the value itself (saturated to the format's range). kDynamic: one bfloat16 per token and
// KV head.
enum class KvScale : uint8_t { kNone, kDynamic };

struct KvSide {
  KvEncoding encoding = KvEncoding::kBFloat16;
  KvScale scale = KvScale::kNone;
  bool rotated = false;  // Hadamard-rotated before encoding
  friend bool operator==(const KvSide&, const KvSide&) = default;
};

// "fp8_e4m3" and the like: canonical names.
const char* KvEncodingName(KvEncoding encoding);
// From what users write; aliases as in design.md. `model_dtype` is what "auto" means. Unknown,
// known-but-later (int4, nvfp4) and misspelt names get errors that say which names there are.
Result<KvEncoding> ParseKvEncoding(std::string_view name, std::string_view model_dtype);
// The side that `--kv-cache-dtype` and `--kv-scale` (auto | dynamic | unit | checkpoint) ask for.
Result<KvSide> MakeKvSide(KvEncoding encoding, std::string_view kv_scale);

constexpr size_t KvElementBytes(KvEncoding encoding) {
  switch (encoding) {
    case KvEncoding::kFloat32:
      return 4;
    case KvEncoding::kBFloat16:
    case KvEncoding::kFloat16:
      return 2;
    default:
      return 1;
  }
}

// The largest magnitude that a code stands for.
constexpr float KvCodeMax(KvEncoding encoding) {
  switch (encoding) {
    case KvEncoding::kFp8E4M3:
      return 448.0f;
    case KvEncoding::kFp8E5M2:
      return 57344.0f;
    case KvEncoding::kInt8:
      return 127.0f;
    case KvEncoding::kFloat16:
      return 65504.0f;
    default:
      return 3.4e38f;
  }
}

// Below this largest magnitude a vector counts as zero under dynamic scales: its scale would be a
// subnormal bfloat16, which kernels flush.
inline constexpr float kKvZeroBelow = 0x1p-100f;

// The dynamic scale of a vector with this largest magnitude, as bfloat16 bits: rounded up, 0 for a
// zero vector, NaN if the vector has a value that is not finite (so that the fault shows in the
// logits and is reported).
uint16_t KvDynamicScale(float absmax, KvEncoding encoding);

// Encodes `values` (already rotated if the side is) into codes of KvElementBytes each; returns the
// scale bits (bfloat16 of 1.0 without dynamic scale).
uint16_t EncodeKvVector(std::span<const float> values, KvSide side, std::span<std::byte> codes);
// One value of a code, without its scale.
float DecodeKvCode(const std::byte* code, KvEncoding encoding);

}  // namespace masu
