// Reader of GGUF v3 files, whole or split into parts: memory-mapped, every count, offset and size
// checked against the file before use. Immutable after Open, so safe to share between threads.
// Views stay valid as long as the GgufFile lives.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace masu {

// Numbers as in the file format. Only these are readable; others are refused by name.
enum class GgmlType : uint32_t {
  kF32 = 0,
  kF16 = 1,
  kQ4_0 = 2,
  kQ4_1 = 3,
  kQ5_0 = 6,
  kQ5_1 = 7,
  kQ8_0 = 8,
  kQ4_K = 12,
  kQ5_K = 13,
  kQ6_K = 14,
  kBF16 = 30,
};

// Name as in the file format ("Q4_1"); a number for unknown types ("type 77").
std::string GgmlTypeName(uint32_t type);

struct GgufTensor {
  std::string name;
  GgmlType type = GgmlType::kF32;
  std::vector<uint64_t> shape;      // fastest dimension first: a weight is {inputs, outputs}
  std::span<const std::byte> data;  // exactly as many bytes as type and shape need
  uint64_t elements() const;
};

class GgufFile {
 public:
  virtual ~GgufFile() = default;

  // Errors name the file, the tensor or key at fault, and the numbers that do not fit. Of a split
  // model (split.count above 1) `path` is the first part; the others lie beside it, and the result
  // has the keys of the first and the tensors of all.
  static Result<std::unique_ptr<GgufFile>> Open(const std::string& path);
  // The same from memory (`bytes` must outlive the result); `name` stands for the path in errors.
  static Result<std::unique_ptr<GgufFile>> Parse(std::span<const std::byte> bytes,
                                                 std::string name);

  virtual const std::string& path() const = 0;
  virtual uint64_t num_parts() const { return 1; }
  virtual std::span<const GgufTensor> tensors() const = 0;
  virtual const GgufTensor* FindTensor(std::string_view name) const = 0;  // nullptr if absent
  virtual std::vector<std::string> keys() const = 0;

  // Metadata. Absent key: nullopt. Present with a type that does not convert: an error naming key
  // and type. Any integer width (and bool) reads as integer if the value fits; any float as float;
  // integers also as float.
  virtual bool Has(std::string_view key) const = 0;
  virtual Result<std::optional<uint64_t>> GetUnsigned(std::string_view key) const = 0;
  virtual Result<std::optional<double>> GetFloat(std::string_view key) const = 0;
  virtual Result<std::optional<bool>> GetBool(std::string_view key) const = 0;
  virtual Result<std::optional<std::string>> GetString(std::string_view key) const = 0;
  virtual Result<std::optional<std::vector<std::string>>> GetStrings(
      std::string_view key) const = 0;
  virtual Result<std::optional<std::vector<int64_t>>> GetIntegers(std::string_view key) const = 0;
  virtual Result<std::optional<std::vector<float>>> GetFloats(std::string_view key) const = 0;

  // Tells the kernel that the mapped bytes of this tensor are not needed soon (they were repacked).
  virtual void Release(const GgufTensor& tensor) const = 0;
};

}  // namespace masu
