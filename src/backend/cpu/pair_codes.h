// K and V of pages as pairs of bfloat16 numbers in vectors, for products of such pairs. Included
// once per instruction set that has those.
#pragma once

#include "backend/cpu/attention_kernel.h"

namespace masu::cpu::MASU_ISA {

static_assert(kLooksUp<Encoding::kInt8>, "these sets have AVX512-VBMI, and AVX512-BF16");

// One vector of 16 lanes of pairs in memory.
inline constexpr size_t kPairLine = 64;

// Two vectors of pairs from a block of 16 tokens as it lies in a page (ops/kv_layout.h), exact and
// without scales.
//   Keys: dimensions (2 pair, 2 pair + 1) and the next two, pair even; lanes are tokens.
//   Values: tokens (2 pair, 2 pair + 1); lanes are dimensions d .. d + 16, then d + 16 .. d + 32.
template <Encoding kEncoding>
struct PairCodes {
  static_assert(kLooksUp<kEncoding>);
  const ByteTable table = LoadByteTable<kEncoding>();

  MASU_INLINE void Keys(const std::byte* block, uint32_t pair, I16 (&out)[2]) const {
    LookUpPairs<kEncoding>(table, block + size_t{pair} * 32, out[0], out[1]);
  }
  MASU_INLINE void Values(const std::byte* block, uint32_t head_dim, uint32_t pair, uint32_t d,
                          I16 (&out)[2]) const {
    LookUpPairs<kEncoding>(table, block + (size_t{pair} * head_dim + d) * 2, out[0], out[1]);
  }
};

template <>
struct PairCodes<Encoding::kBFloat16> {
  MASU_INLINE void Keys(const std::byte* block, uint32_t pair, I16 (&out)[2]) const {
    out[0] = LoadInt(block + size_t{pair} * kPairLine);
    out[1] = LoadInt(block + (size_t{pair} + 1) * kPairLine);
  }
  MASU_INLINE void Values(const std::byte* block, uint32_t head_dim, uint32_t pair, uint32_t d,
                          I16 (&out)[2]) const {
    out[0] = LoadInt(block + (size_t{pair} * head_dim + d) * 4);
    out[1] = LoadInt(block + (size_t{pair} * head_dim + d + 16) * 4);
  }
};

template <>
struct PairCodes<Encoding::kInt4> {
  // A look-up takes the low five bits of a word: one bit more than it should.
  struct Words {
    alignas(64) uint16_t number[32];  // code % 16 - kInt4Center
    alignas(64) uint8_t key[64];      // the byte of each token, in both words of its lane
    alignas(64) uint8_t value[64];    // the byte of the first token, and that of the second
  };
  static constexpr Words kWords = [] {
    Words words = {};
    for (int i = 0; i < 32; ++i) {
      const auto value = static_cast<float>(i % 16 - kInt4Center);
      words.number[i] = static_cast<uint16_t>(__builtin_bit_cast(uint32_t, value) >> 16);
    }
    for (uint32_t i = 0; i < 64; ++i) {
      words.key[i] = static_cast<uint8_t>(i / 4);
      words.value[i] = static_cast<uint8_t>(i / 4 + (i % 4 < 2 ? 0 : 16));
    }
    return words;
  }();
  const __m512i number = _mm512_load_si512(kWords.number);
  const __m512i key = _mm512_load_si512(kWords.key);
  const __m512i next_key = _mm512_add_epi8(key, _mm512_set1_epi8(16));
  const __m512i value = _mm512_load_si512(kWords.value);
  const __m512i second_nibble = _mm512_set1_epi32(4 << 16);  // shifts of words

  MASU_INLINE void Keys(const std::byte* block, uint32_t pair, I16 (&out)[2]) const {
    // Bytes of 16 tokens: the even dimension's code in the lower nibble.
    const __m512i codes = _mm512_castsi256_si512(
        _mm256_loadu_si256(reinterpret_cast<const __m256i*>(block + size_t{pair} * 16)));
    const auto look_up = [&](__m512i order) {
      const __m512i words = _mm512_permutexvar_epi8(order, codes);
      return _mm512_permutexvar_epi16(_mm512_srlv_epi16(words, second_nibble), number);
    };
    out[0] = {look_up(key)};
    out[1] = {look_up(next_key)};
  }
  MASU_INLINE void Values(const std::byte* block, uint32_t head_dim, uint32_t pair, uint32_t d,
                          I16 (&out)[2]) const {
    // Sixteen bytes of each token: the code of d + i in the lower nibble, of d + 16 + i above.
    const std::byte* first = block + size_t{pair} * head_dim + d / 2;
    const __m256i both = _mm256_inserti128_si256(
        _mm256_castsi128_si256(_mm_loadu_si128(reinterpret_cast<const __m128i*>(first))),
        _mm_loadu_si128(reinterpret_cast<const __m128i*>(first + head_dim / 2)), 1);
    const __m512i words = _mm512_permutexvar_epi8(value, _mm512_castsi256_si512(both));
    out[0] = {_mm512_permutexvar_epi16(words, number)};
    out[1] = {_mm512_permutexvar_epi16(_mm512_srli_epi16(words, 4), number)};
  }
};

}  // namespace masu::cpu::MASU_ISA
