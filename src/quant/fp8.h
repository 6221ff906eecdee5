// FP8 as defined by the OCP 8-bit floating point specification: e4m3 (the "fn" variant: no
// infinities, largest value 448, NaN 0x7f/0xff) and e5m2 (largest finite value 57344). Plain scalar
// code, the reference for kernels.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>

#include "quant/half.h"

namespace masu {

inline constexpr float kFp8E4M3Max = 448.0f;
inline constexpr float kFp8E5M2Max = 57344.0f;

inline float Fp8E4M3ToFloat(uint8_t code) {
  const int exponent = (code >> 3) & 15;
  const int mantissa = code & 7;
  if (exponent == 15 && mantissa == 7) return std::nanf("");
  const float magnitude = exponent == 0
                              ? std::ldexp(static_cast<float>(mantissa), -9)
                              : std::ldexp(static_cast<float>(8 + mantissa), exponent - 10);
  return (code & 0x80) != 0 ? -magnitude : magnitude;
}

// e5m2 is the upper byte of a half.
inline float Fp8E5M2ToFloat(uint8_t code) { return Fp16ToFloat(static_cast<uint16_t>(code << 8)); }

// Rounds to nearest even on a format with `mantissa_bits` and the given smallest normal exponent;
// beyond the largest value it saturates. NaN gives the NaN code.
inline uint8_t FloatToFp8(float value, int mantissa_bits, int min_exponent, float max,
                          uint8_t max_code) {
  const uint8_t sign = std::signbit(value) ? 0x80 : 0;
  const float magnitude = std::fabs(value);
  if (std::isnan(value)) return static_cast<uint8_t>(sign | 0x7f);
  if (magnitude >= max) return static_cast<uint8_t>(sign | max_code);
  if (magnitude == 0) return sign;
  int exponent = std::ilogb(magnitude);
  if (exponent < min_exponent) exponent = min_exponent;
  // In units of the last place; nearbyint rounds to nearest even in the default mode.
  const float units = std::nearbyint(std::ldexp(magnitude, mantissa_bits - exponent));
  // A subnormal has fewer units than 2^mantissa_bits and its exponent field is zero; adding the
  // units to the exponent field minus one unit of exponent lets a carry move into the next binade
  // by itself.
  const int field = (exponent - min_exponent) << mantissa_bits;
  return static_cast<uint8_t>(sign | (field + static_cast<int>(units)));
}

inline uint8_t FloatToFp8E4M3(float value) { return FloatToFp8(value, 3, -6, kFp8E4M3Max, 0x7e); }
inline uint8_t FloatToFp8E5M2(float value) { return FloatToFp8(value, 2, -14, kFp8E5M2Max, 0x7b); }

}  // namespace masu
