// Kernels over one row of activations or logits. Included once per instruction set.
#pragma once

#include "backend/cpu/simd.h"

namespace masu::cpu::MASU_ISA {

MASU_INLINE F16 MaybeRound(F16 a, bool round) { return round ? RoundBf16(a) : a; }

inline void RmsNorm(const float* x, const float* weight, float* out, uint32_t size, float eps,
                    bool round) {
  F16 squares = Zero();
  for (uint32_t i = 0; i < size; i += 16) {
    const F16 a = LoadPartial(x + i, size - i);
    squares = Fma(a, a, squares);
  }
  const float mean = ReduceAdd(squares) / static_cast<float>(size);
  const F16 factor = Set1(1.0f / __builtin_sqrtf(mean + eps));
  for (uint32_t i = 0; i < size; i += 16) {
    const F16 scaled =
        Mul(Mul(LoadPartial(x + i, size - i), factor), LoadPartial(weight + i, size - i));
    StorePartial(out + i, MaybeRound(scaled, round), size - i);
  }
}

inline void SiluMul(const float* gate, const float* up, float* out, uint32_t size, bool round) {
  for (uint32_t i = 0; i < size; i += 16) {
    const F16 g = LoadPartial(gate + i, size - i);
    const F16 sigmoid_inverse = Add(Set1(1.0f), Exp(Sub(Zero(), g)));
    const F16 value = Mul(Div(g, sigmoid_inverse), LoadPartial(up + i, size - i));
    StorePartial(out + i, MaybeRound(value, round), size - i);
  }
}

inline void Rope(float* x, const float* cos_sin, uint32_t heads, uint32_t head_dim, bool adjacent) {
  const uint32_t half = head_dim / 2;
  for (uint32_t h = 0; h < heads; ++h, x += head_dim) {
    for (uint32_t i = 0; i < half; ++i) {
      const uint32_t first = adjacent ? 2 * i : i;
      const uint32_t second = adjacent ? 2 * i + 1 : i + half;
      const float cosine = cos_sin[2 * i];
      const float sine = cos_sin[2 * i + 1];
      const float a = x[first];
      const float b = x[second];
      x[first] = a * cosine - b * sine;
      x[second] = b * cosine + a * sine;
    }
  }
}

inline void RowStats(const RowStatsTask& task) {
  const float* row = task.row;
  const uint32_t size = task.size;
  const F16 lowest = Set1(-3.402823466e38f);
  F16 max = lowest;
  F16 poison = Zero();  // becomes NaN if any value is NaN or infinite: 0 * x
  for (uint32_t i = 0; i < size; i += 16) {
    const F16 a = size - i >= 16 ? Load(row + i)
                                 : KeepFirst(LoadPartial(row + i, size - i), size - i, lowest);
    max = Max(max, a);
    poison = Fma(a, Zero(), poison);
  }
  const float top = ReduceMax(max);
  *task.max = top;
  *task.finite = ReduceAdd(poison) == 0.0f;
  if (!*task.finite) {
    *task.argmax = 0;
    *task.log_sum_exp = 0;
    return;
  }
  uint32_t argmax = 0;
  while (argmax + 1 < size && row[argmax] != top) ++argmax;
  *task.argmax = argmax;
  F16 sum = Zero();
  for (uint32_t i = 0; i < size; i += 16) {
    const F16 a = size - i >= 16 ? Load(row + i)
                                 : KeepFirst(LoadPartial(row + i, size - i), size - i, lowest);
    sum = Add(sum, Exp(Sub(a, Set1(top))));
  }
  *task.log_sum_exp = top + __builtin_logf(ReduceAdd(sum));
}

}  // namespace masu::cpu::MASU_ISA
