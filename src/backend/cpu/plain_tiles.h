// A tile unit of plain arithmetic, for tests on machines without one. Included after MASU_ISA is
// defined; uses nothing that other files share, as kernels do.
#pragma once

#include "backend/cpu/simd.h"

namespace masu::cpu::MASU_ISA {

// Eight tiles of 16 rows x 64 bytes. A product adds, for each pair of the 16 pairs in a row of A,
// the even and the odd numbers in two chains of fused multiply-adds, and their sum to C (Intel's
// manual, TDPBF16PS).
struct PlainTiles {
  static inline uint8_t tiles[8][16][64];
  static inline int configured = 0;
  static inline bool misused = false;  // used while not configured

  static void Configure() { ++configured; }
  static void Release() { --configured; }
  template <int kTile>
  static void Zero() {
    misused = misused || configured != 1;
    __builtin_memset(tiles[kTile], 0, sizeof(tiles[kTile]));
  }
  template <int kTile>
  static void Load(const void* p, size_t stride) {
    misused = misused || configured != 1;
    for (size_t r = 0; r < 16; ++r)
      __builtin_memcpy(tiles[kTile][r], static_cast<const uint8_t*>(p) + r * stride, 64);
  }
  template <int kTile>
  static void Store(void* p, size_t stride) {
    for (size_t r = 0; r < 16; ++r)
      __builtin_memcpy(static_cast<uint8_t*>(p) + r * stride, tiles[kTile][r], 64);
  }
  static float Number(const uint8_t* at) {
    uint16_t bits;
    __builtin_memcpy(&bits, at, 2);
    return BitsToFloat(static_cast<uint32_t>(bits) << 16);
  }
  template <int kC, int kA, int kB>
  static void Multiply() {
    for (size_t m = 0; m < 16; ++m) {
      for (size_t n = 0; n < 16; ++n) {
        float even = 0, odd = 0, c;
        for (size_t k = 0; k < 16; ++k) {
          const uint8_t* a = &tiles[kA][m][k * 4];
          const uint8_t* b = &tiles[kB][k][n * 4];
          even = __builtin_fmaf(Number(a), Number(b), even);
          odd = __builtin_fmaf(Number(a + 2), Number(b + 2), odd);
        }
        __builtin_memcpy(&c, &tiles[kC][m][n * 4], 4);
        c += even + odd;
        __builtin_memcpy(&tiles[kC][m][n * 4], &c, 4);
      }
    }
  }
};

}  // namespace masu::cpu::MASU_ISA
