#include "checkpoint/gguf_metadata.h"

#include <fmt/format.h>

#include <limits>
#include <utility>

namespace masu {
namespace {

// The format allows keys of up to 65,535 bytes; anything longer is a damaged length field.
constexpr uint64_t kMaxKeyBytes = 65535;

constexpr const char* kTypeNames[] = {"u8",   "i8",     "u16",   "i16", "u32", "i32", "f32",
                                      "bool", "string", "array", "u64", "i64", "f64"};

bool IsKnown(uint32_t type) { return type < std::size(kTypeNames); }

// Bytes of one value; 0 for strings and arrays, whose size is in the file.
uint64_t FixedSize(GgufValueType type) {
  switch (type) {
    case GgufValueType::kU8:
    case GgufValueType::kI8:
    case GgufValueType::kBool:
      return 1;
    case GgufValueType::kU16:
    case GgufValueType::kI16:
      return 2;
    case GgufValueType::kU32:
    case GgufValueType::kI32:
    case GgufValueType::kF32:
      return 4;
    case GgufValueType::kU64:
    case GgufValueType::kI64:
    case GgufValueType::kF64:
      return 8;
    case GgufValueType::kString:
    case GgufValueType::kArray:
      return 0;
  }
  return 0;
}

template <typename T>
T Load(std::span<const std::byte> bytes, uint64_t index) {
  T value;
  std::memcpy(&value, bytes.data() + index * sizeof(T), sizeof(T));
  return value;
}

// Element `index` as a signed integer; nullopt if the type is none or the value does not fit.
std::optional<int64_t> LoadInteger(GgufValueType type, std::span<const std::byte> bytes,
                                   uint64_t index) {
  switch (type) {
    case GgufValueType::kU8:
    case GgufValueType::kBool:
      return Load<uint8_t>(bytes, index);
    case GgufValueType::kI8:
      return Load<int8_t>(bytes, index);
    case GgufValueType::kU16:
      return Load<uint16_t>(bytes, index);
    case GgufValueType::kI16:
      return Load<int16_t>(bytes, index);
    case GgufValueType::kU32:
      return Load<uint32_t>(bytes, index);
    case GgufValueType::kI32:
      return Load<int32_t>(bytes, index);
    case GgufValueType::kI64:
      return Load<int64_t>(bytes, index);
    case GgufValueType::kU64: {
      const auto value = Load<uint64_t>(bytes, index);
      if (value > static_cast<uint64_t>(std::numeric_limits<int64_t>::max())) return std::nullopt;
      return static_cast<int64_t>(value);
    }
    default:
      return std::nullopt;
  }
}

std::optional<double> LoadFloat(GgufValueType type, std::span<const std::byte> bytes,
                                uint64_t index) {
  switch (type) {
    case GgufValueType::kF32:
      return Load<float>(bytes, index);
    case GgufValueType::kF64:
      return Load<double>(bytes, index);
    case GgufValueType::kU64:
      return static_cast<double>(Load<uint64_t>(bytes, index));
    case GgufValueType::kBool:
      return std::nullopt;
    default: {
      const auto integer = LoadInteger(type, bytes, index);
      if (!integer) return std::nullopt;
      return static_cast<double>(*integer);
    }
  }
}

Error EndsInside(const std::string& file, std::string_view what, uint64_t size) {
  return DataLoss("{}: {}: its value runs past the {} bytes of the file; {}", file, what, size,
                  "the file is truncated or damaged, fetch it again");
}

}  // namespace

std::string QuoteName(std::string_view name) {
  constexpr size_t kMaxShown = 80;
  std::string quoted = "'";
  for (const char c : name.substr(0, kMaxShown)) {
    if (c >= 0x20 && c < 0x7f) {
      quoted += c;
    } else {
      quoted += fmt::format("\\x{:02x}", static_cast<unsigned char>(c));
    }
  }
  return quoted + (name.size() > kMaxShown ? "...'" : "'");
}

Result<GgufMetadata> GgufMetadata::Read(ByteCursor& cursor, uint64_t count, std::string file) {
  GgufMetadata metadata;
  metadata.file_ = std::move(file);
  // The caller has bounded `count` by the size of the file.
  metadata.keys_.reserve(count);
  metadata.values_.reserve(count);
  for (uint64_t i = 0; i < count; ++i) {
    const uint64_t start = cursor.position();
    const auto key = cursor.ReadString();
    if (!key) {
      return DataLoss(
          "{}: metadata key {} of {} at byte {} runs past the end of the file; the file is "
          "truncated or damaged, fetch it again",
          metadata.file_, i + 1, count, start);
    }
    if (key->empty() || key->size() > kMaxKeyBytes) {
      return DataLoss("{}: metadata key {} of {} at byte {} is {} bytes long, allowed are 1 to {}",
                      metadata.file_, i + 1, count, start, key->size(), kMaxKeyBytes);
    }
    MASU_ASSIGN_OR_RETURN(Value value, metadata.ReadValue(cursor, QuoteName(*key)));
    if (!metadata.values_.emplace(*key, value).second) {
      return DataLoss("{}: key {} occurs twice; the file is damaged, fetch or convert it again",
                      metadata.file_, QuoteName(*key));
    }
    metadata.keys_.push_back(*key);
  }
  return metadata;
}

Result<GgufMetadata::Value> GgufMetadata::ReadValue(ByteCursor& cursor,
                                                    const std::string& key) const {
  const uint64_t size = cursor.position() + cursor.remaining();
  const auto type = cursor.Read<uint32_t>();
  if (!type) return EndsInside(file_, "key " + key, size);
  if (!IsKnown(*type)) {
    return DataLoss("{}: key {} has the unknown value type {} (known are 0 to {})", file_, key,
                    *type, std::size(kTypeNames) - 1);
  }
  Value value;
  value.type = static_cast<GgufValueType>(*type);
  if (value.type == GgufValueType::kArray) return ReadArray(cursor, key);
  if (value.type == GgufValueType::kString) {
    const auto text = cursor.ReadString();
    if (!text) return EndsInside(file_, "key " + key, size);
    value.bytes = std::as_bytes(std::span(text->data(), text->size()));
    return value;
  }
  const auto bytes = cursor.Take(FixedSize(value.type));
  if (!bytes) return EndsInside(file_, "key " + key, size);
  value.bytes = *bytes;
  if (value.type == GgufValueType::kBool && Load<uint8_t>(*bytes, 0) > 1) {
    return DataLoss("{}: key {} is a bool with the value {}, allowed are 0 and 1", file_, key,
                    Load<uint8_t>(*bytes, 0));
  }
  return value;
}

Result<GgufMetadata::Value> GgufMetadata::ReadArray(ByteCursor& cursor,
                                                    const std::string& key) const {
  const uint64_t size = cursor.position() + cursor.remaining();
  const auto type = cursor.Read<uint32_t>();
  const auto count = cursor.Read<uint64_t>();
  if (!type || !count) return EndsInside(file_, "key " + key, size);
  if (!IsKnown(*type)) {
    return DataLoss("{}: key {} is an array of the unknown value type {} (known are 0 to {})",
                    file_, key, *type, std::size(kTypeNames) - 1);
  }
  Value value;
  value.type = static_cast<GgufValueType>(*type);
  value.is_array = true;
  value.count = *count;
  if (value.type == GgufValueType::kArray) {
    return MakeError(ErrorCode::kUnimplemented, "{}: key {} is an array of arrays, {}", file_, key,
                     "which masu does not read; convert the model without it");
  }
  const uint64_t fixed = FixedSize(value.type);
  // A string takes at least the 8 bytes of its length.
  const uint64_t smallest = fixed != 0 ? fixed : sizeof(uint64_t);
  if (*count > cursor.remaining() / smallest) {
    return DataLoss("{}: key {} is an array of {} {} values but the file has {} bytes left; {}",
                    file_, key, *count, kTypeNames[*type], cursor.remaining(),
                    "the file is truncated or damaged, fetch it again");
  }
  if (fixed != 0) {
    value.bytes = *cursor.Take(*count * fixed);
    return value;
  }
  ByteCursor strings = cursor;
  for (uint64_t i = 0; i < *count; ++i) {
    if (!strings.ReadString()) {
      return EndsInside(file_, fmt::format("key {}: string {} of {}", key, i, *count), size);
    }
  }
  value.bytes = *cursor.Take(strings.position() - cursor.position());
  return value;
}

std::vector<std::string> GgufMetadata::keys() const { return {keys_.begin(), keys_.end()}; }

const GgufMetadata::Value* GgufMetadata::Find(std::string_view key) const {
  const auto found = values_.find(key);
  return found == values_.end() ? nullptr : &found->second;
}

std::string GgufMetadata::TypeName(const Value& value) {
  const std::string element = kTypeNames[static_cast<uint32_t>(value.type)];
  return value.is_array ? "an array of " + element : element;
}

Error GgufMetadata::WrongType(std::string_view key, const Value& value,
                              std::string_view wanted) const {
  return DataLoss("{}: key {} holds {}, expected {}", file_, QuoteName(key), TypeName(value),
                  wanted);
}

Result<std::optional<uint64_t>> GgufMetadata::GetUnsigned(std::string_view key) const {
  const Value* value = Find(key);
  if (value == nullptr) return std::optional<uint64_t>();
  if (!value->is_array && value->type == GgufValueType::kU64) {
    return std::optional<uint64_t>(Load<uint64_t>(value->bytes, 0));
  }
  const auto integer = value->is_array ? std::nullopt : LoadInteger(value->type, value->bytes, 0);
  if (!integer) return WrongType(key, *value, "an unsigned integer");
  if (*integer < 0) {
    return DataLoss("{}: key {} is {}, expected an unsigned integer", file_, QuoteName(key),
                    *integer);
  }
  return std::optional<uint64_t>(static_cast<uint64_t>(*integer));
}

Result<std::optional<double>> GgufMetadata::GetFloat(std::string_view key) const {
  const Value* value = Find(key);
  if (value == nullptr) return std::optional<double>();
  const auto number = value->is_array ? std::nullopt : LoadFloat(value->type, value->bytes, 0);
  if (!number) return WrongType(key, *value, "a number");
  return number;
}

Result<std::optional<bool>> GgufMetadata::GetBool(std::string_view key) const {
  const Value* value = Find(key);
  if (value == nullptr) return std::optional<bool>();
  if (value->is_array || value->type != GgufValueType::kBool) {
    return WrongType(key, *value, "a bool");
  }
  return std::optional<bool>(Load<uint8_t>(value->bytes, 0) != 0);
}

Result<std::optional<std::string>> GgufMetadata::GetString(std::string_view key) const {
  const Value* value = Find(key);
  if (value == nullptr) return std::optional<std::string>();
  if (value->is_array || value->type != GgufValueType::kString) {
    return WrongType(key, *value, "a string");
  }
  return std::optional<std::string>(
      std::in_place, reinterpret_cast<const char*>(value->bytes.data()), value->bytes.size());
}

Result<std::optional<std::vector<std::string>>> GgufMetadata::GetStrings(
    std::string_view key) const {
  const Value* value = Find(key);
  if (value == nullptr) return std::optional<std::vector<std::string>>();
  if (!value->is_array || value->type != GgufValueType::kString) {
    return WrongType(key, *value, "an array of strings");
  }
  std::vector<std::string> strings;
  strings.reserve(value->count);
  ByteCursor cursor(value->bytes);
  for (uint64_t i = 0; i < value->count; ++i) strings.emplace_back(*cursor.ReadString());
  return std::optional(std::move(strings));
}

Result<std::optional<std::vector<int64_t>>> GgufMetadata::GetIntegers(std::string_view key) const {
  const Value* value = Find(key);
  if (value == nullptr) return std::optional<std::vector<int64_t>>();
  if (!value->is_array) return WrongType(key, *value, "an array of integers");
  std::vector<int64_t> integers;
  integers.reserve(value->type == GgufValueType::kString ? 0 : value->count);
  for (uint64_t i = 0; i < value->count; ++i) {
    const auto integer = LoadInteger(value->type, value->bytes, i);
    if (!integer) return WrongType(key, *value, "an array of 64-bit signed integers");
    integers.push_back(*integer);
  }
  return std::optional(std::move(integers));
}

Result<std::optional<std::vector<float>>> GgufMetadata::GetFloats(std::string_view key) const {
  const Value* value = Find(key);
  if (value == nullptr) return std::optional<std::vector<float>>();
  if (!value->is_array) return WrongType(key, *value, "an array of numbers");
  std::vector<float> floats;
  floats.reserve(value->type == GgufValueType::kString ? 0 : value->count);
  for (uint64_t i = 0; i < value->count; ++i) {
    const auto number = LoadFloat(value->type, value->bytes, i);
    if (!number) return WrongType(key, *value, "an array of numbers");
    floats.push_back(static_cast<float>(*number));
  }
  return std::optional(std::move(floats));
}

}  // namespace masu
