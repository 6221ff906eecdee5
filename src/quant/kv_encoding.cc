#include "quant/kv_encoding.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <utility>

#include "base/check.h"
#include "quant/fp8.h"
#include "quant/half.h"

namespace masu {
namespace {

constexpr std::array<std::pair<std::string_view, KvEncoding>, 12> kNames = {{
    {"float32", KvEncoding::kFloat32},
    {"bfloat16", KvEncoding::kBFloat16},
    {"bf16", KvEncoding::kBFloat16},
    {"float16", KvEncoding::kFloat16},
    {"half", KvEncoding::kFloat16},
    {"fp8", KvEncoding::kFp8E4M3},
    {"fp8_e4m3", KvEncoding::kFp8E4M3},
    {"fp8_per_token_head", KvEncoding::kFp8E4M3},
    {"fp8_e5m2", KvEncoding::kFp8E5M2},
    {"int8", KvEncoding::kInt8},
    {"int8_per_token_head", KvEncoding::kInt8},
    {"float", KvEncoding::kFloat32},
}};

template <typename T>
void Store(std::byte* at, T value) {
  std::memcpy(at, &value, sizeof(value));
}

template <typename T>
T Load(const std::byte* at) {
  T value;
  std::memcpy(&value, at, sizeof(value));
  return value;
}

void EncodeValue(float value, KvEncoding encoding, std::byte* code) {
  switch (encoding) {
    case KvEncoding::kFloat32:
      return Store(code, value);
    case KvEncoding::kBFloat16:
      return Store(code, FloatToBf16(value));
    case KvEncoding::kFloat16:
      // Saturates: an infinite K would turn the whole row of the softmax into NaN.
      return Store(code,
                   FloatToFp16(std::isnan(value) ? value : std::clamp(value, -65504.0f, 65504.0f)));
    case KvEncoding::kFp8E4M3:
      return Store(code, FloatToFp8E4M3(value));
    case KvEncoding::kFp8E5M2:
      return Store(code, FloatToFp8E5M2(value));
    case KvEncoding::kInt8:
      return Store(code, static_cast<int8_t>(std::clamp(std::nearbyint(value), -127.0f, 127.0f)));
  }
}

}  // namespace

const char* KvEncodingName(KvEncoding encoding) {
  switch (encoding) {
    case KvEncoding::kFloat32:
      return "float32";
    case KvEncoding::kBFloat16:
      return "bfloat16";
    case KvEncoding::kFloat16:
      return "float16";
    case KvEncoding::kFp8E4M3:
      return "fp8_e4m3";
    case KvEncoding::kFp8E5M2:
      return "fp8_e5m2";
    case KvEncoding::kInt8:
      return "int8";
  }
  return "?";
}

Result<KvEncoding> ParseKvEncoding(std::string_view name, std::string_view model_dtype) {
  if (name == "auto") name = model_dtype;
  for (const auto& [known, encoding] : kNames) {
    if (known == name) return encoding;
  }
  if (name == "int4" || name == "int4_per_token_head" || name == "nvfp4") {
    return MakeError(ErrorCode::kUnimplemented,
                     "kv_cache_dtype '{}' is not built yet; the smallest that is: int8, fp8", name);
  }
  return InvalidArgument(
      "unknown kv_cache_dtype '{}'; use auto, bfloat16, float16, float32, fp8 (= fp8_e4m3), "
      "fp8_e5m2 or int8",
      name);
}

Result<KvSide> MakeKvSide(KvEncoding encoding, std::string_view kv_scale) {
  if (kv_scale != "auto" && kv_scale != "dynamic" && kv_scale != "unit" &&
      kv_scale != "checkpoint") {
    return InvalidArgument("unknown --kv-scale '{}'; use auto, dynamic or unit", kv_scale);
  }
  if (kv_scale == "checkpoint") {
    return InvalidArgument(
        "--kv-scale checkpoint: this checkpoint has no K/V scales; use dynamic (or auto)");
  }
  switch (encoding) {
    case KvEncoding::kInt8:
      if (kv_scale == "unit") {
        return InvalidArgument(
            "--kv-scale unit would round most K and V values to 0 in int8; use dynamic (or auto), "
            "or fp8 with unit");
      }
      return KvSide{encoding, KvScale::kDynamic, true};
    case KvEncoding::kFp8E4M3:
      return KvSide{encoding, kv_scale == "unit" ? KvScale::kNone : KvScale::kDynamic, false};
    default:
      // e5m2 has the range of a half: its scale is 1 by definition. 16 and 32 bits have none.
      if (kv_scale == "dynamic") {
        return InvalidArgument("--kv-scale dynamic does not apply to {}; leave it at auto",
                               KvEncodingName(encoding));
      }
      return KvSide{encoding, KvScale::kNone, false};
  }
}

uint16_t KvDynamicScale(float absmax, KvEncoding encoding) {
  if (!(absmax <= 3.0e38f)) return 0x7fc0;
  if (absmax < kKvZeroBelow) return 0;
  return FloatToBf16Up(absmax / KvCodeMax(encoding));
}

uint16_t EncodeKvVector(std::span<const float> values, KvSide side, std::span<std::byte> codes) {
  const size_t bytes = KvElementBytes(side.encoding);
  MASU_CHECK_EQ(codes.size(), values.size() * bytes);
  if (side.scale == KvScale::kNone) {
    for (size_t i = 0; i < values.size(); ++i)
      EncodeValue(values[i], side.encoding, &codes[i * bytes]);
    return FloatToBf16(1.0f);
  }
  float absmax = 0;
  for (const float value : values) {
    // Written so that a NaN wins and stays.
    if (!(std::fabs(value) <= absmax)) absmax = std::isnan(absmax) ? absmax : std::fabs(value);
  }
  const uint16_t scale_bits = KvDynamicScale(absmax, side.encoding);
  const float scale = Bf16ToFloat(scale_bits);
  for (size_t i = 0; i < values.size(); ++i) {
    EncodeValue(scale > 0 ? values[i] / scale : 0.0f, side.encoding, &codes[i * bytes]);
  }
  return scale_bits;
}

float DecodeKvCode(const std::byte* code, KvEncoding encoding) {
  switch (encoding) {
    case KvEncoding::kFloat32:
      return Load<float>(code);
    case KvEncoding::kBFloat16:
      return Bf16ToFloat(Load<uint16_t>(code));
    case KvEncoding::kFloat16:
      return Fp16ToFloat(Load<uint16_t>(code));
    case KvEncoding::kFp8E4M3:
      return Fp8E4M3ToFloat(Load<uint8_t>(code));
    case KvEncoding::kFp8E5M2:
      return Fp8E5M2ToFloat(Load<uint8_t>(code));
    case KvEncoding::kInt8:
      return static_cast<float>(Load<int8_t>(code));
  }
  return 0.0f;
}

}  // namespace masu
