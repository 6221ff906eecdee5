// Eight tiles of 16 rows x 64 bytes, as ldtilecfg takes it.
#pragma once

#include <cstdint>

namespace masu::cpu {

struct alignas(64) TileConfiguration {
  uint8_t palette = 1;
  uint8_t start_row = 0;
  uint8_t reserved[14] = {};
  uint16_t row_bytes[16] = {64, 64, 64, 64, 64, 64, 64, 64};
  uint8_t rows[16] = {16, 16, 16, 16, 16, 16, 16, 16};
};
static_assert(sizeof(TileConfiguration) == 64);
inline constexpr TileConfiguration kTileConfiguration;

}  // namespace masu::cpu
