// The unit of attention_pairs.h by products of pairs of bfloat16 numbers in vectors (AVX512-BF16).
// Its order of summation is its own, as that of dot_kernel.h: blocks of 16 pairs, each in one chain
// from zero.
#pragma once

#include "backend/cpu/attention_pairs.h"
#include "backend/cpu/dot_kernel.h"

namespace masu::cpu::MASU_ISA {

struct DotUnit {
  static constexpr uint32_t kRows = 1;  // any number of rows
  static void Begin() {}
  static void End() {}

  // scores[rows][kTile] = q K^T for the four blocks of 16 tokens of a tile; q: [rows][padded].
  static void Scores(const uint8_t* const (&keys)[4], const uint16_t* q, uint32_t padded,
                     uint32_t rows, Ahead ahead, float* scores) {
    ForRowRuns<kMostRows>(rows, [&]<int R>(uint32_t r) {
      ScoresOf<R>(keys, q + size_t{r} * padded, padded, ahead, scores + size_t{r} * kTile);
      ahead.done = ahead.bytes;  // the first rows' pass asks for what it can
    });
  }

  // acc[rows][head_dim] += p V of 32 tokens, in two halves of [8 pairs][head_dim]; p: rows kTile
  // apart.
  static void Values(const uint8_t* const (&halves)[2], uint8_t* /*room*/, uint32_t head_dim,
                     const uint16_t* p, uint32_t rows, Ahead& ahead, float* acc) {
    ForRowRuns<kMostRows>(rows, [&]<int R>(uint32_t r) {
      const uint16_t* row = p + size_t{r} * kTile;
      float* to = acc + size_t{r} * head_dim;
      uint32_t d = 0;
      for (; d + 64 <= head_dim; d += 64) ValuesOf<R, 4>(halves, head_dim, row, d, ahead, to);
      for (; d < head_dim; d += 16) ValuesOf<R, 1>(halves, head_dim, row, d, ahead, to);
    });
  }

 private:
  // Rows of a pass: sums of 6 rows and 4 vectors are 24 of 32 registers.
  static constexpr uint32_t kMostRows = 6;

  static MASU_INLINE I16 Broadcast(const uint16_t* pair) {
    int32_t both;
    __builtin_memcpy(&both, pair, 4);
    return {_mm512_set1_epi32(both)};
  }

  template <int R>
  static void ScoresOf(const uint8_t* const (&keys)[4], const uint16_t* q, uint32_t padded,
                       Ahead& ahead, float* scores) {
    for (uint32_t block = 0; block < padded / 2; block += 16) {
      F16 sum[R][4];
      for (int r = 0; r < R; ++r) {
        for (int v = 0; v < 4; ++v) sum[r][v] = Zero();
      }
      for (uint32_t pair = block; pair < block + 16; ++pair) {
        I16 k[4];
        for (int v = 0; v < 4; ++v) k[v] = LoadInt(keys[v] + pair * kPairLine);
        ahead.Next();
        for (int r = 0; r < R; ++r) {
          const I16 x = Broadcast(q + static_cast<size_t>(r) * padded + size_t{pair} * 2);
          for (int v = 0; v < 4; ++v) sum[r][v] = DotPairs(sum[r][v], x, k[v]);
        }
      }
      for (int r = 0; r < R; ++r) {
        float* to = scores + static_cast<size_t>(r) * kTile;
        for (int v = 0; v < 4; ++v) {
          // The first block's sum as it is: adding it to zero changes nothing but the sign of one.
          const F16 total = block == 0 ? sum[r][v] : Add(Load(to + v * 16), sum[r][v]);
          Store(to + v * 16, total);
        }
      }
    }
  }

  template <int R, int C>
  static void ValuesOf(const uint8_t* const (&halves)[2], uint32_t head_dim, const uint16_t* p,
                       uint32_t d, Ahead& ahead, float* acc) {
    F16 sum[R][C];
    for (int r = 0; r < R; ++r) {
      for (int v = 0; v < C; ++v) sum[r][v] = Zero();
    }
    for (uint32_t half = 0; half < 2; ++half) {
      for (uint32_t pair = 0; pair < 8; ++pair) {
        I16 values[C];
        for (int v = 0; v < C; ++v) {
          values[v] = LoadInt(halves[half] +
                              (size_t{pair} * head_dim + d + static_cast<size_t>(v) * 16) * 4);
        }
        ahead.Next();
        for (int r = 0; r < R; ++r) {
          const I16 x = Broadcast(p + static_cast<size_t>(r) * kTile + half * 16 + pair * 2);
          for (int v = 0; v < C; ++v) sum[r][v] = DotPairs(sum[r][v], x, values[v]);
        }
      }
    }
    for (int r = 0; r < R; ++r) {
      for (int v = 0; v < C; ++v) {
        float* to = acc + static_cast<size_t>(r) * head_dim + d + v * 16;
        Store(to, Add(Load(to), sum[r][v]));
      }
    }
  }
};

}  // namespace masu::cpu::MASU_ISA
