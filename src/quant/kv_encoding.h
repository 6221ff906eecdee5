// How one K or V vector of one token and KV head is stored: encoding, scale and rotation. Scalar
// reference.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace masu {

enum class KvEncoding : uint8_t { kFloat32, kBFloat16, kFloat16, kFp8E4M3, kFp8E5M2, kInt8, kInt4 };

// kNone: the value itself (saturated to the format's range). kDynamic: one bfloat16 per token and
// KV head, stored in the page. kStatic: one float per layer and KV head, which the checkpoint
// brings and the layout holds. kGroup: a half-precision scale and minimum per kKvGroup values.
enum class KvScale : uint8_t { kNone, kDynamic, kStatic, kGroup };

struct KvSide {
  KvEncoding encoding = KvEncoding::kBFloat16;
  KvScale scale = KvScale::kNone;
  bool rotated = false;  // Hadamard-rotated before encoding
  friend bool operator==(const KvSide&, const KvSide&) = default;
};

// "dynamic", "checkpoint" or "unit"; "none" where the format needs no scale.
const char* KvScaleName(const KvSide& side);

// Values of one token and KV head that share a scale and a minimum in int4.
inline constexpr uint32_t kKvGroup = 32;

// "fp8_e4m3" and the like: canonical names.
const char* KvEncodingName(KvEncoding encoding);
// From what users write; aliases as in design.md. `model_dtype` is what "auto" means. Unknown,
// known-but-later (nvfp4) and misspelt names get errors that say which names there are.
Result<KvEncoding> ParseKvEncoding(std::string_view name, std::string_view model_dtype);
// The side that `--kv-cache-dtype` and `--kv-scale` (auto | dynamic | unit | checkpoint) ask for.
Result<KvSide> MakeKvSide(KvEncoding encoding, std::string_view kv_scale);

constexpr uint32_t KvElementBits(KvEncoding encoding) {
  switch (encoding) {
    case KvEncoding::kFloat32:
      return 32;
    case KvEncoding::kBFloat16:
    case KvEncoding::kFloat16:
      return 16;
    case KvEncoding::kInt4:
      return 4;
    default:
      return 8;
  }
}
// Of so many codes side by side; an even number of them in int4.
constexpr uint64_t KvCodeBytes(KvEncoding encoding, uint64_t values) {
  return values * KvElementBits(encoding) / 8;
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
    case KvEncoding::kInt4:
      return 15.0f;
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

// One vector as it is stored, one code after the other; two values to a byte in int4, the one with
// the even index in the low half.
struct KvVector {
  std::vector<std::byte> codes;
  uint16_t scale = 0;  // kDynamic: bfloat16
  // kGroup: half precision, [values / kKvGroup]; value = code * scale + minimum.
  std::vector<uint16_t> group_scales;
  std::vector<uint16_t> group_minima;
};

// Encodes `values` (already rotated if the side is). `static_scale`: of KvScale::kStatic.
KvVector EncodeKvVector(std::span<const float> values, KvSide side, float static_scale = 1.0f);
// The inverse, still rotated.
std::vector<float> DecodeKvVector(const KvVector& vector, KvSide side, float static_scale = 1.0f);
// One value of a code of whole bytes, without its scale.
float DecodeKvCode(const std::byte* code, KvEncoding encoding);

}  // namespace masu
