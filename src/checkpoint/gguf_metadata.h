// The key/value section of a GGUF file. Values stay where they are in the file: reading the section
// walks and checks every value once, and a getter converts on demand, so that a vocabulary of
// 150,000 strings costs nothing until it is asked for. Immutable after Read.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/result.h"
#include "checkpoint/byte_cursor.h"

namespace masu {

// Numbers as in the file format.
enum class GgufValueType : uint32_t {
  kU8 = 0,
  kI8 = 1,
  kU16 = 2,
  kI16 = 3,
  kU32 = 4,
  kI32 = 5,
  kF32 = 6,
  kBool = 7,
  kString = 8,
  kArray = 9,
  kU64 = 10,
  kI64 = 11,
  kF64 = 12,
};

// A name out of a file, quoted for a one-line message: bytes outside printable ASCII as \xNN, long
// names cut.
std::string QuoteName(std::string_view name);

class GgufMetadata {
 public:
  // Reads `count` pairs off the cursor. `file` is the name for errors.
  static Result<GgufMetadata> Read(ByteCursor& cursor, uint64_t count, std::string file);

  std::vector<std::string> keys() const;
  bool Has(std::string_view key) const { return Find(key) != nullptr; }
  // As documented at GgufFile.
  Result<std::optional<uint64_t>> GetUnsigned(std::string_view key) const;
  Result<std::optional<double>> GetFloat(std::string_view key) const;
  Result<std::optional<bool>> GetBool(std::string_view key) const;
  Result<std::optional<std::string>> GetString(std::string_view key) const;
  Result<std::optional<std::vector<std::string>>> GetStrings(std::string_view key) const;
  Result<std::optional<std::vector<int64_t>>> GetIntegers(std::string_view key) const;
  Result<std::optional<std::vector<float>>> GetFloats(std::string_view key) const;

 private:
  struct Value {
    GgufValueType type = GgufValueType::kU8;  // of the elements, for an array
    bool is_array = false;
    uint64_t count = 1;
    std::span<const std::byte> bytes;  // one value, or all elements of the array
  };

  const Value* Find(std::string_view key) const;
  // `key` is printed as it comes, so callers pass a quoted name.
  Result<Value> ReadValue(ByteCursor& cursor, const std::string& key) const;
  Result<Value> ReadArray(ByteCursor& cursor, const std::string& key) const;
  Error WrongType(std::string_view key, const Value& value, std::string_view wanted) const;
  static std::string TypeName(const Value& value);

  std::string file_;
  std::vector<std::string_view> keys_;  // in file order; views into the file
  std::unordered_map<std::string_view, Value> values_;
};

}  // namespace masu
