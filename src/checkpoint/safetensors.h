// Reader of one safetensors file: memory-mapped, every length, offset and size checked before use.
// Immutable after Open, so safe to share between threads. Views stay valid as long as the file
// lives.
//
// The format: u64 length of the header, the header as JSON
//   {"NAME": {"dtype": "BF16", "shape": [2, 3], "data_offsets": [0, 12]}, ..., "__metadata__":
//   {..}}
// then the data, in which tensors lie without gap or overlap. Data need not be aligned to anything.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "checkpoint/file_mapping.h"
#include "quant/ggml_blocks.h"

namespace masu {

struct SafetensorsTensor {
  std::string name;
  GgmlFormat format = GgmlFormat::kF32;  // F32, F16 or BF16; kF32 if `opaque`
  std::vector<uint64_t> shape;           // fastest dimension last, as in the file; empty: a scalar
  std::span<const std::byte> data;       // exactly as many bytes as type and shape need
  // Of a type that is not read, so no more than bytes. Only zero points of quantized caches
  // ("*_zero_point"), of which nothing but being zero matters, are let in so.
  bool opaque = false;
};

class SafetensorsFile {
 public:
  // Errors name the file, the tensor at fault, and the numbers that do not fit.
  static Result<SafetensorsFile> Open(const std::string& path);
  // The same from memory (`bytes` must outlive the result); `name` stands for the path in errors.
  static Result<SafetensorsFile> Parse(std::span<const std::byte> bytes, const std::string& name);

  const std::string& path() const { return path_; }
  const std::vector<SafetensorsTensor>& tensors() const {
    return tensors_;
  }  // by place in the file
  bool Holds(std::span<const std::byte> data) const;
  // Tells the kernel that these mapped bytes are not needed soon.
  void Release(std::span<const std::byte> data) const { mapping_.Drop(data); }

 private:
  FileMapping mapping_;  // empty if the bytes belong to the caller of Parse
  std::string path_;
  std::vector<SafetensorsTensor> tensors_;
};

}  // namespace masu
