#include "backend/cpu/peak.h"

#include <immintrin.h>

#include <array>

namespace masu {
namespace {

// Independent sums: more than the latency of a multiply-add times how many start in a cycle (4 x 2
// on the cores of today), and few enough for 16 registers together with the operands.
constexpr int kChains = 10;
constexpr int kOperands = 4;

// Magnitudes near 1, any sign and fraction: a linear congruential generator (Numerical Recipes).
struct RandomFloats {
  uint32_t state = 12345;
  float Next() {
    state = state * 1664525u + 1013904223u;
    return static_cast<float>(static_cast<int32_t>(state)) * 0x1p-31f + (state & 1 ? 1.0f : -1.0f);
  }
  template <size_t kSize>
  std::array<float, kSize> Array() {
    std::array<float, kSize> values;
    for (float& value : values) value = Next();
    return values;
  }
};

// A round adds each product and then takes it away again, so that sums stay bounded and every bit
// of them keeps changing.
template <int kWidth>
struct Start {
  std::array<float, size_t{kChains} * kWidth> sums;
  std::array<float, size_t{kOperands} * kWidth> operands;
  Start() {
    RandomFloats random;
    sums = random.Array<size_t{kChains} * kWidth>();
    operands = random.Array<size_t{kOperands} * kWidth>();
  }
};

template <size_t kSize>
float Total(const std::array<float, kSize>& values) {
  float total = 0;
  for (const float value : values) total += value;
  return total;
}

float RunSse2(uint64_t rounds) {
  constexpr int kWidth = 4;
  Start<kWidth> start;
  __m128 sums[kChains];
  __m128 operands[kOperands];
  for (int i = 0; i < kChains; ++i) sums[i] = _mm_loadu_ps(&start.sums[i * kWidth]);
  for (int i = 0; i < kOperands; ++i) operands[i] = _mm_loadu_ps(&start.operands[i * kWidth]);
  for (uint64_t round = 0; round < rounds; ++round) {
    for (int i = 0; i < kChains; ++i)
      sums[i] = _mm_add_ps(sums[i], _mm_mul_ps(operands[i % 2], operands[2 + i / 2 % 2]));
    // Hidden from the compiler, which would see that the next half undoes this one.
    asm volatile("" : "+x"(operands[0]), "+x"(operands[1]));
    for (int i = 0; i < kChains; ++i)
      sums[i] = _mm_sub_ps(sums[i], _mm_mul_ps(operands[i % 2], operands[2 + i / 2 % 2]));
    asm volatile("" : "+x"(operands[2]), "+x"(operands[3]));
  }
  for (int i = 0; i < kChains; ++i) _mm_storeu_ps(&start.sums[i * kWidth], sums[i]);
  return Total(start.sums);
}

__attribute__((target("avx2,fma"))) float RunAvx2(uint64_t rounds) {
  constexpr int kWidth = 8;
  Start<kWidth> start;
  __m256 sums[kChains];
  __m256 operands[kOperands];
  for (int i = 0; i < kChains; ++i) sums[i] = _mm256_loadu_ps(&start.sums[i * kWidth]);
  for (int i = 0; i < kOperands; ++i) operands[i] = _mm256_loadu_ps(&start.operands[i * kWidth]);
  for (uint64_t round = 0; round < rounds; ++round) {
    for (int i = 0; i < kChains; ++i)
      sums[i] = _mm256_fmadd_ps(operands[i % 2], operands[2 + i / 2 % 2], sums[i]);
    asm volatile("" : "+x"(operands[0]), "+x"(operands[1]));
    for (int i = 0; i < kChains; ++i)
      sums[i] = _mm256_fnmadd_ps(operands[i % 2], operands[2 + i / 2 % 2], sums[i]);
    asm volatile("" : "+x"(operands[2]), "+x"(operands[3]));
  }
  for (int i = 0; i < kChains; ++i) _mm256_storeu_ps(&start.sums[i * kWidth], sums[i]);
  return Total(start.sums);
}

__attribute__((target("avx512f"))) float RunAvx512(uint64_t rounds) {
  constexpr int kWidth = 16;
  Start<kWidth> start;
  __m512 sums[kChains];
  __m512 operands[kOperands];
  for (int i = 0; i < kChains; ++i) sums[i] = _mm512_loadu_ps(&start.sums[i * kWidth]);
  for (int i = 0; i < kOperands; ++i) operands[i] = _mm512_loadu_ps(&start.operands[i * kWidth]);
  for (uint64_t round = 0; round < rounds; ++round) {
    for (int i = 0; i < kChains; ++i)
      sums[i] = _mm512_fmadd_ps(operands[i % 2], operands[2 + i / 2 % 2], sums[i]);
    asm volatile("" : "+v"(operands[0]), "+v"(operands[1]));
    for (int i = 0; i < kChains; ++i)
      sums[i] = _mm512_fnmadd_ps(operands[i % 2], operands[2 + i / 2 % 2], sums[i]);
    asm volatile("" : "+v"(operands[2]), "+v"(operands[3]));
  }
  for (int i = 0; i < kChains; ++i) _mm512_storeu_ps(&start.sums[i * kWidth], sums[i]);
  return Total(start.sums);
}

constexpr uint32_t Operations(int width) { return static_cast<uint32_t>(2 * 2 * kChains * width); }

}  // namespace

PeakLoop PeakLoopOf(std::string_view isa) {
  if (isa == "scalar") return {"float32 multiply and add, 128 bits", RunSse2, Operations(4)};
  if (isa == "avx2") return {"float32 FMA, 256 bits", RunAvx2, Operations(8)};
  return {"float32 FMA, 512 bits", RunAvx512, Operations(16)};
}

}  // namespace masu
