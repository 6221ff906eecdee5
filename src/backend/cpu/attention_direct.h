// Attention of few rows over a whole tile: K and V go from the page into registers, without the
// scratch of decoded vectors that many rows share. The same sums in the same order. AVX-512 only.
// Included by attention_kernel.h.
#pragma once

namespace masu::cpu::MASU_ISA {

// At most so many rows at a time: 3 sums for each and V's two halves are 24 of 32 registers.
inline constexpr uint32_t kDirectRows16 = 8;  // K: 16 tokens
inline constexpr uint32_t kDirectRows32 = 6;  // V: 2 x 16 dimensions

#if defined(__AVX512VBMI__)

// Codes of 8 bits as bfloat16 numbers, by a look-up of the magnitude: exact.
struct ByteTable {
  __m512i high[2];
  __m512i low[2];
};
template <Encoding kEncoding>
constexpr uint16_t Bf16OfMagnitude(uint32_t code) {
  float value = 0;
  if constexpr (kEncoding == Encoding::kInt8) {
    value = static_cast<float>(code);
  } else {
    constexpr uint32_t kMantissa = kEncoding == Encoding::kFp8E4M3 ? 3 : 2;
    constexpr int kBias = kEncoding == Encoding::kFp8E4M3 ? 7 : 15;
    const uint32_t exponent = code >> kMantissa;
    const uint32_t mantissa = code & ((1u << kMantissa) - 1u);
    const uint32_t top = kEncoding == Encoding::kFp8E4M3 ? 0x7fu : 0x7cu;
    if (kEncoding == Encoding::kFp8E4M3 ? code == top : code >= top) {
      return mantissa == 0 && kEncoding == Encoding::kFp8E5M2 ? 0x7f80 : 0x7fc0;
    }
    const auto whole = static_cast<float>(exponent == 0 ? mantissa : mantissa + (1u << kMantissa));
    const int power =
        (exponent == 0 ? 1 : static_cast<int>(exponent)) - kBias - static_cast<int>(kMantissa);
    value = whole * __builtin_bit_cast(float, static_cast<uint32_t>(127 + power) << 23);
  }
  return static_cast<uint16_t>(__builtin_bit_cast(uint32_t, value) >> 16);
}
template <Encoding kEncoding>
MASU_INLINE ByteTable LoadByteTable() {
  struct Bytes {
    alignas(64) uint8_t high[128] = {};
    alignas(64) uint8_t low[128] = {};
  };
  static constexpr Bytes kBytes = [] {
    Bytes bytes;
    for (uint32_t code = 0; code < 128; ++code) {
      const uint16_t number = Bf16OfMagnitude<kEncoding>(code);
      bytes.high[code] = static_cast<uint8_t>(number >> 8);
      bytes.low[code] = static_cast<uint8_t>(number);
    }
    return bytes;
  }();
  return {{_mm512_load_si512(kBytes.high), _mm512_load_si512(kBytes.high + 64)},
          {_mm512_load_si512(kBytes.low), _mm512_load_si512(kBytes.low + 64)}};
}

// 64 codes as the lower and the upper bytes of their numbers; int8 from -127 on.
struct BytePlanes {
  __m512i low;
  __m512i high;
};
template <Encoding kEncoding>
MASU_INLINE BytePlanes LookUp(const ByteTable& table, __m512i codes) {
  // The look-up takes the low seven bits of each code.
  const __m512i magnitude = kEncoding == Encoding::kInt8 ? _mm512_abs_epi8(codes) : codes;
  const __m512i high = _mm512_permutex2var_epi8(table.high[0], magnitude, table.high[1]);
  return {_mm512_permutex2var_epi8(table.low[0], magnitude, table.low[1]),
          // high | (codes & 0x80)
          _mm512_ternarylogic_epi32(high, codes, _mm512_set1_epi8(-128), 0xf8)};
}

// Two runs of 16 x 2 codes as so many pairs of bfloat16 numbers.
template <Encoding kEncoding>
MASU_INLINE void LookUpPairs(const ByteTable& table, const std::byte* p, I16& first, I16& second) {
  // Eight bytes of the first run beside eight of the second in each quarter.
  const __m512i order = _mm512_setr_epi64(0, 4, 1, 5, 2, 6, 3, 7);
  const __m512i codes = _mm512_permutexvar_epi64(order, _mm512_loadu_si512(p));
  const BytePlanes planes = LookUp<kEncoding>(table, codes);
  first = {_mm512_unpacklo_epi8(planes.low, planes.high)};
  second = {_mm512_unpackhi_epi8(planes.low, planes.high)};
}

template <Encoding kEncoding>
inline constexpr bool kLooksUp = kEncoding == Encoding::kFp8E4M3 ||
                                 kEncoding == Encoding::kFp8E5M2 || kEncoding == Encoding::kInt8;
#else
struct ByteTable {};
template <Encoding kEncoding>
MASU_INLINE ByteTable LoadByteTable() {
  return {};
}
template <Encoding kEncoding>
inline constexpr bool kLooksUp = false;
#endif

// Two runs of 16 x 2 codes: `even` gets codes 0, 2, .. and `odd` 1, 3, ...
template <Encoding kEncoding>
MASU_INLINE void DecodeTwoPairs(const ByteTable& table, const std::byte* p, F16 (&even)[2],
                                F16 (&odd)[2]) {
#if defined(__AVX512VBMI__)
  if constexpr (kLooksUp<kEncoding>) {
    I16 first, second;
    LookUpPairs<kEncoding>(table, p, first, second);
    even[0] = LowerBf16(first);
    odd[0] = UpperBf16(first);
    even[1] = LowerBf16(second);
    odd[1] = UpperBf16(second);
    return;
  }
#endif
  (void)table;
  DecodePair<kEncoding>(p, even[0], odd[0]);
  DecodePair<kEncoding>(p + 32 * ElementBytes(kEncoding), even[1], odd[1]);
}

constexpr bool IsInt4(Encoding encoding) { return encoding == Encoding::kInt4; }

// The codes of a side of one block of 16 tokens.
constexpr size_t BlockBytes(Encoding encoding, uint32_t head_dim) {
  return IsInt4(encoding) ? size_t{head_dim} * 8 : size_t{head_dim} * 16 * ElementBytes(encoding);
}

// The low nibbles of 16 bytes, and the high ones.
MASU_INLINE void DecodeNibbles(const std::byte* p, F16& low, F16& high) {
  const I16 both = LoadByteLanes(p);
  low = LowNibble<0>(both);
  high = LowNibble<0>(ShiftRight<4>(both));
}

// A half precision number in every lane.
MASU_INLINE F16 SetHalf(const std::byte* p) {
  uint16_t bits;
  __builtin_memcpy(&bits, p, 2);
  return {_mm512_cvtph_ps(_mm256_set1_epi16(static_cast<int16_t>(bits)))};
}

// scores[r][0..16) of the 16 tokens of `block`; `next` is prefetched, as many bytes.
template <Encoding kEncoding, int R>
MASU_INLINE void DirectScores(const SideView& side, uint32_t block_size, uint32_t head_dim,
                              PageCursor at, const std::byte* next, const float* q, float* scores) {
  const ByteTable table = LoadByteTable<kEncoding>();
  constexpr bool kInt4 = IsInt4(kEncoding);
  constexpr size_t kPairBytes = kInt4 ? 16 : 32 * ElementBytes(kEncoding);
  const std::byte* codes = at.page + side.offset + at.slot / 16 * BlockBytes(kEncoding, head_dim);
  const std::byte* scales = at.page + side.scale_offset + size_t{at.slot} * 2;
  F16 total[R];
  for (int r = 0; r < R; ++r) total[r] = Zero();
  for (uint32_t block = 0; block < head_dim; block += 32) {
    const uint32_t pairs = head_dim - block < 32 ? 8 : 16;
    F16 even[R], odd[R];
    for (int r = 0; r < R; ++r) even[r] = odd[r] = Zero();
    F16 scale, minimum;
    if constexpr (kInt4) {
      scale = LoadFp16(scales);
      minimum = LoadFp16(scales + size_t{block_size} * 2);
      scales += size_t{block_size} * 4;
    }
    for (uint32_t i = 0; i < pairs; i += 2, codes += 2 * kPairBytes) {
      F16 w_even[2], w_odd[2];
      if constexpr (kInt4) {
        for (uint32_t j = 0; j < 2; ++j) {
          DecodeNibbles(codes + j * 16, w_even[j], w_odd[j]);
          w_even[j] = Fma(w_even[j], scale, minimum);
          w_odd[j] = Fma(w_odd[j], scale, minimum);
        }
      } else {
        DecodeTwoPairs<kEncoding>(table, codes, w_even, w_odd);
      }
      if (next != nullptr) {
        for (size_t line = 0; line < 2 * kPairBytes; line += 64) __builtin_prefetch(next + line);
        next += 2 * kPairBytes;
      }
      for (uint32_t j = 0; j < 2; ++j) {
        const float* x = q + block + (i + j) * 2;
        for (int r = 0; r < R; ++r) {
          const float* row = x + static_cast<size_t>(r) * head_dim;
          even[r] = Fma(Set1(row[0]), w_even[j], even[r]);
          odd[r] = Fma(Set1(row[1]), w_odd[j], odd[r]);
        }
      }
    }
    for (int r = 0; r < R; ++r) total[r] = Add(total[r], Add(even[r], odd[r]));
  }
  for (int r = 0; r < R; ++r) Store(scores + static_cast<size_t>(r) * kTile, total[r]);
}

// acc[r][d..d + 32) += the products of 32 tokens' probabilities p[r] with V; the tokens are two
// blocks of 16.
template <Encoding kEncoding, int R>
MASU_INLINE void DirectValues(const SideView& side, uint32_t block_size, uint32_t head_dim,
                              const PageCursor (&at)[2], const float* p, uint32_t d, float* acc) {
  const ByteTable table = LoadByteTable<kEncoding>();
  constexpr bool kInt4 = IsInt4(kEncoding);
  F16 even[R][2], odd[R][2];
  for (int r = 0; r < R; ++r) even[r][0] = even[r][1] = odd[r][0] = odd[r][1] = Zero();
  for (uint32_t half = 0; half < 2; ++half) {
    const std::byte* side_of_page = at[half].page + side.offset;
    for (uint32_t t = 0; t < 16; t += 2) {
      F16 w_even[2], w_odd[2];
      const uint32_t slot = at[half].slot + t;
      if constexpr (kInt4) {
        // A group of 32 dimensions: low nibbles are the first 16, high ones the others.
        const std::byte* scales =
            at[half].page + side.scale_offset + size_t{d / 32} * block_size * 4 + size_t{slot} * 2;
        for (uint32_t j = 0; j < 2; ++j) {
          F16 low, high;
          DecodeNibbles(side_of_page + size_t{slot + j} * (head_dim / 2) + d / 2, low, high);
          const F16 scale = SetHalf(scales + size_t{j} * 2);
          const F16 minimum = SetHalf(scales + size_t{block_size} * 2 + size_t{j} * 2);
          (j == 0 ? w_even : w_odd)[0] = Fma(low, scale, minimum);
          (j == 0 ? w_even : w_odd)[1] = Fma(high, scale, minimum);
        }
      } else {
        const std::byte* codes =
            side_of_page + (size_t{slot / 2} * head_dim + d) * 2 * ElementBytes(kEncoding);
        DecodeTwoPairs<kEncoding>(table, codes, w_even, w_odd);
      }
      for (int r = 0; r < R; ++r) {
        const float* x = p + static_cast<size_t>(r) * kTile + half * 16 + t;
        const F16 first = Set1(x[0]), second = Set1(x[1]);
        for (int j = 0; j < 2; ++j) {
          even[r][j] = Fma(first, w_even[j], even[r][j]);
          odd[r][j] = Fma(second, w_odd[j], odd[r][j]);
        }
      }
    }
  }
  for (int r = 0; r < R; ++r) {
    for (int j = 0; j < 2; ++j) {
      float* to = acc + static_cast<size_t>(r) * head_dim + d + j * 16;
      Store(to, Add(Load(to), Add(even[r][j], odd[r][j])));
    }
  }
}

// Calls function.operator()<R>(first row) for runs of at most kMost rows.
template <uint32_t kMost, typename Function>
MASU_INLINE void ForRowRuns(uint32_t rows, const Function& function) {
  for (uint32_t r = 0; r < rows; r += kMost) {
    WithRows<kMost>(rows - r < kMost ? rows - r : kMost,
                    [&]<int R>() { function.template operator()<R>(r); });
  }
}

// Whether tokens can be read as they lie in pages: all of them exist and are in some row's window,
// pages hold blocks of 16 tokens, and all of them have the same layout.
MASU_INLINE bool IsWhole(const AttentionTask& task, uint32_t position, uint32_t tokens) {
  return task.block_size >= 16 && task.head_dim % 32 == 0 && position + tokens <= task.kv_end &&
         position >= task.kv_first &&
         (position >= task.first_tokens || position + tokens <= task.first_tokens);
}
// A whole tile of which no decoded value is rounded.
MASU_INLINE bool IsDirectTile(const AttentionTask& task, uint32_t position) {
  const bool rounds = task.round_to_bf16 && (IsInt4(KeyAt(task, position).encoding) ||
                                             IsInt4(ValueAt(task, position).encoding));
  return !rounds && IsWhole(task, position, kTile);
}

MASU_INLINE void DirectTileScores(const AttentionTask& task, uint32_t position, const float* q,
                                  uint32_t rows, float* scores) {
  const SideView& side = KeyAt(task, position);
  WithEncoding(side.encoding, [&]<Encoding kEncoding>() {
    for (uint32_t t = 0; t < kTile; t += 16) {
      const PageCursor at = Locate(task, position + t);
      // The same block of the next tile; its layout may differ after the first page, which costs
      // only a useless prefetch.
      const std::byte* next = nullptr;
      if (position + t + kTile < task.kv_end) {
        const PageCursor ahead = Locate(task, position + t + kTile);
        next = ahead.page + side.offset + ahead.slot / 16 * BlockBytes(kEncoding, task.head_dim);
      }
      ForRowRuns<kDirectRows16>(rows, [&]<int R>(uint32_t r) {
        DirectScores<kEncoding, R>(side, task.block_size, task.head_dim, at,
                                   r == 0 ? next : nullptr, q + size_t{r} * task.head_dim,
                                   scores + size_t{r} * kTile + t);
      });
    }
  });
}

MASU_INLINE void DirectTileValues(const AttentionTask& task, uint32_t position,
                                  const float* probabilities, uint32_t rows, float* acc) {
  const SideView& side = ValueAt(task, position);
  WithEncoding(side.encoding, [&]<Encoding kEncoding>() {
    for (uint32_t t = 0; t < kTile; t += 32) {
      const PageCursor at[2] = {Locate(task, position + t), Locate(task, position + t + 16)};
      // The same blocks of the next tile.
      const size_t bytes = BlockBytes(kEncoding, task.head_dim);
      for (uint32_t ahead = position + t + kTile; ahead < position + t + kTile + 32; ahead += 16) {
        if (ahead >= task.kv_end) break;
        const PageCursor cursor = Locate(task, ahead);
        const std::byte* next = cursor.page + side.offset + size_t{cursor.slot / 16} * bytes;
        for (size_t line = 0; line < bytes; line += 64) __builtin_prefetch(next + line);
      }
      for (uint32_t d = 0; d < task.head_dim; d += 32) {
        ForRowRuns<kDirectRows32>(rows, [&]<int R>(uint32_t r) {
          DirectValues<kEncoding, R>(side, task.block_size, task.head_dim, at,
                                     probabilities + size_t{r} * kTile + t, d,
                                     acc + size_t{r} * task.head_dim);
        });
      }
    }
  });
}

}  // namespace masu::cpu::MASU_ISA
