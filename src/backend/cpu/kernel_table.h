// Fills the kernel table of one instruction set. Included once per instruction set, last.
#pragma once

#include "backend/cpu/attention_kernel.h"
#include "backend/cpu/int8_kernel.h"
#include "backend/cpu/linear_kernel.h"
#include "backend/cpu/row_kernels.h"

#define MASU_STRING_INNER(x) #x
#define MASU_STRING(x) MASU_STRING_INNER(x)

namespace masu::cpu::MASU_ISA {

const Kernels& Table() {
  static constexpr Kernels kTable = {
      .isa = MASU_STRING(MASU_ISA),
      .linear = Linear,
      .linear_tiles = nullptr,
      .pack_rows = nullptr,
      .linear_int8 = LinearInt8,
      .quantize_row = QuantizeRow,
      .block_sums = BlockSums,
      .rms_norm = RmsNorm,
      .silu_mul = SiluMul,
      .rope = Rope,
      .row_stats = RowStats,
      .kv_write = KvWrite,
      .prepare_query = PrepareQuery,
      .attention = Attention,
      .attention_merge = AttentionMerge,
      .attention_finish = AttentionFinish,
  };
  return kTable;
}

}  // namespace masu::cpu::MASU_ISA
