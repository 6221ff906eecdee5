#include "checkpoint/gguf_parser.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <optional>

#include "checkpoint/ggml_format.h"

namespace masu {
namespace {

constexpr uint32_t kVersion = 3;
constexpr uint32_t kMaxDimensions = 4;
// The format asks for a multiple of 8, which with a power of two means 8 and more. It also keeps
// every float of a mapped file aligned.
constexpr uint64_t kMinAlignment = 8;
// The fewest bytes that a key/value pair and a tensor's entry take: they bound the counts in the
// header before anything is reserved for them.
constexpr uint64_t kMinPairBytes = 8 + 1 + 4 + 1;
constexpr uint64_t kMinTensorEntryBytes = 8 + 1 + 4 + 8 + 4 + 8;

struct TypeName {
  uint32_t type;
  const char* name;
};
constexpr TypeName kTypeNames[] = {
    {0, "F32"},     {1, "F16"},    {2, "Q4_0"},     {3, "Q4_1"},    {6, "Q5_0"},     {7, "Q5_1"},
    {8, "Q8_0"},    {9, "Q8_1"},   {10, "Q2_K"},    {11, "Q3_K"},   {12, "Q4_K"},    {13, "Q5_K"},
    {14, "Q6_K"},   {15, "Q8_K"},  {16, "IQ2_XXS"}, {17, "IQ2_XS"}, {18, "IQ3_XXS"}, {19, "IQ1_S"},
    {20, "IQ4_NL"}, {21, "IQ3_S"}, {22, "IQ2_S"},   {23, "IQ4_XS"}, {24, "I8"},      {25, "I16"},
    {26, "I32"},    {27, "I64"},   {28, "F64"},     {29, "IQ1_M"},  {30, "BF16"},    {34, "TQ1_0"},
    {35, "TQ2_0"},  {39, "MXFP4"}, {40, "NVFP4"},   {41, "Q1_0"},   {42, "Q2_0"},
};

Error DescribeBadMagic(const std::string& file, std::span<const std::byte> bytes) {
  const std::string_view start(reinterpret_cast<const char*>(bytes.data()),
                               std::min<size_t>(bytes.size(), 32));
  if (start.starts_with("version https://git-lfs")) {
    return DataLoss("{}: is a Git LFS pointer, not the model itself; run 'git lfs pull'", file);
  }
  return DataLoss("{}: is not a GGUF file: it begins with {}, expected 'GGUF'", file,
                  QuoteName(start.substr(0, 4)));
}

}  // namespace

std::string GgmlTypeName(uint32_t type) {
  for (const auto& known : kTypeNames) {
    if (known.type == type) return known.name;
  }
  return fmt::format("type {}", type);
}

Result<void> GgufParser::Run() {
  MASU_TRY(ReadHeader());
  MASU_ASSIGN_OR_RETURN(metadata, GgufMetadata::Read(cursor_, num_pairs_, file_));
  MASU_TRY(ReadAlignment());
  MASU_TRY(ReadTensorEntries());
  MASU_TRY(PlaceTensors());
  return CheckOverlaps();
}

Result<void> GgufParser::ReadHeader() {
  const auto magic = cursor_.Take(4);
  if (!magic || std::memcmp(magic->data(), "GGUF", 4) != 0) return DescribeBadMagic(file_, bytes_);
  const auto version = cursor_.Read<uint32_t>();
  const auto num_tensors = cursor_.Read<uint64_t>();
  const auto num_pairs = cursor_.Read<uint64_t>();
  if (!version || !num_tensors || !num_pairs) {
    return DataLoss("{}: the file ends inside its header ({} bytes); {}", file_, bytes_.size(),
                    "it is truncated, fetch it again");
  }
  // A big-endian file has its small version number in the upper half of the word.
  if ((*version & 0xffff) == 0 && *version != 0) {
    return MakeError(ErrorCode::kUnimplemented, "{}: is a big-endian GGUF file; {}", file_,
                     "masu reads little-endian ones, convert it with gguf_convert_endian.py");
  }
  if (*version != kVersion) {
    return MakeError(ErrorCode::kUnimplemented, "{}: is GGUF version {}, masu reads version {}; {}",
                     file_, *version, kVersion, "convert the model with a current converter");
  }
  num_tensors_ = *num_tensors;
  num_pairs_ = *num_pairs;
  const uint64_t left = cursor_.remaining();
  if (num_pairs_ > left / kMinPairBytes) {
    return DataLoss("{}: the header promises {} metadata keys but the file has {} bytes left; {}",
                    file_, num_pairs_, left, "it is truncated or damaged, fetch it again");
  }
  if (num_tensors_ > left / kMinTensorEntryBytes) {
    return DataLoss("{}: the header promises {} tensors but the file has {} bytes left; {}", file_,
                    num_tensors_, left, "it is truncated or damaged, fetch it again");
  }
  return {};
}

Result<void> GgufParser::ReadAlignment() {
  MASU_ASSIGN_OR_RETURN(const auto alignment, metadata.GetUnsigned("general.alignment"));
  if (!alignment) return {};
  constexpr uint64_t kMaxAlignment = uint64_t{1} << 31;  // the format's type is u32
  if (!std::has_single_bit(*alignment) || *alignment < kMinAlignment ||
      *alignment > kMaxAlignment) {
    return DataLoss("{}: key 'general.alignment' is {}, expected a power of two from {} to {}",
                    file_, *alignment, kMinAlignment, kMaxAlignment);
  }
  alignment_ = *alignment;
  return {};
}

Result<void> GgufParser::ReadTensorEntries() {
  tensors.reserve(num_tensors_);
  extents_.reserve(num_tensors_);
  tensor_index.reserve(num_tensors_);
  for (uint64_t i = 0; i < num_tensors_; ++i) MASU_TRY(ReadTensorEntry(i));
  return {};
}

Result<void> GgufParser::ReadTensorEntry(uint64_t index) {
  const uint64_t start = cursor_.position();
  const auto name = cursor_.ReadString();
  if (!name || name->empty()) {
    return DataLoss("{}: the name of tensor {} of {} at byte {} is {}; {}", file_, index + 1,
                    num_tensors_, start, name ? "empty" : "longer than the file",
                    "the file is truncated or damaged, fetch it again");
  }
  if (!tensor_index.emplace(*name, index).second) {
    return DataLoss("{}: tensor {} occurs twice; the file is damaged, fetch or convert it again",
                    file_, QuoteName(*name));
  }
  GgufTensor tensor;
  tensor.name = std::string(*name);
  MASU_ASSIGN_OR_RETURN(tensor.shape, ReadShape(tensor.name));
  const auto type = cursor_.Read<uint32_t>();
  const auto offset = cursor_.Read<uint64_t>();
  if (!type || !offset) {
    return DataLoss("{}: tensor {}: the file ends inside its entry at byte {}; {}", file_,
                    QuoteName(*name), bytes_.size(), "it is truncated, fetch it again");
  }
  MASU_ASSIGN_OR_RETURN(const uint64_t needed, BytesOf(tensor, *type));
  tensor.type = static_cast<GgmlType>(*type);
  if (*offset % alignment_ != 0) {
    return DataLoss("{}: tensor {}: its offset {} is not a multiple of the alignment {}; {}", file_,
                    QuoteName(*name), *offset, alignment_, "the file is damaged, fetch it again");
  }
  tensors.push_back(std::move(tensor));
  extents_.push_back({*offset, needed});
  return {};
}

Result<std::vector<uint64_t>> GgufParser::ReadShape(const std::string& name) {
  const auto num_dimensions = cursor_.Read<uint32_t>();
  if (num_dimensions && (*num_dimensions < 1 || *num_dimensions > kMaxDimensions)) {
    return DataLoss("{}: tensor {} has {} dimensions, allowed are 1 to {}", file_, QuoteName(name),
                    *num_dimensions, kMaxDimensions);
  }
  std::vector<uint64_t> shape;
  for (uint32_t i = 0; num_dimensions && i < *num_dimensions; ++i) {
    const auto size = cursor_.Read<uint64_t>();
    if (!size) break;
    if (*size == 0) {
      return DataLoss("{}: tensor {}: dimension {} is zero", file_, QuoteName(name), i);
    }
    shape.push_back(*size);
  }
  if (!num_dimensions || shape.size() != *num_dimensions) {
    return DataLoss("{}: tensor {}: the file ends inside its shape at byte {}; {}", file_,
                    QuoteName(name), bytes_.size(), "it is truncated, fetch it again");
  }
  return shape;
}

Result<uint64_t> GgufParser::BytesOf(const GgufTensor& tensor, uint32_t type) const {
  const std::string name = QuoteName(tensor.name);
  const auto format = FindGgmlFormat(type);
  if (!format) {
    return MakeError(
        ErrorCode::kUnimplemented, "{}: tensor {} is stored as {}, {}", file_, name,
        GgmlTypeName(type),
        "masu reads F32, F16, BF16, Q8_0, Q4_0, Q4_1, Q5_0, Q5_1, Q4_K, Q5_K and Q6_K; "
        "take a file in one of those");
  }
  const GgmlBlockShape block = BlockShapeOf(*format);
  if (tensor.shape[0] % block.elements != 0) {
    return DataLoss("{}: tensor {}: its rows of {} values are no multiple of {}'s block of {}",
                    file_, name, tensor.shape[0], GgmlTypeName(type), block.elements);
  }
  uint64_t elements = 1;
  uint64_t bytes = 0;
  bool overflow = false;
  for (const uint64_t size : tensor.shape) {
    overflow |= __builtin_mul_overflow(elements, size, &elements);
  }
  // 2^63 and more elements would also break every signed index computed from the shape later.
  overflow |= elements > uint64_t{1} << 62;
  overflow |= __builtin_mul_overflow(elements / block.elements, uint64_t{block.bytes}, &bytes);
  if (overflow) {
    return DataLoss("{}: tensor {}: the size of its shape [{}] overflows 64 bits; {}", file_, name,
                    fmt::join(tensor.shape, ", "), "the file is damaged, fetch it again");
  }
  return bytes;
}

Result<void> GgufParser::PlaceTensors() {
  // Neither sum overflows: positions are at most the size of a file, alignments at most 2^31.
  const uint64_t data_start = (cursor_.position() + alignment_ - 1) / alignment_ * alignment_;
  for (size_t i = 0; i < tensors.size(); ++i) {
    const auto [offset, needed] = extents_[i];
    uint64_t first = 0;
    uint64_t end = 0;
    if (__builtin_add_overflow(data_start, offset, &first) ||
        __builtin_add_overflow(first, needed, &end)) {
      return DataLoss("{}: tensor {}: its offset {} and size {} overflow 64 bits; {}", file_,
                      QuoteName(tensors[i].name), offset, needed,
                      "the file is damaged, fetch it again");
    }
    if (end > bytes_.size()) {
      return DataLoss("{}: tensor {}: needs bytes {}..{} but the file has {}; {}", file_,
                      QuoteName(tensors[i].name), first, end, bytes_.size(),
                      "the file is truncated, fetch it again");
    }
    tensors[i].data = bytes_.subspan(first, needed);
  }
  return {};
}

Result<void> GgufParser::CheckOverlaps() const {
  std::vector<size_t> order(tensors.size());
  for (size_t i = 0; i < order.size(); ++i) order[i] = i;
  std::sort(order.begin(), order.end(),
            [&](size_t a, size_t b) { return extents_[a].offset < extents_[b].offset; });
  for (size_t i = 1; i < order.size(); ++i) {
    const auto [before, here] = std::pair(order[i - 1], order[i]);
    const uint64_t end = extents_[before].offset + extents_[before].bytes;  // checked by now
    if (end > extents_[here].offset) {
      return DataLoss("{}: tensor {} at offset {} overlaps tensor {}, which ends at {}; {}", file_,
                      QuoteName(tensors[here].name), extents_[here].offset,
                      QuoteName(tensors[before].name), end, "the file is damaged, fetch it again");
    }
  }
  return {};
}

}  // namespace masu
