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

constexpr std::array<std::pair<std::string_view, KvEncoding>, 14> kNames = {{
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
    {"int4", KvEncoding::kInt4},
    {"int4_per_token_head", KvEncoding::kInt4},
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
    case KvEncoding::kInt4:
      break;  // in groups
  }
  MASU_CHECK(false);
}

// Half precision that is not below a non-negative value, at most the largest finite number.
uint16_t FloatToFp16Up(float value) {
  const uint16_t nearest = FloatToFp16(std::min(value, 65504.0f));
  return Fp16ToFloat(nearest) < value && nearest < 0x7bff ? nearest + 1 : nearest;
}

constexpr uint16_t kFp16Nan = 0x7e00;

// A group that is not finite gets a scale that is not, so that the fault shows in the logits.
void EncodeGroup(std::span<const float> values, KvVector& vector) {
  const auto [low, high] = std::minmax_element(values.begin(), values.end());
  const bool finite = std::ranges::all_of(values, [](float x) { return std::isfinite(x); });
  const uint16_t minimum = FloatToFp16(std::clamp(*low, -65504.0f, 65504.0f));
  const float base = Fp16ToFloat(minimum);
  const float range = (std::min(*high, 65504.0f) - base) / 15.0f;
  const uint16_t scale_bits = !finite ? kFp16Nan : range > 0 ? FloatToFp16Up(range) : 0;
  const float scale = Fp16ToFloat(scale_bits);
  vector.group_scales.push_back(scale_bits);
  vector.group_minima.push_back(minimum);
  for (size_t i = 0; i < values.size(); i += 2) {
    const auto code = [&](float value) {
      if (!(scale > 0)) return 0u;
      return static_cast<unsigned>(std::clamp(std::nearbyint((value - base) / scale), 0.0f, 15.0f));
    };
    vector.codes.push_back(static_cast<std::byte>(code(values[i]) | (code(values[i + 1]) << 4)));
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
    case KvEncoding::kInt4:
      return "int4";
  }
  return "?";
}

const char* KvScaleName(const KvSide& side) {
  switch (side.scale) {
    case KvScale::kStatic:
      return "checkpoint";
    case KvScale::kDynamic:
    case KvScale::kGroup:
      return "dynamic";
    case KvScale::kNone:
      break;
  }
  const bool is_fp8 =
      side.encoding == KvEncoding::kFp8E4M3 || side.encoding == KvEncoding::kFp8E5M2;
  return is_fp8 ? "unit" : "none";
}

Result<KvEncoding> ParseKvEncoding(std::string_view name, std::string_view model_dtype) {
  if (name == "auto") name = model_dtype;
  for (const auto& [known, encoding] : kNames) {
    if (known == name) return encoding;
  }
  if (name == "nvfp4") {
    return MakeError(ErrorCode::kUnimplemented,
                     "kv_cache_dtype '{}' is not built yet; the smallest that is: int4", name);
  }
  return InvalidArgument(
      "unknown kv_cache_dtype '{}'; use auto, bfloat16, float16, float32, fp8 (= fp8_e4m3), "
      "fp8_e5m2, int8 or int4",
      name);
}

Result<KvSide> MakeKvSide(KvEncoding encoding, std::string_view kv_scale) {
  if (kv_scale != "auto" && kv_scale != "dynamic" && kv_scale != "unit" &&
      kv_scale != "checkpoint") {
    return InvalidArgument("unknown --kv-scale '{}'; use auto, dynamic, checkpoint or unit",
                           kv_scale);
  }
  const bool without = kv_scale == "unit" || kv_scale == "checkpoint";
  switch (encoding) {
    case KvEncoding::kInt8:
    case KvEncoding::kInt4:
      if (without) {
        return InvalidArgument(
            "--kv-scale {} does not apply to {}, which needs scales of each token; use dynamic (or "
            "auto), or fp8",
            kv_scale, KvEncodingName(encoding));
      }
      return KvSide{encoding, encoding == KvEncoding::kInt4 ? KvScale::kGroup : KvScale::kDynamic,
                    true};
    case KvEncoding::kFp8E4M3:
      return KvSide{encoding,
                    kv_scale == "unit"         ? KvScale::kNone
                    : kv_scale == "checkpoint" ? KvScale::kStatic
                                               : KvScale::kDynamic,
                    false};
    default:
      // e5m2 has the range of a half: its scale is 1 by definition. 16 and 32 bits have none.
      if (kv_scale == "dynamic" || kv_scale == "checkpoint") {
        return InvalidArgument("--kv-scale {} does not apply to {}; leave it at auto", kv_scale,
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

KvVector EncodeKvVector(std::span<const float> values, KvSide side, float static_scale) {
  KvVector vector;
  if (side.scale == KvScale::kGroup) {
    MASU_CHECK_EQ(values.size() % kKvGroup, 0u);
    for (size_t i = 0; i < values.size(); i += kKvGroup)
      EncodeGroup(values.subspan(i, kKvGroup), vector);
    return vector;
  }
  const size_t bytes = KvElementBits(side.encoding) / 8;
  vector.codes.resize(values.size() * bytes);
  float scale = static_scale;
  if (side.scale == KvScale::kDynamic) {
    float absmax = 0;
    for (const float value : values) {
      // Written so that a NaN wins and stays.
      if (!(std::fabs(value) <= absmax)) absmax = std::isnan(absmax) ? absmax : std::fabs(value);
    }
    vector.scale = KvDynamicScale(absmax, side.encoding);
    scale = Bf16ToFloat(vector.scale);
  }
  for (size_t i = 0; i < values.size(); ++i) {
    EncodeValue(scale > 0 ? values[i] / scale : 0.0f, side.encoding, &vector.codes[i * bytes]);
  }
  return vector;
}

std::vector<float> DecodeKvVector(const KvVector& vector, KvSide side, float static_scale) {
  std::vector<float> values;
  if (side.scale == KvScale::kGroup) {
    for (size_t i = 0; i < vector.codes.size() * 2; ++i) {
      const auto byte = std::to_integer<unsigned>(vector.codes[i / 2]);
      const unsigned code = i % 2 == 0 ? byte & 15u : byte >> 4;
      // One rounding, as the fused multiply-add of kernels has.
      values.push_back(std::fma(static_cast<float>(code),
                                Fp16ToFloat(vector.group_scales[i / kKvGroup]),
                                Fp16ToFloat(vector.group_minima[i / kKvGroup])));
    }
    return values;
  }
  const size_t bytes = KvElementBits(side.encoding) / 8;
  const float scale = side.scale == KvScale::kDynamic ? Bf16ToFloat(vector.scale) : static_scale;
  for (size_t i = 0; i < vector.codes.size(); i += bytes)
    values.push_back(DecodeKvCode(&vector.codes[i], side.encoding) * scale);
  return values;
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
    case KvEncoding::kInt4:
      break;  // half a byte: DecodeKvVector
  }
  MASU_CHECK(false);
  return 0.0f;
}

}  // namespace masu
