#include "tests/support/gguf_writer.h"

#include <cstring>
#include <fstream>
#include <utility>

#include "checkpoint/gguf.h"
#include "checkpoint/gguf_metadata.h"

namespace masu {
namespace {

void AppendBytes(ByteVector& bytes, std::span<const std::byte> raw) {
  if (raw.empty()) return;
  const size_t end = bytes.size();
  bytes.resize(end + raw.size());
  std::memcpy(bytes.data() + end, raw.data(), raw.size());
}

template <typename T>
void Append(ByteVector& bytes, const T& value) {
  AppendBytes(bytes, std::as_bytes(std::span(&value, 1)));
}

void AppendString(ByteVector& bytes, std::string_view text) {
  Append(bytes, static_cast<uint64_t>(text.size()));
  AppendBytes(bytes, std::as_bytes(std::span(text.data(), text.size())));
}

void PadTo(ByteVector& bytes, uint32_t alignment) {
  while (bytes.size() % alignment != 0) bytes.push_back(std::byte{0});
}

uint32_t Number(GgufValueType type) { return static_cast<uint32_t>(type); }

}  // namespace

void GgufWriter::BeginPair(std::string_view key, uint32_t type) {
  ++num_pairs_;
  AppendString(pairs_, key);
  Append(pairs_, type);
}

void GgufWriter::BeginArray(std::string_view key, uint32_t type, uint64_t count) {
  BeginPair(key, Number(GgufValueType::kArray));
  Append(pairs_, type);
  Append(pairs_, count);
}

void GgufWriter::AddU32(std::string_view key, uint32_t value) {
  BeginPair(key, Number(GgufValueType::kU32));
  Append(pairs_, value);
}

void GgufWriter::AddU64(std::string_view key, uint64_t value) {
  BeginPair(key, Number(GgufValueType::kU64));
  Append(pairs_, value);
}

void GgufWriter::AddI32(std::string_view key, int32_t value) {
  BeginPair(key, Number(GgufValueType::kI32));
  Append(pairs_, value);
}

void GgufWriter::AddF32(std::string_view key, float value) {
  BeginPair(key, Number(GgufValueType::kF32));
  Append(pairs_, value);
}

void GgufWriter::AddF64(std::string_view key, double value) {
  BeginPair(key, Number(GgufValueType::kF64));
  Append(pairs_, value);
}

void GgufWriter::AddBool(std::string_view key, bool value) {
  BeginPair(key, Number(GgufValueType::kBool));
  Append(pairs_, static_cast<uint8_t>(value));
}

void GgufWriter::AddString(std::string_view key, std::string_view value) {
  BeginPair(key, Number(GgufValueType::kString));
  AppendString(pairs_, value);
}

void GgufWriter::AddStrings(std::string_view key, std::span<const std::string> values) {
  BeginArray(key, Number(GgufValueType::kString), values.size());
  for (const std::string& value : values) AppendString(pairs_, value);
}

void GgufWriter::AddI32s(std::string_view key, std::span<const int32_t> values) {
  BeginArray(key, Number(GgufValueType::kI32), values.size());
  AppendBytes(pairs_, std::as_bytes(values));
}

void GgufWriter::AddF32s(std::string_view key, std::span<const float> values) {
  BeginArray(key, Number(GgufValueType::kF32), values.size());
  AppendBytes(pairs_, std::as_bytes(values));
}

void GgufWriter::AddRaw(std::string_view key, uint32_t type, std::span<const std::byte> value) {
  BeginPair(key, type);
  AppendBytes(pairs_, value);
}

void GgufWriter::AddTensor(std::string_view name, std::vector<uint64_t> shape, GgmlFormat format,
                           std::span<const float> values) {
  ByteVector data(GgmlRowBytes(format, values.size()));
  QuantizeRow(format, values, data);
  AddRawTensor(name, std::move(shape), GgmlTypeNumber(format), data);
}

void GgufWriter::AddRawTensor(std::string_view name, std::vector<uint64_t> shape, uint32_t type,
                              std::span<const std::byte> data) {
  PadTo(data_, alignment_);
  tensors_.push_back({std::string(name), std::move(shape), type, data_.size()});
  AppendBytes(data_, data);
}

void GgufWriter::SetAlignment(uint32_t alignment) {
  alignment_ = alignment;
  if (alignment != 32) AddU32("general.alignment", alignment);
}

ByteVector GgufWriter::Bytes() const {
  ByteVector bytes;
  AppendBytes(bytes, std::as_bytes(std::span("GGUF", 4)));
  Append(bytes, uint32_t{3});
  Append(bytes, static_cast<uint64_t>(tensors_.size()));
  Append(bytes, num_pairs_);
  AppendBytes(bytes, pairs_);
  for (const Tensor& tensor : tensors_) {
    AppendString(bytes, tensor.name);
    Append(bytes, static_cast<uint32_t>(tensor.shape.size()));
    for (const uint64_t size : tensor.shape) Append(bytes, size);
    Append(bytes, tensor.type);
    Append(bytes, tensor.offset);
  }
  PadTo(bytes, alignment_);
  AppendBytes(bytes, data_);
  return bytes;
}

uint32_t GgmlTypeNumber(GgmlFormat format) {
  switch (format) {
    case GgmlFormat::kF32:
      return static_cast<uint32_t>(GgmlType::kF32);
    case GgmlFormat::kF16:
      return static_cast<uint32_t>(GgmlType::kF16);
    case GgmlFormat::kBF16:
      return static_cast<uint32_t>(GgmlType::kBF16);
    case GgmlFormat::kQ8_0:
      return static_cast<uint32_t>(GgmlType::kQ8_0);
    case GgmlFormat::kQ4_0:
      return static_cast<uint32_t>(GgmlType::kQ4_0);
    case GgmlFormat::kQ4_1:
      return static_cast<uint32_t>(GgmlType::kQ4_1);
    case GgmlFormat::kQ5_0:
      return static_cast<uint32_t>(GgmlType::kQ5_0);
    case GgmlFormat::kQ5_1:
      return static_cast<uint32_t>(GgmlType::kQ5_1);
    case GgmlFormat::kQ4_K:
      return static_cast<uint32_t>(GgmlType::kQ4_K);
    case GgmlFormat::kQ5_K:
      return static_cast<uint32_t>(GgmlType::kQ5_K);
    case GgmlFormat::kQ6_K:
      return static_cast<uint32_t>(GgmlType::kQ6_K);
  }
  return 0;
}

Result<void> WriteFile(const std::string& path, std::span<const std::byte> bytes) {
  std::ofstream file(path, std::ios::binary | std::ios::trunc);
  file.write(reinterpret_cast<const char*>(bytes.data()),
             static_cast<std::streamsize>(bytes.size()));
  file.close();
  if (!file) return InvalidArgument("{}: cannot write {} bytes", path, bytes.size());
  return {};
}

}  // namespace masu
