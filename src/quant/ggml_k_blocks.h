// Blocks of GGML's "K" formats: 256 values in sub-blocks with small integer scales of their own.
// The layouts are described in ggml_blocks.h; callers use the functions there. Stateless.
#pragma once

#include <cstddef>

namespace masu {

inline constexpr size_t kGgmlSuperBlock = 256;

// `block` holds one whole block of the format, `out` and `values` 256 floats.
void DequantizeQ4K(const std::byte* block, float* out);
void DequantizeQ5K(const std::byte* block, float* out);
void DequantizeQ6K(const std::byte* block, float* out);

// Plain range encoders for tests and tools, without the searches of production encoders: an error
// is at most about half a step of the sub-block. `block` is zeroed by the caller.
void QuantizeQ4K(const float* values, std::byte* block);
void QuantizeQ5K(const float* values, std::byte* block);
void QuantizeQ6K(const float* values, std::byte* block);

}  // namespace masu
