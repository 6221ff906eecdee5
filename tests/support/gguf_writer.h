// Writes small GGUF v3 files for tests, in memory. Everything is kept in the order of the calls, so
// the same calls give the same bytes. It checks nothing: tests also want bad files.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "quant/ggml_blocks.h"

namespace masu {

using ByteVector = std::vector<std::byte>;

class GgufWriter {
 public:
  void AddU32(std::string_view key, uint32_t value);
  void AddU64(std::string_view key, uint64_t value);
  void AddI32(std::string_view key, int32_t value);
  void AddF32(std::string_view key, float value);
  void AddF64(std::string_view key, double value);
  void AddBool(std::string_view key, bool value);
  void AddString(std::string_view key, std::string_view value);
  void AddStrings(std::string_view key, std::span<const std::string> values);
  void AddI32s(std::string_view key, std::span<const int32_t> values);
  void AddF32s(std::string_view key, std::span<const float> values);
  // Any value: `value` is what follows the type in the file.
  void AddRaw(std::string_view key, uint32_t type, std::span<const std::byte> value);

  // `shape` has the fastest dimension first; the offset follows from the tensors before.
  void AddTensor(std::string_view name, std::vector<uint64_t> shape, GgmlFormat format,
                 std::span<const float> values);
  void AddRawTensor(std::string_view name, std::vector<uint64_t> shape, uint32_t type,
                    std::span<const std::byte> data);

  // Of the data section; also written as general.alignment if it is not the default of 32.
  void SetAlignment(uint32_t alignment);

  ByteVector Bytes() const;

 private:
  struct Tensor {
    std::string name;
    std::vector<uint64_t> shape;
    uint32_t type;
    uint64_t offset;
  };

  void BeginPair(std::string_view key, uint32_t type);
  void BeginArray(std::string_view key, uint32_t type, uint64_t count);

  uint32_t alignment_ = 32;
  uint64_t num_pairs_ = 0;
  ByteVector pairs_;
  std::vector<Tensor> tensors_;
  ByteVector data_;
};

// The format's number of a type that quant/ knows.
uint32_t GgmlTypeNumber(GgmlFormat format);

Result<void> WriteFile(const std::string& path, std::span<const std::byte> bytes);

}  // namespace masu
