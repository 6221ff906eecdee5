// A bounds-checked reader of protobuf's wire format: fields one after the other, unknown ones
// skipped by the caller. Views into the bytes, which must outlive it.
#pragma once

#include <cstdint>
#include <string_view>

#include "base/result.h"

namespace masu {

struct ProtobufField {
  uint32_t number = 0;
  uint32_t wire_type = 0;  // 0 varint, 1 eight bytes, 2 length-delimited, 5 four bytes
  uint64_t value = 0;      // of all but length-delimited fields
  std::string_view bytes;  // of length-delimited ones
  float AsFloat() const;
};

class ProtobufReader {
 public:
  explicit ProtobufReader(std::string_view bytes) : rest_(bytes) {}
  bool AtEnd() const { return rest_.empty(); }
  Result<ProtobufField> Next();

 private:
  Result<uint64_t> Varint();
  Result<uint64_t> Fixed(size_t size);
  std::string_view rest_;
};

}  // namespace masu
