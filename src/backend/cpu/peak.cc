#include "backend/cpu/peak.h"

#include <immintrin.h>

#include <array>
#include <bit>

#include "backend/cpu/amx/tile_configuration.h"

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

// Pairs of bfloat16 numbers: the upper halves of the floats, two in each lane.
__attribute__((target("avx512f,avx512bf16"))) float RunAvx512Bf16(uint64_t rounds) {
  constexpr int kWidth = 16;
  Start<kWidth> start;
  __m512 sums[kChains];
  __m512i operands[kOperands];
  for (int i = 0; i < kChains; ++i) sums[i] = _mm512_loadu_ps(&start.sums[i * kWidth]);
  for (float& operand : start.operands) {
    const auto bits = std::bit_cast<uint32_t>(operand);
    operand = std::bit_cast<float>((bits >> 16) | (bits & 0xffff0000u));
  }
  for (int i = 0; i < kOperands; ++i) operands[i] = _mm512_loadu_si512(&start.operands[i * kWidth]);
  const __m512i signs = _mm512_set1_epi32(static_cast<int>(0x80008000));
  for (uint64_t round = 0; round < rounds; ++round) {
    for (int half = 0; half < 2; ++half) {
      for (int i = 0; i < kChains; ++i) {
        sums[i] = _mm512_dpbf16_ps(sums[i], reinterpret_cast<__m512bh>(operands[i % 2]),
                                   reinterpret_cast<__m512bh>(operands[2 + i / 2 % 2]));
      }
      for (int i = 0; i < 2; ++i) operands[i] = _mm512_xor_si512(operands[i], signs);
      asm volatile("" : "+v"(operands[0]), "+v"(operands[1]), "+v"(operands[2]), "+v"(operands[3]));
    }
  }
  for (int i = 0; i < kChains; ++i) _mm512_storeu_ps(&start.sums[i * kWidth], sums[i]);
  return Total(start.sums);
}

// Tiles of 16 rows x 64 bytes: 0 to 3 are sums, 4 and 5 left factors, 6 and 7 a right factor and
// its negative.
float RunAmx(uint64_t rounds) {
  constexpr size_t kNumbers = 16 * 32;  // of a tile, bfloat16
  constexpr size_t kStride = 64;        // bytes of a row
  alignas(64) std::array<std::array<uint16_t, kNumbers>, 4> factors;
  RandomFloats random;
  for (int tile = 0; tile < 3; ++tile) {
    for (uint16_t& number : factors[tile])
      number = static_cast<uint16_t>(std::bit_cast<uint32_t>(random.Next()) >> 16);
  }
  for (size_t i = 0; i < kNumbers; ++i) factors[3][i] = factors[2][i] ^ 0x8000;
  asm volatile("ldtilecfg %0" ::"m"(cpu::kTileConfiguration));
  asm volatile(
      "tilezero %%tmm0\n tilezero %%tmm1\n tilezero %%tmm2\n tilezero %%tmm3\n"
      "tileloadd (%0,%4,1), %%tmm4\n tileloadd (%1,%4,1), %%tmm5\n"
      "tileloadd (%2,%4,1), %%tmm6\n tileloadd (%3,%4,1), %%tmm7\n" ::"r"(factors[0].data()),
      "r"(factors[1].data()), "r"(factors[2].data()), "r"(factors[3].data()), "r"(kStride)
      : "memory");
  for (uint64_t round = 0; round < rounds; ++round) {
    asm volatile(
        "tdpbf16ps %%tmm6, %%tmm4, %%tmm0\n tdpbf16ps %%tmm6, %%tmm5, %%tmm1\n"
        "tdpbf16ps %%tmm7, %%tmm4, %%tmm2\n tdpbf16ps %%tmm7, %%tmm5, %%tmm3\n"
        "tdpbf16ps %%tmm7, %%tmm4, %%tmm0\n tdpbf16ps %%tmm7, %%tmm5, %%tmm1\n"
        "tdpbf16ps %%tmm6, %%tmm4, %%tmm2\n tdpbf16ps %%tmm6, %%tmm5, %%tmm3\n" ::);
  }
  alignas(64) std::array<float, kNumbers / 2> sums;
  asm volatile("tilestored %%tmm0, (%0,%1,1)\n tilerelease\n" ::"r"(sums.data()), "r"(kStride)
               : "memory");
  return Total(sums);
}

// Eight products of 16 x 32 and 32 x 16 numbers.
constexpr uint32_t kAmxOperations = 8 * 2 * 16 * 32 * 16;

constexpr uint32_t Operations(int width) { return static_cast<uint32_t>(2 * 2 * kChains * width); }

}  // namespace

PeakLoop PeakLoopOf(std::string_view isa) {
  if (isa == "scalar") return {"float32 multiply and add, 128 bits", RunSse2, Operations(4)};
  if (isa == "avx2") return {"float32 FMA, 256 bits", RunAvx2, Operations(8)};
  if (isa == "amx") return {"bfloat16 AMX", RunAmx, kAmxOperations};
  if (isa == "avx512bf16") return {"bfloat16 pairs, 512 bits", RunAvx512Bf16, Operations(32)};
  return {"float32 FMA, 512 bits", RunAvx512, Operations(16)};
}

}  // namespace masu
