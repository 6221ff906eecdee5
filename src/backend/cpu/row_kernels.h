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

// Explicit vector operations: left to itself the compiler fuses the products on some instruction
// sets.
inline void Rope(float* x, const float* cos_sin, uint32_t heads, uint32_t head_dim, bool adjacent) {
  const uint32_t half = head_dim / 2;
  const uint32_t step = adjacent ? 2 : 1;
  const uint32_t second = adjacent ? 1 : half;
  for (uint32_t h = 0; h < heads; ++h, x += head_dim) {
    for (uint32_t begin = 0; begin < half; begin += 16) {
      const uint32_t count = half - begin < 16 ? half - begin : 16;
      float* at = x + begin * step;
      float a[16] = {}, b[16] = {};
      for (uint32_t i = 0; i < count; ++i) {
        a[i] = at[i * step];
        b[i] = at[i * step + second];
      }
      const F16 cosine = LoadPartial(cos_sin + begin, count);
      const F16 sine = LoadPartial(cos_sin + half + begin, count);
      const F16 first = Load(a), other = Load(b);
      Store(a, Sub(Mul(first, cosine), Mul(other, sine)));
      Store(b, Add(Mul(other, cosine), Mul(first, sine)));
      for (uint32_t i = 0; i < count; ++i) {
        at[i * step] = a[i];
        at[i * step + second] = b[i];
      }
    }
  }
}

// Whole vectors of a row; entries beyond `size` are `otherwise`.
MASU_INLINE F16 LoadRow(const float* row, uint32_t i, uint32_t size, F16 otherwise) {
  return size - i >= 16 ? Load(row + i)
                        : KeepFirst(LoadPartial(row + i, size - i), size - i, otherwise);
}

inline float LargestOf(const float* row, uint32_t size) {
  const F16 lowest = Set1(-3.402823466e38f);
  F16 largest = lowest;
  for (uint32_t i = 0; i < size; i += 16) largest = Max(largest, LoadRow(row, i, size, lowest));
  return ReduceMax(largest);
}

// The sums of e^((x - best) / temperature) of each block. `max`: the largest of the whole row.
inline void WeightSums(const RowStatsTask& task, float max) {
  const F16 lowest = Set1(-3.402823466e38f);
  *task.best = task.drawable < task.size ? LargestOf(task.row, task.drawable) : max;
  const F16 top = Set1(*task.best);
  for (uint32_t begin = 0; begin < task.drawable; begin += task.block) {
    const uint32_t left = task.drawable - begin;
    const uint32_t end = begin + (left < task.block ? left : task.block);
    F16 sum = Zero();
    for (uint32_t i = begin; i < end; i += 16) {
      const F16 logits = LoadRow(task.row, i, end, lowest);
      sum = Add(sum, Exp(Div(Sub(logits, top), Set1(task.temperature))));
    }
    task.weight_sums[begin / task.block] = ReduceAdd(sum);
  }
}

inline void RowStats(const RowStatsTask& task) {
  const float* row = task.row;
  const uint32_t size = task.size;
  const F16 lowest = Set1(-3.402823466e38f);
  F16 max = lowest;
  F16 poison = Zero();  // becomes NaN if any value is NaN or infinite: 0 * x
  for (uint32_t i = 0; i < size; i += 16) {
    const F16 a = LoadRow(row, i, size, lowest);
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
    const F16 a = LoadRow(row, i, size, lowest);
    sum = Add(sum, Exp(Sub(a, Set1(top))));
  }
  *task.log_sum_exp = top + __builtin_logf(ReduceAdd(sum));
  if (task.weight_sums != nullptr) WeightSums(task, top);
}

}  // namespace masu::cpu::MASU_ISA
