// Attention on tiles of plain arithmetic, for attention_test.cc: a file of its own, since what it
// is made of needs the flags of an instruction set.
#define MASU_ISA plain_tiles
#include "backend/cpu/plain_tiles.h"
#include "backend/cpu/tile_attention.h"

namespace masu::cpu::plain_tiles {

// Returns whether the unit was used as it should be.
bool TileAttention(const AttentionTask& task) {
  PairAttention<TileUnit<PlainTiles>>(task);
  return PlainTiles::configured == 0 && !PlainTiles::misused;
}

}  // namespace masu::cpu::plain_tiles
