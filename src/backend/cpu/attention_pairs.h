// Attention by products of pairs of bfloat16 numbers: K and V of a tile as pairs, read from pages
// as they are or decoded once into an L1 scratch for all rows, and multiplied by a `Unit`
// (dot_attention.h, tile_attention.h). For activations in bfloat16 and encodings whose numbers, or
// codes, bfloat16 holds; everything else goes the way of attention_kernel.h. The arithmetic is one
// for every number of rows. Included once per instruction set that has such products.
#pragma once

#include "backend/cpu/pair_codes.h"

namespace masu::cpu::MASU_ISA {

MASU_INLINE bool HoldsBf16(const SideView& side) {
  return side.encoding != Encoding::kFloat32 && side.encoding != Encoding::kFloat16;
}
MASU_INLINE bool FitsPairs(const AttentionTask& task) {
  return task.round_to_bf16 && HoldsBf16(task.k) && HoldsBf16(task.v) && HoldsBf16(task.first_k) &&
         HoldsBf16(task.first_v);
}

// Prefetches go to L2 only: L1 keeps fewer requests under way than memory can serve.
inline constexpr int kToL2 = 2;

// Bytes that the next tile reads, asked for some lines at a time beside the arithmetic of this one.
struct Ahead {
  const std::byte* at[4];
  uint32_t bytes;  // from each
  uint32_t done = 0;

  // kRuns: one run after the other, so that the CPU's own prefetcher finds long ones and goes ahead
  // of them: for bfloat16, where memory is the limit.
  template <bool kRuns>
  MASU_INLINE void Next() {
    if constexpr (kRuns) {
      if (done >= 4 * bytes) return;
      const std::byte* from = at[done / bytes] + done % bytes;
      for (uint32_t i = 0; i < 256; i += 64) __builtin_prefetch(from + i, 0, kToL2);
      done += 256;
    } else {
      if (done >= bytes) return;
      for (const std::byte* from : at) __builtin_prefetch(from + done, 0, kToL2);
      done += 64;
    }
  }
};

// Of the tile behind the one at `position`; the lines of its scales are asked for at once.
template <typename SideAt>
MASU_INLINE Ahead NextTile(const AttentionTask& task, const SideAt& side_at, uint32_t position) {
  Ahead ahead = {};
  const uint32_t next = position + kTile;
  if (next >= task.kv_ahead || task.block_size < 16) return ahead;
  const SideView& side = side_at(task, next);
  ahead.bytes = static_cast<uint32_t>(BlockBytes(side.encoding, task.head_dim));
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

// Beside products with int4's codes as they are (see CodeGroups): null where there are none.
struct KeySums {
  const float* scales = nullptr;  // [groups][2][kTile]
  const float* q_sums = nullptr;  // [rows][groups]
  uint32_t groups = 0;
};

MASU_INLINE const std::byte* BlockAt(const AttentionTask& task, const SideView& side,
                                     uint32_t position) {
  const PageCursor at = Locate(task, position);
  return at.page + side.offset + at.slot / 16 * BlockBytes(side.encoding, task.head_dim);
}

// As WithEncoding, for those that HoldsBf16 allows.
template <typename Function>
MASU_INLINE void WithPairCodes(Encoding encoding, const Function& function) {
  WithEncoding(encoding, [&]<Encoding kEncoding>() MASU_LAMBDA_INLINE {
    if constexpr (kEncoding != Encoding::kFloat32 && kEncoding != Encoding::kFloat16)
      function.template operator()<kEncoding>();
  });
}

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

template <Encoding kEncoding, bool kCodes>
MASU_INLINE void PageKeyPairs(const AttentionTask& task, const SideView& side, PageCursor at,
                              std::byte* out) {
  const uint32_t pairs = task.head_dim / 2;
  const std::byte* codes =
      at.page + side.offset + at.slot / 16 * BlockBytes(kEncoding, task.head_dim);
  if constexpr (IsInt4(kEncoding) && !kCodes) {
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
  } else if constexpr (kLooksUp<kEncoding> || IsInt4(kEncoding)) {
    const PairCodes<kEncoding> numbers;
    for (uint32_t i = 0; i < pairs; i += 2) {
      I16 two[2];
      numbers.Keys(codes, i, two);
      for (uint32_t j = 0; j < 2; ++j) StoreInt(out + (i + j) * kPairLine, two[j]);
    }
  }
}

// Pairs of dimensions of the 16 tokens from `position`, [padded / 2][16], where they are or in
// `out`. Lanes of tokens that do not exist hold anything. decoded: [head_dim][16] floats. kCodes:
// int4's codes as they are.
template <bool kCodes>
MASU_INLINE const std::byte* KeyPairs(const AttentionTask& task, uint32_t position, uint32_t padded,
                                      float* decoded, std::byte* out) {
  if (task.block_size >= 16 && padded == task.head_dim) {
    const SideView& side = KeyAt(task, position);
    const PageCursor at = Locate(task, position);
    if (side.encoding == Encoding::kBFloat16) {
      return BlockAt(task, side, position);
    }
    WithEncoding(side.encoding, [&]<Encoding kEncoding>() MASU_LAMBDA_INLINE {
      PageKeyPairs<kEncoding, kCodes>(task, side, at, out);
    });
    return out;
  }
  DecodeKeysAny<kCodes>(task, position, decoded);
  for (uint32_t i = 0; i < padded / 2; ++i) {
    const bool exists = i < task.head_dim / 2;
    StoreInt(out + i * kPairLine,
             exists ? Bf16Pair(Load(decoded + i * 32), Load(decoded + i * 32 + 16))
                    : Bf16Pair(Zero(), Zero()));
  }
  return out;
}

// [tokens / 2][head_dim] pairs of tokens, from `slot` of a page on.
template <Encoding kEncoding, bool kCodes>
MASU_INLINE void PageValuePairs(const AttentionTask& task, const SideView& side, PageCursor at,
                                uint32_t tokens, std::byte* out) {
  const uint32_t size = task.head_dim;
  if constexpr (kLooksUp<kEncoding> || (IsInt4(kEncoding) && kCodes)) {
    if (size % 32 == 0) {
      const std::byte* codes = at.page + side.offset + at.slot * (BlockBytes(kEncoding, size) / 16);
      const PairCodes<kEncoding> numbers;
      for (uint32_t pair = 0; pair < tokens / 2; ++pair) {
        for (uint32_t d = 0; d < size; d += 32, out += 2 * kPairLine) {
          I16 two[2];
          numbers.Values(codes, size, pair, d, two);
          for (uint32_t j = 0; j < 2; ++j) StoreInt(out + j * kPairLine, two[j]);
        }
      }
      return;
    }
  }
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
// outside [kv_first, kv_end) are zero, so that a probability of zero meets no leftover NaN. kCodes:
// as KeyPairs.
template <bool kCodes>
MASU_INLINE const std::byte* ValuePairs(const AttentionTask& task, uint32_t position,
                                        std::byte* out) {
  const size_t pair_bytes = size_t{task.head_dim} * 4;
  const bool whole = position + 16 <= task.kv_end && position >= task.kv_first;
  const uint32_t step = task.block_size < 16 ? 8 : 16;
  for (uint32_t begin = position; begin < position + 16; begin += step) {
    std::byte* to = out + (begin - position) / 2 * pair_bytes;
    if (begin >= task.kv_end || begin + step <= task.kv_first) {
      __builtin_memset(to, 0, step / 2 * pair_bytes);
      continue;
    }
    const SideView& side = ValueAt(task, begin);
    const PageCursor at = Locate(task, begin);
    if (side.encoding == Encoding::kBFloat16 && step == 16 && whole)
      return BlockAt(task, side, begin);
    WithEncoding(side.encoding, [&]<Encoding kEncoding>() MASU_LAMBDA_INLINE {
      PageValuePairs<kEncoding, kCodes>(task, side, at, step, to);
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

// What stands beside int4's codes: a code c is (c - kInt4Center) * scale + center.
struct CodeGroups {
  float* scales = nullptr;  // [count][2][kTile]: scales, then centers
  uint32_t count = 0;       // head_dim / 32; 0: codes are decoded, or there are none
};

// The scratch of one task.
struct PairScratch {
  float* scores;      // [rows][kTile]
  float* biases;      // [rows][kTile]
  float* decoded;     // [32][head_dim]
  uint16_t* q;        // [rows][padded]
  uint16_t* p;        // [rows][kTile]; with codes of V [head_dim / 32][kAttentionRows][kTile]
  std::byte* keys;    // [4][padded / 2][16] pairs
  std::byte* values;  // [4][8][head_dim] pairs
  uint32_t padded;    // head_dim, up to a multiple of 32
  CodeGroups key_groups;
  CodeGroups value_groups;
  float* q_sums;   // [rows][key_groups.count]
  float* centers;  // [rows][value_groups.count]: sums of probabilities times centers
};
MASU_INLINE PairScratch PairScratchOf(const AttentionTask& task, bool codes) {
  PairScratch s = {};
  s.padded = (task.head_dim + 31) / 32 * 32;
  const uint32_t groups = s.padded / 32;
  const auto has_codes = [&](const SideView& first, const SideView& others) {
    return codes && (IsInt4(first.encoding) || IsInt4(others.encoding));
  };
  float* at = reinterpret_cast<float*>((reinterpret_cast<uintptr_t>(task.scratch) + 63) / 64 * 64);
  const auto floats = [&](size_t count) { return (at += count) - count; };
  const auto numbers = [&](size_t count) { return reinterpret_cast<uint16_t*>(floats(count / 2)); };
  s.scores = floats(size_t{kAttentionRows} * kTile);
  s.biases = floats(size_t{kAttentionRows} * kTile);
  s.q = numbers(size_t{kAttentionRows} * s.padded);
  s.keys = reinterpret_cast<std::byte*>(numbers(size_t{kTile} * s.padded));
  s.values = reinterpret_cast<std::byte*>(numbers(size_t{kTile} * s.padded));
  s.decoded = floats(size_t{32} * task.head_dim);
  const bool value_codes = has_codes(task.first_v, task.v);
  s.p = numbers(size_t{kAttentionRows} * kTile * (value_codes ? groups : 1));
  if (has_codes(task.first_k, task.k)) {
    s.key_groups = {floats(size_t{groups} * 2 * kTile), groups};
    s.q_sums = floats(size_t{kAttentionRows} * groups);
  }
  if (value_codes) {
    s.value_groups = {floats(size_t{groups} * 2 * kTile), groups};
    s.centers = floats(size_t{kAttentionRows} * groups);
  }
  return s;
}

// Scales and centers of the tile from `position`; of tokens with another encoding 1 and 0, and
// outside [kv_first, kv_end) 0.
template <typename SideAt>
MASU_INLINE void LoadCodeGroups(const AttentionTask& task, const SideAt& side_at, uint32_t position,
                                const CodeGroups& groups) {
  const uint32_t step = task.block_size < 16 ? 8 : 16;
  const size_t row = size_t{task.block_size} * 2;
  const __mmask16 tokens = step == 16 ? 0xffff : 0xff;
  for (uint32_t t = 0; t < kTile; t += step) {
    const SideView& side = side_at(task, position + t);
    const bool exists = position + t < task.kv_end && position + t + step > task.kv_first;
    const std::byte* from = nullptr;
    if (exists && IsInt4(side.encoding)) {
      const PageCursor at = Locate(task, position + t);
      from = at.page + side.scale_offset + size_t{at.slot} * 2;
    }
    for (uint32_t g = 0; g < groups.count; ++g) {
      F16 scale = Set1(exists ? 1.0f : 0.0f);
      F16 center = Zero();
      if (from != nullptr) {
        const auto load = [&](const std::byte* halves) {
          if (step == 16) return LoadFp16(halves);
          uint16_t eight[16] = {};
          __builtin_memcpy(eight, halves, 16);
          return LoadFp16(eight);
        };
        const uint32_t left = task.kv_end - position - t;
        scale = KeepFirst(load(from + 2 * g * row), left, Zero());
        center = KeepFirst(load(from + (2 * g + 1) * row), left, Zero());
        center = Fma(Set1(kInt4Center), scale, center);
      }
      float* to = groups.scales + size_t{g} * 2 * kTile + t;
      _mm512_mask_storeu_ps(to, tokens, scale.v);
      _mm512_mask_storeu_ps(to + kTile, tokens, center.v);
    }
  }
}

// [rows][groups] sums of q over groups of 32 dimensions.
MASU_INLINE void SumQueries(const uint16_t* q, uint32_t rows, uint32_t groups, float* sums) {
  for (uint32_t i = 0; i < rows * groups; ++i) {
    const I16 pairs = LoadInt(q + size_t{i} * 32);
    sums[i] = ReduceAdd(Add(LowerBf16(pairs), UpperBf16(pairs)));
  }
}

template <typename Unit>
MASU_INLINE void TileScores(const AttentionTask& task, const PairScratch& s, uint32_t position,
                            uint32_t begin, uint32_t end) {
  KeySums sums = {};
  if (s.key_groups.count > 0) {
    LoadCodeGroups(task, KeyAt, position, s.key_groups);
    sums = {s.key_groups.scales, s.q_sums + size_t{begin} * s.key_groups.count, s.key_groups.count};
  }
  const uint16_t* q = s.q + size_t{begin} * s.padded;
  float* scores = s.scores + size_t{begin} * kTile;
  const Ahead ahead = NextTile(task, KeyAt, position);
  const std::byte* keys[4];
  if constexpr (Unit::kRowsInPlace > 0) {
    if (end - begin <= Unit::kRowsInPlace && IsWhole(task, position, kTile)) {
      const SideView& side = KeyAt(task, position);
      for (uint32_t i = 0; i < 4; ++i) keys[i] = BlockAt(task, side, position + i * 16);
      return WithPairCodes(side.encoding, [&]<Encoding kEncoding>() MASU_LAMBDA_INLINE {
        Unit::template Scores<kEncoding>(keys, q, s.padded, end - begin, ahead, sums, scores);
      });
    }
  }
  for (uint32_t i = 0; i < 4; ++i) {
    const uint32_t block = position + i * 16;
    // A block outside is read as another one, and its scores are not looked at.
    const bool readable = block < task.kv_end && block + 16 > task.kv_first;
    std::byte* out = s.keys + size_t{i} * 16 * s.padded * 2;
    keys[i] = readable ? KeyPairs<Unit::kCodes>(task, block, s.padded, s.decoded, out) : nullptr;
  }
  for (uint32_t i = 1; i < 4; ++i) keys[i] = keys[i] == nullptr ? keys[i - 1] : keys[i];
  for (uint32_t i = 3; i > 0; --i) keys[i - 1] = keys[i - 1] == nullptr ? keys[i] : keys[i - 1];
  Unit::template Scores<Encoding::kBFloat16>(keys, q, s.padded, end - begin, ahead, sums, scores);
}

// Probabilities of a range of rows, as what V is multiplied with.
MASU_INLINE void TileProbabilities(const AttentionTask& task, const PairScratch& s,
                                   uint32_t position, RowRange range) {
  const uint32_t rows = range.last - range.first;
  const float* biases = TileBiases(task, position, range.first, rows, s.decoded, s.biases);
  const float* scores = s.scores + size_t{range.first} * kTile;
  uint16_t* p = s.p + size_t{range.first} * kTile;
  const CodeGroups& groups = s.value_groups;
  if (groups.count == 0) {
    return SoftmaxRows(task, position, range, biases, scores,
                       [&](uint32_t r, const F16(&values)[4]) MASU_LAMBDA_INLINE {
                         uint16_t* to = p + size_t{r} * kTile;
                         for (uint32_t i = 0; i < 4; ++i) StoreBf16(to + i * 16, values[i]);
                       });
  }
  // A group of V's codes is multiplied with probabilities times scales; centers are summed apart.
  LoadCodeGroups(task, ValueAt, position, groups);
  SoftmaxRows(task, position, range, biases, scores,
              [&](uint32_t r, const F16(&values)[4]) MASU_LAMBDA_INLINE {
                for (uint32_t g = 0; g < groups.count; ++g) {
                  const float* scales = groups.scales + size_t{g} * 2 * kTile;
                  uint16_t* to = p + (size_t{g} * kAttentionRows + r) * kTile;
                  F16 sum = Zero();
                  for (uint32_t i = 0; i < 4; ++i) {
                    StoreBf16(to + i * 16, Mul(values[i], Load(scales + i * 16)));
                    sum = Fma(values[i], Load(scales + kTile + i * 16), sum);
                  }
                  s.centers[size_t{r} * groups.count + g] = ReduceAdd(sum);
                }
              });
  for (uint32_t r = 0; r < rows; ++r) {
    float* acc = task.acc + size_t{range.first + r} * task.head_dim;
    for (uint32_t d = 0; d < task.head_dim; d += 16) {
      const F16 sum = Set1(s.centers[size_t{r} * groups.count + d / 32]);
      Store(acc + d, Add(Load(acc + d), sum));
    }
  }
}

template <typename Unit>
MASU_INLINE void TileValues(const AttentionTask& task, const PairScratch& s, uint32_t position,
                            uint32_t begin, uint32_t end) {
  Ahead ahead = NextTile(task, ValueAt, position);
  // Rows of probabilities for each group of dimensions, or for all of them.
  const size_t group_stride = s.value_groups.count > 0 ? size_t{kAttentionRows} * kTile : 0;
  float* acc = task.acc + size_t{begin} * task.head_dim;
  for (uint32_t t = 0; t < kTile && position + t < task.kv_end; t += 32) {
    if (position + t + 32 <= task.kv_first) continue;
    const uint16_t* p = s.p + size_t{begin} * kTile + t;
    std::byte* out = s.values + size_t{t} * task.head_dim * 2;
    const std::byte* halves[2];
    if constexpr (Unit::kRowsInPlace > 0) {
      if (end - begin <= Unit::kRowsInPlace && IsWhole(task, position + t, 32)) {
        const SideView& side = ValueAt(task, position + t);
        for (uint32_t half = 0; half < 2; ++half)
          halves[half] = BlockAt(task, side, position + t + half * 16);
        WithPairCodes(side.encoding, [&]<Encoding kEncoding>() MASU_LAMBDA_INLINE {
          Unit::template Values<kEncoding>(halves, out, task.head_dim, p, group_stride, end - begin,
                                           ahead, acc);
        });
        continue;
      }
    }
    for (uint32_t half = 0; half < 2; ++half) {
      halves[half] = ValuePairs<Unit::kCodes>(task, position + t + half * 16,
                                              out + size_t{half} * 16 * task.head_dim * 2);
    }
    Unit::template Values<Encoding::kBFloat16>(halves, out, task.head_dim, p, group_stride,
                                               end - begin, ahead, acc);
  }
}

template <typename Unit>
MASU_INLINE void PairTile(const AttentionTask& task, const PairScratch& s, uint32_t position) {
  const RowRange range = RowsOfTile(task, position);
  if (range.first == range.last) return;
  // A unit may work on whole blocks of rows; what it does to others than the range's is nothing.
  const uint32_t begin = range.first / Unit::kRows * Unit::kRows;
  const uint32_t end = (range.last + Unit::kRows - 1) / Unit::kRows * Unit::kRows;
  TileScores<Unit>(task, s, position, begin, end);
  const auto no_probability = [&](uint32_t first, uint32_t last) {
    __builtin_memset(s.p + size_t{first} * kTile, 0, size_t{last - first} * kTile * 2);
  };
  if (begin < range.first) no_probability(begin, range.first);
  if (range.last < end) no_probability(range.last, end);
  TileProbabilities(task, s, position, range);
  TileValues<Unit>(task, s, position, begin, end);
}

template <typename Unit>
void PairAttention(const AttentionTask& task) {
  if (!FitsPairs(task)) return Attention(task);
  BeginResults(task);
  const PairScratch s = PairScratchOf(task, Unit::kCodes);
  for (uint32_t r = 0; r < task.rows; ++r) {
    uint16_t* to = s.q + size_t{r} * s.padded;
    const float* from = task.q + size_t{r} * task.head_dim;
    for (uint32_t d = 0; d < s.padded; d += 16)
      StoreBf16(to + d, d < task.head_dim ? Load(from + d) : Zero());
  }
  if (s.key_groups.count > 0) SumQueries(s.q, task.rows, s.key_groups.count, s.q_sums);
  Unit::Begin();
  for (uint32_t position = task.kv_begin; position < task.kv_end; position += kTile)
    PairTile<Unit>(task, s, position);
  Unit::End();
}

}  // namespace masu::cpu::MASU_ISA
