#include "text/protobuf_reader.h"

#include <bit>

namespace masu {

float ProtobufField::AsFloat() const { return std::bit_cast<float>(static_cast<uint32_t>(value)); }

Result<uint64_t> ProtobufReader::Varint() {
  uint64_t value = 0;
  for (int shift = 0; shift < 64; shift += 7) {
    if (rest_.empty()) return DataLoss("protobuf: ends inside a number");
    const auto byte = static_cast<uint8_t>(rest_[0]);
    rest_.remove_prefix(1);
    value |= static_cast<uint64_t>(byte & 0x7F) << shift;
    if (byte < 0x80) return value;
  }
  return DataLoss("protobuf: a number has more than ten bytes");
}

Result<uint64_t> ProtobufReader::Fixed(size_t size) {
  if (rest_.size() < size) return DataLoss("protobuf: ends inside a number");
  uint64_t value = 0;
  for (size_t i = 0; i < size; ++i) {
    value |= static_cast<uint64_t>(static_cast<uint8_t>(rest_[i])) << (8 * i);
  }
  rest_.remove_prefix(size);
  return value;
}

Result<ProtobufField> ProtobufReader::Next() {
  MASU_ASSIGN_OR_RETURN(const uint64_t key, Varint());
  ProtobufField field;
  field.wire_type = static_cast<uint32_t>(key & 7);
  if (key >> 3 == 0 || key >> 3 > UINT32_MAX) return DataLoss("protobuf: a field without number");
  field.number = static_cast<uint32_t>(key >> 3);
  switch (field.wire_type) {
    case 0: {
      MASU_ASSIGN_OR_RETURN(field.value, Varint());
      return field;
    }
    case 1: {
      MASU_ASSIGN_OR_RETURN(field.value, Fixed(8));
      return field;
    }
    case 5: {
      MASU_ASSIGN_OR_RETURN(field.value, Fixed(4));
      return field;
    }
    case 2: {
      MASU_ASSIGN_OR_RETURN(const uint64_t length, Varint());
      if (length > rest_.size()) return DataLoss("protobuf: a field reaches beyond the end");
      field.bytes = rest_.substr(0, length);
      rest_.remove_prefix(length);
      return field;
    }
    default:
      return DataLoss("protobuf: wire type {} is not known", field.wire_type);
  }
}

}  // namespace masu
