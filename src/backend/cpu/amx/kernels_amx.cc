// Products on AMX tiles; flags are set in cmake/masu.cmake.
#define MASU_ISA amx
#include "backend/cpu/amx/tile_configuration.h"
#include "backend/cpu/tile_attention.h"

namespace masu::cpu::amx {
namespace {

// Eight tiles of 16 rows x 64 bytes. The instructions are written out: g++ 12 declares only 8 bytes
// of ldtilecfg's operand as read, and its other intrinsics take literal numbers only.
struct AmxTiles {
  static void Configure() { asm volatile("ldtilecfg %0" ::"m"(kTileConfiguration)); }
  static void Release() { asm volatile("tilerelease" ::); }

  template <int kTile>
  MASU_INLINE static void Zero() {
    asm volatile("tilezero %%tmm%c0" ::"i"(kTile));
  }
  template <int kTile>
  MASU_INLINE static void Load(const void* p, size_t stride) {
    asm volatile("tileloadd (%0,%1,1), %%tmm%c2" ::"r"(p), "r"(stride), "i"(kTile) : "memory");
  }
  template <int kTile>
  MASU_INLINE static void Store(void* p, size_t stride) {
    asm volatile("tilestored %%tmm%c2, (%0,%1,1)" ::"r"(p), "r"(stride), "i"(kTile) : "memory");
  }
  // c += a x b, with pairs of bfloat16 numbers.
  template <int kC, int kA, int kB>
  MASU_INLINE static void Multiply() {
    asm volatile("tdpbf16ps %%tmm%c2, %%tmm%c1, %%tmm%c0" ::"i"(kC), "i"(kA), "i"(kB));
  }
};

}  // namespace

void Extend(Kernels& kernels) {
  kernels.isa = "amx";
  kernels.linear_tiles = LinearTiles<AmxTiles>;
  kernels.pack_rows = PackRows;
  kernels.attention = PairAttention<TileUnit<AmxTiles>>;
}

}  // namespace masu::cpu::amx
