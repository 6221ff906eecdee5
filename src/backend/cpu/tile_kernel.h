// y = x W^T on a tile unit (AMX): bfloat16 activations, exact codes as bfloat16 tiles. The unit
// adds in the order that ops/linear.h fixes, so the bits are those of the vector kernels. `Tiles`
// is the unit: eight tiles of 16 rows x 64 bytes. Tests run the same code on one made of plain
// arithmetic.
#pragma once

#include "backend/cpu/linear_kernel.h"

namespace masu::cpu::MASU_ISA {

// Activations as bfloat16 tiles: [blocks of 16 rows][groups][16 rows][32 inputs]; rows and inputs
// that do not exist are zero. This is one block of rows.
inline void PackRows(const float* x, size_t x_stride, uint32_t rows, uint32_t inputs,
                     uint8_t* out) {
  for (uint32_t k = 0; k < inputs; k += kGroup, out += kTileBytes) {
    for (uint32_t r = 0; r < kTileRows; ++r) {
      uint16_t* to = reinterpret_cast<uint16_t*>(out) + r * kGroup;
      const uint32_t count = r >= rows ? 0 : inputs - k < kGroup ? inputs - k : kGroup;
      const float* from = x + r * x_stride + k;
      for (uint32_t i = 0; i < kGroup; ++i)
        to[i] = i < count ? static_cast<uint16_t>(FloatToBits(from[i]) >> 16) : 0;
    }
  }
}

// Groups that are decoded at a time: 16 KiB stay in L1 beside the sums of 128 rows.
inline constexpr uint32_t kTileGroups = 8;

// C[2 blocks][2 halves of a panel] += A[block] x B[half] for one group; tiles 0..3 are C, 4 and 5
// A, 6 and 7 B. Successive products share a tile.
template <typename Tiles>
MASU_INLINE void TileProduct(const uint8_t* a, size_t a_block, bool two, const uint8_t* b) {
  Tiles::template Load<6>(b, 128);
  Tiles::template Load<7>(b + 64, 128);
  Tiles::template Load<4>(a, 64);
  if (two) Tiles::template Load<5>(a + a_block, 64);
  Tiles::template Multiply<0, 4, 6>();
  Tiles::template Multiply<1, 4, 7>();
  if (two) {
    Tiles::template Multiply<3, 5, 7>();
    Tiles::template Multiply<2, 5, 6>();
  }
}

template <typename Tiles>
MASU_INLINE void TileZero(bool two) {
  Tiles::template Zero<0>();
  Tiles::template Zero<1>();
  if (!two) return;
  Tiles::template Zero<2>();
  Tiles::template Zero<3>();
}

// To [32 rows][32 outputs].
template <typename Tiles>
MASU_INLINE void TileStore(bool two, float* c) {
  Tiles::template Store<0>(c, kPanel * 4);
  Tiles::template Store<1>(c + 16, kPanel * 4);
  if (!two) return;
  Tiles::template Store<2>(c + 16 * kPanel, kPanel * 4);
  Tiles::template Store<3>(c + 16 * kPanel + 16, kPanel * 4);
}

template <typename Tiles>
void TilePanelBf16(const LinearTask& task, const uint8_t* panel, uint32_t output) {
  alignas(64) float c[32 * kPanel];
  const uint32_t groups = (task.inputs + kGroup - 1) / kGroup;
  const size_t a_block = groups * kTileBytes;
  // Weights come from memory in the first pass: 8 KiB ahead of the products.
  constexpr size_t kAhead = 8192;
  for (uint32_t row = 0; row < task.rows; row += 2 * kTileRows) {
    const uint8_t* a = task.x_tiles + row / kTileRows * a_block;
    const bool two = task.rows - row > kTileRows;
    TileZero<Tiles>(two);
    for (uint32_t g = 0; g < groups; ++g) {
      const uint8_t* b = panel + GroupOffset(Format::kBF16, g);
      if (row == 0) {
        for (uint32_t line = 0; line < 2048; line += 64) __builtin_prefetch(b + kAhead + line);
      }
      TileProduct<Tiles>(a + g * kTileBytes, a_block, two, b);
    }
    TileStore<Tiles>(two, c);
    const uint32_t rows = task.rows - row < 32 ? task.rows - row : 32;
    for (uint32_t r = 0; r < rows; ++r) {
      WriteOut(task, row + r, output, Load(c + r * kPanel));
      WriteOut(task, row + r, output + 16, Load(c + r * kPanel + 16));
    }
  }
}

// Codes of one part of a group as two tiles of pairs, [16][32 outputs][2]; inputs of other parts
// are zero, which adds nothing.
template <Format kFormat>
MASU_INLINE void DecodeTiles(const uint8_t* codes, uint32_t part, uint8_t* out) {
  constexpr uint32_t kPairs = kGroup / SubGroups(kFormat) / 2;
  GroupReader<kFormat, 2> reader(codes, 0);
  MASU_UNROLL_16
  for (uint32_t pair = 0; pair < kGroup / 2; ++pair) {
    F16 lower[2], upper[2];
    reader.Next(lower);
    reader.Next(upper);
    for (uint32_t v = 0; v < 2; ++v) {
      I16 both = Bf16Pair(lower[v], upper[v]);
      if (pair / kPairs != part) both = Bf16Pair(Zero(), Zero());
      StoreInt(out + pair * 128 + v * 64, both);
    }
  }
}

// acc[32 rows][32 outputs] += scales x c.
template <Format kFormat>
MASU_INLINE void TileAccumulate(const LinearTask& task, const uint8_t* panel, uint32_t group,
                                uint32_t part, uint32_t row, uint32_t rows, const float* c,
                                float* acc) {
  const ScaleView view = ScalesOf<kFormat>(panel, group);
  const uint32_t groups = (task.inputs + kGroup - 1) / kGroup;
  for (uint32_t r = 0; r < rows; ++r) {
    const float block_sum =
        HasMinimum(kFormat) ? task.block_sums[size_t{row + r} * groups + group] : 0.0f;
    for (uint32_t first = 0; first < kPanel; first += 16) {
      float* at = acc + r * kPanel + first;
      Store(at, Accumulate<kFormat>(Load(at), Load(c + r * kPanel + first), view, first, part,
                                    block_sum));
    }
  }
}

template <typename Tiles, Format kFormat>
void TilePanelBlocks(const LinearTask& task, const uint8_t* panel, uint32_t output) {
  constexpr uint32_t kParts = SubGroups(kFormat);
  constexpr size_t kPair = 2 * kTileBytes;
  alignas(64) uint8_t b[kTileGroups * kParts * kPair];
  alignas(64) float c[32 * kPanel];
  alignas(64) float acc[kRowBlock * kPanel];
  const uint32_t groups = (task.inputs + kGroup - 1) / kGroup;
  const size_t a_block = groups * kTileBytes;
  for (uint32_t begin = 0; begin < task.rows; begin += kRowBlock) {
    const uint32_t rows = task.rows - begin < kRowBlock ? task.rows - begin : kRowBlock;
    __builtin_memset(acc, 0, rows * kPanel * sizeof(float));
    for (uint32_t first = 0; first < groups; first += kTileGroups) {
      const uint32_t last = groups - first < kTileGroups ? groups : first + kTileGroups;
      for (uint32_t g = first; g < last; ++g) {
        for (uint32_t part = 0; part < kParts; ++part) {
          DecodeTiles<kFormat>(panel + GroupOffset(kFormat, g), part,
                               b + ((g - first) * kParts + part) * kPair);
        }
      }
      for (uint32_t row = 0; row < rows; row += 2 * kTileRows) {
        const uint8_t* a = task.x_tiles + (begin + row) / kTileRows * a_block;
        const bool two = rows - row > kTileRows;
        const uint32_t count = rows - row < 32 ? rows - row : 32;
        for (uint32_t g = first; g < last; ++g) {
          for (uint32_t part = 0; part < kParts; ++part) {
            TileZero<Tiles>(two);
            TileProduct<Tiles>(a + g * kTileBytes, a_block, two,
                               b + ((g - first) * kParts + part) * kPair);
            TileStore<Tiles>(two, c);
            TileAccumulate<kFormat>(task, panel, g, part, begin + row, count, c,
                                    acc + row * kPanel);
          }
        }
      }
    }
    for (uint32_t r = 0; r < rows; ++r) {
      WriteOut(task, begin + r, output, Load(acc + r * kPanel));
      WriteOut(task, begin + r, output + 16, Load(acc + r * kPanel + 16));
    }
  }
}

template <typename Tiles, Format kFormat>
void TilePanels(const LinearTask& task) {
  const size_t panel_bytes = PanelBytes(kFormat, (task.inputs + kGroup - 1) / kGroup);
  for (uint32_t p = task.panel_begin; p < task.panel_end; ++p) {
    const uint8_t* panel = task.panels + p * panel_bytes;
    if constexpr (kFormat == Format::kBF16) {
      TilePanelBf16<Tiles>(task, panel, p * kPanel);
    } else {
      TilePanelBlocks<Tiles, kFormat>(task, panel, p * kPanel);
    }
  }
}

template <typename Tiles>
void LinearTiles(const LinearTask& task) {
  Tiles::Configure();
  WithFormat(task.format, [&]<Format kFormat>() {
    if constexpr (FitsTiles(kFormat)) TilePanels<Tiles, kFormat>(task);
  });
  Tiles::Release();
}

}  // namespace masu::cpu::MASU_ISA
