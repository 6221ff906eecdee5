// The unit of attention_pairs.h on a tile unit (AMX), in the order of attention_kernel.h: the same
// bits. `Tiles` as in tile_kernel.h.
#pragma once

#include "backend/cpu/attention_pairs.h"
#include "backend/cpu/tile_kernel.h"

namespace masu::cpu::MASU_ISA {

template <typename Tiles>
struct TileUnit {
  static constexpr uint32_t kRows = kTileRows;  // whole blocks
  static constexpr bool kCodes = false;         // int4 is decoded
  static constexpr uint32_t kRowsInPlace = 0;
  static void Begin() { Tiles::Configure(); }
  static void End() { Tiles::Release(); }

  // Up to three blocks of rows share a tile of K or V: tiles 0..2 are sums, 3..5 rows, 6 K or V.
  template <Encoding>
  static void Scores(const std::byte* const (&keys)[4], const uint16_t* q, uint32_t padded,
                     uint32_t rows, Ahead ahead, const KeySums& /*sums*/, float* scores) {
    for (uint32_t r = 0; r < rows; r += 3 * kTileRows) {
      WithRows<3>(Blocks(rows - r), [&]<int B>() {
        for (uint32_t block = 0; block < 4; ++block) {
          float* to = scores + size_t{r} * kTile + block * 16;
          Unrolled<B>([&]<int I>() { Tiles::template Zero<I>(); });
          for (uint32_t d = 0; d < padded; d += 32) {
            Tiles::template Load<6>(keys[block] + size_t{d} / 2 * kPairLine, kPairLine);
            const uint16_t* x = q + size_t{r} * padded + d;
            Multiply<B>(x, size_t{padded});
            for (int line = 0; r == 0 && line < 16; ++line) ahead.Next<false>();
          }
          Unrolled<B>([&]<int I>() {
            Tiles::template Store<I>(to + I * kTileRows * kTile, kTile * sizeof(float));
          });
        }
      });
    }
  }

  template <Encoding>
  static void Values(const std::byte* const (&halves)[2], std::byte* room, uint32_t head_dim,
                     const uint16_t* p, size_t /*group_stride*/, uint32_t rows, Ahead& ahead,
                     float* acc) {
    // A tile of V is 16 pairs of tokens at equal distances: halves that lie apart are put together.
    const size_t half_bytes = size_t{head_dim} * 4 * 8;
    const std::byte* v = halves[0];
    if (halves[1] != v + half_bytes) {
      if (halves[0] != room) __builtin_memcpy(room, halves[0], half_bytes);
      if (halves[1] != room + half_bytes)
        __builtin_memcpy(room + half_bytes, halves[1], half_bytes);
      v = room;
    }
    for (uint32_t r = 0; r < rows; r += 3 * kTileRows) {
      WithRows<3>(Blocks(rows - r), [&]<int B>() {
        for (uint32_t d = 0; d < head_dim; d += 16) {
          float* to = acc + size_t{r} * head_dim + d;
          const size_t stride = size_t{head_dim} * sizeof(float);
          Unrolled<B>([&]<int I>() {
            Tiles::template Load<I>(to + size_t{I} * kTileRows * head_dim, stride);
          });
          Tiles::template Load<6>(v + size_t{d} * 4, size_t{head_dim} * 4);
          Multiply<B>(p + size_t{r} * kTile, kTile);
          Unrolled<B>([&]<int I>() {
            Tiles::template Store<I>(to + size_t{I} * kTileRows * head_dim, stride);
          });
          for (int line = 0; r == 0 && line < 8; ++line) ahead.Next<false>();
        }
      });
    }
  }

 private:
  static uint32_t Blocks(uint32_t rows) { return rows >= 3 * kTileRows ? 3 : rows / kTileRows; }

  // Tiles 0.. += blocks of rows from x, `stride` numbers apart, x tile 6.
  template <int B>
  static MASU_INLINE void Multiply(const uint16_t* x, size_t stride) {
    Unrolled<B>([&]<int I>() {
      Tiles::template Load<3 + I>(x + I * kTileRows * stride, stride * sizeof(uint16_t));
      Tiles::template Multiply<I, 3 + I, 6>();
    });
  }
};

}  // namespace masu::cpu::MASU_ISA
