// The unit of attention_pairs.h by products of pairs of bfloat16 numbers in vectors (AVX512-BF16).
// Its order of summation is its own, as that of dot_kernel.h: blocks of 16 pairs, each in one chain
// from zero. Codes of int4 are multiplied as they are, and what their scales and centers do to a
// sum is done to the sum: nothing of K or V is rounded.
#pragma once

#include "backend/cpu/attention_pairs.h"
#include "backend/cpu/dot_kernel.h"

namespace masu::cpu::MASU_ISA {

struct DotUnit {
  static constexpr uint32_t kRows = 1;  // any number of rows
  static constexpr bool kCodes = true;
  // So few rows take K and V from where they are, decoded in registers: sums of 4 rows and 4
  // vectors, and tables.
  static constexpr uint32_t kRowsInPlace = 4;
  static void Begin() {}
  static void End() {}

  // scores[rows][kTile] = q K^T for the four blocks of 16 tokens of a tile, which are kEncoding;
  // q: [rows][padded].
  template <Encoding kEncoding>
  static void Scores(const std::byte* const (&keys)[4], const uint16_t* q, uint32_t padded,
                     uint32_t rows, Ahead ahead, const KeySums& sums, float* scores) {
    ForRowRuns<RowsOfPass(kEncoding)>(rows, [&]<int R>(uint32_t r) {
      ScoresOf<R, kEncoding>(keys, q + size_t{r} * padded, padded, ahead, sums,
                             sums.q_sums + size_t{r} * sums.groups, scores + size_t{r} * kTile);
      ahead.done = 4 * ahead.bytes;  // the first rows' pass asks for what it can
    });
  }

  // acc[rows][head_dim] += p V of 32 tokens, in two halves of 16; p: rows kTile apart, for the
  // groups of 32 dimensions group_stride apart.
  template <Encoding kEncoding>
  static void Values(const std::byte* const (&halves)[2], std::byte* /*room*/, uint32_t head_dim,
                     const uint16_t* p, size_t group_stride, uint32_t rows, Ahead& ahead,
                     float* acc) {
    ForRowRuns<RowsOfPass(kEncoding)>(rows, [&]<int R>(uint32_t r) {
      const uint16_t* row = p + size_t{r} * kTile;
      float* to = acc + size_t{r} * head_dim;
      uint32_t d = 0;
      for (; d + 64 <= head_dim; d += 64)
        ValuesOf<R, 2, kEncoding>(halves, head_dim, row, group_stride, d, ahead, to);
      for (; d + 32 <= head_dim; d += 32)
        ValuesOf<R, 1, kEncoding>(halves, head_dim, row, group_stride, d, ahead, to);
      if constexpr (kEncoding == Encoding::kBFloat16) {
        if (d < head_dim)
          ValuesOf<R, 0, kEncoding>(halves, head_dim, row, group_stride, d, ahead, to);
      }
    });
  }

 private:
  // Sums of 6 rows and 4 vectors are 24 of 32 registers.
  static constexpr uint32_t RowsOfPass(Encoding encoding) {
    return encoding == Encoding::kBFloat16 ? 6 : kRowsInPlace;
  }

  static MASU_INLINE I16 Broadcast(const uint16_t* pair) {
    int32_t both;
    __builtin_memcpy(&both, pair, 4);
    return {_mm512_set1_epi32(both)};
  }

  // Keeps a vector in its register: GCC would load it again for each row.
  static MASU_INLINE void Keep(I16& vector) { __asm__("" : "+v"(vector.v)); }

  template <int R, Encoding kEncoding>
  static void ScoresOf(const std::byte* const (&keys)[4], const uint16_t* q, uint32_t padded,
                       Ahead& ahead, const KeySums& sums, const float* q_sums, float* scores) {
    const PairCodes<kEncoding> codes;
    for (uint32_t block = 0; block < padded / 2; block += 16) {
      F16 sum[R][4];
      Unrolled<4 * R>([&]<int I>() MASU_LAMBDA_INLINE { sum[I / 4][I % 4] = Zero(); });
      for (uint32_t pair = block; pair < block + 16; pair += 2) {
        ahead.Next<kEncoding == Encoding::kBFloat16>();
        ahead.Next<kEncoding == Encoding::kBFloat16>();
        const auto pair_of = [&](int r, uint32_t i) MASU_LAMBDA_INLINE {
          return Broadcast(q + static_cast<size_t>(r) * padded + (pair + i) * 2);
        };
        if constexpr (kEncoding == Encoding::kBFloat16) {
          Unrolled<2>([&]<int I>() MASU_LAMBDA_INLINE {
            I16 k[4];
            Unrolled<4>([&]<int V>() MASU_LAMBDA_INLINE {
              k[V] = LoadInt(keys[V] + (pair + I) * kPairLine);
              Keep(k[V]);
            });
            Unrolled<R>([&]<int Row>() MASU_LAMBDA_INLINE {
              const I16 x = pair_of(Row, I);
              Unrolled<4>([&]<int V>()
                              MASU_LAMBDA_INLINE { sum[Row][V] = DotPairs(sum[Row][V], x, k[V]); });
            });
          });
        } else {
          I16 x[2 * R];
          Unrolled<2 * R>([&]<int I>() MASU_LAMBDA_INLINE {
            x[I] = pair_of(I / 2, I % 2);
            Keep(x[I]);
          });
          Unrolled<4>([&]<int V>() MASU_LAMBDA_INLINE {
            I16 k[2];
            codes.Keys(keys[V], pair, k);
            Unrolled<2 * R>([&]<int I>() MASU_LAMBDA_INLINE {
              constexpr int kRow = I % R;
              sum[kRow][V] = DotPairs(sum[kRow][V], x[kRow * 2 + I / R], k[I / R]);
            });
          });
        }
      }
      const float* scales = sums.scales + size_t{block / 16} * 2 * kTile;
      Unrolled<4 * R>([&]<int I>() MASU_LAMBDA_INLINE {
        constexpr int kRow = I / 4, kVector = I % 4;
        F16 part = sum[kRow][kVector];
        if (sums.groups > 0) {
          const F16 q_sum = Set1(q_sums[static_cast<size_t>(kRow) * sums.groups + block / 16]);
          const float* scale = scales + kVector * 16;
          part = Fma(part, Load(scale), Mul(q_sum, Load(scale + kTile)));
        }
        float* to = scores + kRow * kTile + kVector * 16;
        // The first block's sum as it is: adding it to zero changes nothing but the sign of one.
        Store(to, block == 0 ? part : Add(Load(to), part));
      });
    }
  }

  // Of C times 32 dimensions from d on; C == 0: of 16 bfloat16 numbers.
  template <int R, int C, Encoding kEncoding>
  static void ValuesOf(const std::byte* const (&halves)[2], uint32_t head_dim, const uint16_t* p,
                       size_t group_stride, uint32_t d, Ahead& ahead, float* acc) {
    constexpr int kPieces = C == 0 ? 1 : C;
    constexpr int kVectors = C == 0 ? 1 : 2;  // of a piece
    constexpr int kSums = kPieces * kVectors;
    const PairCodes<kEncoding> codes;
    F16 sum[R][kSums];
    Unrolled<R * kSums>([&]<int I>() MASU_LAMBDA_INLINE { sum[I / kSums][I % kSums] = Zero(); });
    for (uint32_t half = 0; half < 2; ++half) {
      for (uint32_t pair = 0; pair < 8; ++pair) {
        ahead.Next<kEncoding == Encoding::kBFloat16>();
        Unrolled<kPieces>([&]<int P>() MASU_LAMBDA_INLINE {
          const uint32_t at = d + P * 32;
          I16 values[2];
          if constexpr (C == 0) {
            values[0] = LoadInt(halves[half] + (size_t{pair} * head_dim + at) * 4);
          } else {
            codes.Values(halves[half], head_dim, pair, at, values);
            Keep(values[0]);
            Keep(values[1]);
          }
          const uint16_t* group = p + at / 32 * group_stride + half * 16 + pair * 2;
          Unrolled<R>([&]<int Row>() MASU_LAMBDA_INLINE {
            const I16 x = Broadcast(group + size_t{Row} * kTile);
            Unrolled<kVectors>([&]<int V>() MASU_LAMBDA_INLINE {
              F16& to = sum[Row][P * kVectors + V];
              to = DotPairs(to, x, values[V]);
            });
          });
        });
      }
    }
    Unrolled<R * kSums>([&]<int I>() MASU_LAMBDA_INLINE {
      float* to = acc + size_t{I / kSums} * head_dim + d + I % kSums * 16;
      Store(to, Add(Load(to), sum[I / kSums][I % kSums]));
    });
  }
};

}  // namespace masu::cpu::MASU_ISA
