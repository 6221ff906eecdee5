// Attention by products of pairs of bfloat16 numbers: K and V of a tile as pairs, read from pages
// as they are or decoded once into an L1 scratch for all rows, and multiplied by a `Unit`
// (dot_attention.h, tile_attention.h). For activations in bfloat16 and encodings
// whose numbers bfloat16 holds; everything else goes the way of attention_kernel.h. One way for
// every number of rows. Included once per instruction set that has such products.
#pragma once

#include "backend/cpu/attention_kernel.h"

namespace masu::cpu::MASU_ISA {

static_assert(kLooksUp<Encoding::kInt8>, "these sets have AVX512-VBMI, and AVX512-BF16");

MASU_INLINE bool HoldsBf16(const SideView& side) {
  return side.encoding != Encoding::kFloat32 && side.encoding != Encoding::kFloat16;
}
MASU_INLINE bool FitsPairs(const AttentionTask& task) {
  return task.round_to_bf16 && HoldsBf16(task.k) && HoldsBf16(task.v) && HoldsBf16(task.first_k) &&
         HoldsBf16(task.first_v);
}

// Prefetches go to L2 only: L1 keeps fewer requests under way than memory can serve.
inline constexpr int kToL2 = 2;

// Bytes that the next tile reads, asked for line by line beside the arithmetic of this one.
struct Ahead {
  const std::byte* at[4];
  size_t bytes;  // from each
  size_t step;
  size_t done = 0;

  MASU_INLINE void Next() {
    if (done >= bytes) return;
    for (const std::byte* from : at) __builtin_prefetch(from + done, 0, kToL2);
    done += step;
  }
};

// Of the tile behind the one at `position`; the lines of its scales are asked for at once.
template <typename SideAt>
MASU_INLINE Ahead NextTile(const AttentionTask& task, const SideAt& side_at, uint32_t position) {
  Ahead ahead = {};
  const uint32_t next = position + kTile;
  if (next >= task.kv_ahead || task.block_size < 16) return ahead;
  const SideView& side = side_at(task, next);
  ahead.bytes = BlockBytes(side.encoding, task.head_dim);
  // Long runs of lines, read as they are, are better left to the CPU's own prefetcher by half.
  ahead.step = side.encoding == Encoding::kBFloat16 ? 128 : 64;
  // A scale of each token, or a scale and a minimum for each 32 dimensions of each.
  const uint32_t rows = IsInt4(side.encoding) ? task.head_dim / 16 : side.scaled ? 1 : 0;
  const uint32_t row_bytes = task.block_size * 2;
  for (uint32_t i = 0; i < 4; ++i) {
    const uint32_t block = next + i * 16 < task.kv_ahead ? next + i * 16 : next;
    const PageCursor at = Locate(task, block);
    ahead.at[i] = at.page + side.offset + at.slot / 16 * ahead.bytes;
    const std::byte* scales = at.page + side.scale_offset + size_t{at.slot} * 2;
    for (uint32_t byte = 0; byte < rows * row_bytes; byte += row_bytes < 64 ? 64 : row_bytes)
      __builtin_prefetch(scales + byte, 0, kToL2);
  }
  return ahead;
}

// One vector of 16 lanes of pairs in memory.
inline constexpr size_t kPairLine = 64;

// Nibbles of eight bytes, the lower one of each first. A look-up takes the low four bits of a lane.
MASU_INLINE F16 NibblePairs(const std::byte* p) {
  const __m512i bytes = _mm512_cvtepu8_epi64(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(p)));
  return LowNibble<0>({_mm512_or_si512(bytes, _mm512_slli_epi64(bytes, 28))});
}

// Eight half precision numbers, each in two lanes.
MASU_INLINE F16 HalvesTwice(const std::byte* p) {
  const __m256i words = _mm256_cvtepu16_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
  return {_mm512_cvtph_ps(_mm256_or_si256(words, _mm256_slli_epi32(words, 16)))};
}
// Two half precision numbers in turn.
MASU_INLINE F16 TwoHalves(const std::byte* p) {
  int32_t both;
  __builtin_memcpy(&both, p, 4);
  return {_mm512_cvtph_ps(_mm256_set1_epi32(both))};
}

// `runs` times 64 codes as so many pairs.
template <Encoding kEncoding>
MASU_INLINE void LookUpRuns(const std::byte* codes, uint32_t runs, uint8_t* out) {
  const ByteTable table = LoadByteTable<kEncoding>();
#pragma GCC unroll 4
  for (uint32_t i = 0; i < runs; ++i) {
    I16 first, second;
    LookUpPairs<kEncoding>(table, codes + size_t{i} * 64, first, second);
    StoreInt(out + size_t{i} * 128, first);
    StoreInt(out + size_t{i} * 128 + 64, second);
  }
}

template <Encoding kEncoding>
MASU_INLINE void PageKeyPairs(const AttentionTask& task, const SideView& side, PageCursor at,
                              uint8_t* out) {
  const uint32_t pairs = task.head_dim / 2;
  const std::byte* codes =
      at.page + side.offset + at.slot / 16 * BlockBytes(kEncoding, task.head_dim);
  if constexpr (IsInt4(kEncoding)) {
    const std::byte* scales = at.page + side.scale_offset + size_t{at.slot} * 2;
    const size_t row = size_t{task.block_size} * 2;
    for (uint32_t g = 0; g < pairs; g += 16, scales += 2 * row) {
      // Of both dimensions of a pair of eight tokens, then of the other eight.
      const F16 scale[2] = {HalvesTwice(scales), HalvesTwice(scales + 16)};
      const F16 minimum[2] = {HalvesTwice(scales + row), HalvesTwice(scales + row + 16)};
      for (uint32_t i = g; i < g + 16; ++i) {
        F16 value[2];
        for (uint32_t half = 0; half < 2; ++half) {
          const F16 code = NibblePairs(codes + size_t{i} * 16 + half * 8);
          value[half] = Fma(code, scale[half], minimum[half]);
        }
        StoreInt(out + i * kPairLine, PackBf16(value[0], value[1]));
      }
    }
  } else if constexpr (kLooksUp<kEncoding>) {
    LookUpRuns<kEncoding>(codes, pairs / 2, out);
  }
}

// Pairs of dimensions of the 16 tokens from `position`, [padded / 2][16], where they are or in
// `out`. Lanes of tokens that do not exist hold anything. decoded: [head_dim][16] floats.
MASU_INLINE const uint8_t* KeyPairs(const AttentionTask& task, uint32_t position, uint32_t padded,
                                    float* decoded, uint8_t* out) {
  if (task.block_size >= 16 && padded == task.head_dim) {
    const SideView& side = KeyAt(task, position);
    const PageCursor at = Locate(task, position);
    if (side.encoding == Encoding::kBFloat16) {
      return reinterpret_cast<const uint8_t*>(at.page + side.offset +
                                              at.slot / 16 * BlockBytes(side.encoding, padded));
    }
    WithEncoding(side.encoding, [&]<Encoding kEncoding>() MASU_LAMBDA_INLINE {
      PageKeyPairs<kEncoding>(task, side, at, out);
    });
    return out;
  }
  DecodeKeysAny(task, position, decoded);
  for (uint32_t i = 0; i < padded / 2; ++i) {
    const bool exists = i < task.head_dim / 2;
    StoreInt(out + i * kPairLine,
             exists ? Bf16Pair(Load(decoded + i * 32), Load(decoded + i * 32 + 16))
                    : Bf16Pair(Zero(), Zero()));
  }
  return out;
}

// [tokens / 2][head_dim] pairs of tokens, from `slot` of a page on.
template <Encoding kEncoding>
MASU_INLINE void PageValuePairs(const AttentionTask& task, const SideView& side, PageCursor at,
                                uint32_t tokens, uint8_t* out) {
  const uint32_t size = task.head_dim;
  if constexpr (IsInt4(kEncoding)) {
    const std::byte* codes = at.page + side.offset + size_t{at.slot} * (size / 2);
    const std::byte* scales = at.page + side.scale_offset + size_t{at.slot} * 2;
    const size_t row = size_t{task.block_size} * 2;
    for (uint32_t t = 0; t < tokens; t += 2, codes += size, scales += 4) {
      for (uint32_t d = 0; d < size; d += 32, out += 128) {
        // Bytes of both tokens in turn: dimensions 0..7 and 16..23 of the group, then the others.
        const auto load = [](const std::byte* from) {
          return _mm_loadu_si128(reinterpret_cast<const __m128i*>(from));
        };
        const __m128i first = load(codes + d / 2), second = load(codes + (size + d) / 2);
        const std::byte* group = scales + d / 16 * row;
        const F16 scale = TwoHalves(group), minimum = TwoHalves(group + row);
        F16 low[2], high[2];
        for (uint32_t part = 0; part < 2; ++part) {
          const I16 bytes = {_mm512_cvtepu8_epi32(part == 0 ? _mm_unpacklo_epi8(first, second)
                                                            : _mm_unpackhi_epi8(first, second))};
          low[part] = Fma(LowNibble<0>(bytes), scale, minimum);
          high[part] = Fma(LowNibble<0>(ShiftRight<4>(bytes)), scale, minimum);
        }
        StoreInt(out, PackBf16(low[0], low[1]));
        StoreInt(out + 64, PackBf16(high[0], high[1]));
      }
    }
  } else {
    constexpr size_t kBytes = 2 * ElementBytes(kEncoding);
    const std::byte* codes = at.page + side.offset + size_t{at.slot / 2} * size * kBytes;
    if constexpr (kLooksUp<kEncoding>) {
      if (size % 32 == 0) return LookUpRuns<kEncoding>(codes, tokens * size / 64, out);
    }
    for (uint32_t i = 0; i < tokens / 2 * size; i += 16) {
      F16 even, odd;
      DecodePair<kEncoding>(codes + i * kBytes, even, odd);
      StoreInt(out + size_t{i} * 4, Bf16Pair(even, odd));
    }
  }
}

MASU_INLINE I16 KeepBits(I16 lanes, uint32_t mask) {
  return {_mm512_and_si512(lanes.v, _mm512_set1_epi32(static_cast<int>(mask)))};
}

// Pairs of tokens of the 16 from `position`, [8][head_dim], where they are or in `out`. Tokens
// outside [kv_first, kv_end) are zero, so that a probability of zero meets no leftover NaN.
MASU_INLINE const uint8_t* ValuePairs(const AttentionTask& task, uint32_t position, uint8_t* out) {
  const size_t pair_bytes = size_t{task.head_dim} * 4;
  const bool whole = position + 16 <= task.kv_end && position >= task.kv_first;
  const uint32_t step = task.block_size < 16 ? 8 : 16;
  for (uint32_t begin = position; begin < position + 16; begin += step) {
    uint8_t* to = out + (begin - position) / 2 * pair_bytes;
    if (begin >= task.kv_end || begin + step <= task.kv_first) {
      __builtin_memset(to, 0, step / 2 * pair_bytes);
      continue;
    }
    const SideView& side = ValueAt(task, begin);
    const PageCursor at = Locate(task, begin);
    if (side.encoding == Encoding::kBFloat16 && step == 16 && whole)
      return reinterpret_cast<const uint8_t*>(at.page + side.offset + at.slot / 2 * pair_bytes);
    WithEncoding(side.encoding, [&]<Encoding kEncoding>() MASU_LAMBDA_INLINE {
      PageValuePairs<kEncoding>(task, side, at, step, to);
    });
    if (whole) continue;
    const auto exists = [&](uint32_t t) { return t >= task.kv_first && t < task.kv_end; };
    for (uint32_t t = begin; t < begin + step; t += 2, to += pair_bytes) {
      if (exists(t) && exists(t + 1)) continue;
      const uint32_t mask = (exists(t) ? 0xffffu : 0u) | (exists(t + 1) ? 0xffff0000u : 0u);
      for (uint32_t d = 0; d < task.head_dim; d += 16)
        StoreInt(to + size_t{d} * 4, KeepBits(LoadInt(to + size_t{d} * 4), mask));
    }
  }
  return out;
}

// The scratch of one task.
struct PairScratch {
  float* scores;    // [rows][kTile]
  float* biases;    // [rows][kTile]
  float* decoded;   // [32][head_dim]
  uint16_t* q;      // [rows][padded]
  uint16_t* p;      // [rows][kTile]
  uint8_t* keys;    // [4][padded / 2][16] pairs
  uint8_t* values;  // [4][8][head_dim] pairs
  uint32_t padded;  // head_dim, up to a multiple of 32
};
MASU_INLINE PairScratch PairScratchOf(const AttentionTask& task) {
  PairScratch s;
  s.padded = (task.head_dim + 31) / 32 * 32;
  s.scores = reinterpret_cast<float*>((reinterpret_cast<uintptr_t>(task.scratch) + 63) / 64 * 64);
  s.biases = s.scores + size_t{kAttentionRows} * kTile;
  s.q = reinterpret_cast<uint16_t*>(s.biases + size_t{kAttentionRows} * kTile);
  s.p = s.q + size_t{kAttentionRows} * s.padded;
  s.keys = reinterpret_cast<uint8_t*>(s.p + size_t{kAttentionRows} * kTile);
  s.values = s.keys + size_t{kTile} * s.padded * 2;
  s.decoded = reinterpret_cast<float*>(s.values + size_t{kTile} * s.padded * 2);
  return s;
}

template <typename Unit>
MASU_INLINE void PairTile(const AttentionTask& task, const PairScratch& s, uint32_t position) {
  const RowRange range = RowsOfTile(task, position);
  if (range.first == range.last) return;
  const uint32_t rows = range.last - range.first;
  // A unit may work on whole blocks of rows; what it does to others than the range's is nothing.
  const uint32_t begin = range.first / Unit::kRows * Unit::kRows;
  const uint32_t end = (range.last + Unit::kRows - 1) / Unit::kRows * Unit::kRows;

  const uint8_t* keys[4];
  for (uint32_t i = 0; i < 4; ++i) {
    const uint32_t block = position + i * 16;
    // A block outside is read as another one, and its scores are not looked at.
    const bool readable = block < task.kv_end && block + 16 > task.kv_first;
    uint8_t* out = s.keys + size_t{i} * 16 * s.padded * 2;
    keys[i] = readable ? KeyPairs(task, block, s.padded, s.decoded, out) : nullptr;
  }
  for (uint32_t i = 1; i < 4; ++i) keys[i] = keys[i] == nullptr ? keys[i - 1] : keys[i];
  for (uint32_t i = 3; i > 0; --i) keys[i - 1] = keys[i - 1] == nullptr ? keys[i] : keys[i - 1];
  Unit::Scores(keys, s.q + size_t{begin} * s.padded, s.padded, end - begin,
               NextTile(task, KeyAt, position), s.scores + size_t{begin} * kTile);

  const uint32_t skipped = range.first - begin;
  if (skipped > 0) __builtin_memset(s.p + size_t{begin} * kTile, 0, size_t{skipped} * kTile * 2);
  if (end > range.last)
    __builtin_memset(s.p + size_t{range.last} * kTile, 0, size_t{end - range.last} * kTile * 2);
  uint16_t* p = s.p + size_t{range.first} * kTile;
  SoftmaxRows(task, position, range,
              TileBiases(task, position, range.first, rows, s.decoded, s.biases),
              s.scores + size_t{range.first} * kTile,
              [&](uint32_t r, uint32_t token, F16 values)
                  MASU_LAMBDA_INLINE { StoreBf16(p + size_t{r} * kTile + token, values); });

  Ahead ahead = NextTile(task, ValueAt, position);
  for (uint32_t t = 0; t < kTile && position + t < task.kv_end; t += 32) {
    if (position + t + 32 <= task.kv_first) continue;
    uint8_t* out = s.values + size_t{t} * task.head_dim * 2;
    const uint8_t* halves[2];
    for (uint32_t half = 0; half < 2; ++half) {
      halves[half] =
          ValuePairs(task, position + t + half * 16, out + size_t{half} * 16 * task.head_dim * 2);
    }
    Unit::Values(halves, out, task.head_dim, s.p + size_t{begin} * kTile + t, end - begin, ahead,
                 task.acc + size_t{begin} * task.head_dim);
  }
}

template <typename Unit>
void PairAttention(const AttentionTask& task) {
  if (!FitsPairs(task)) return Attention(task);
  BeginResults(task);
  const PairScratch s = PairScratchOf(task);
  for (uint32_t r = 0; r < task.rows; ++r) {
    uint16_t* to = s.q + size_t{r} * s.padded;
    const float* from = task.q + size_t{r} * task.head_dim;
    for (uint32_t d = 0; d < s.padded; d += 16)
      StoreBf16(to + d, d < task.head_dim ? Load(from + d) : Zero());
  }
  Unit::Begin();
  for (uint32_t position = task.kv_begin; position < task.kv_end; position += kTile)
    PairTile<Unit>(task, s, position);
  Unit::End();
}

}  // namespace masu::cpu::MASU_ISA
