#include "checkpoint/safetensors.h"

#include <algorithm>
#include <cstring>
#include <functional>
#include <optional>
#include <string_view>
#include <utility>

#include "checkpoint/gguf_metadata.h"
#include "checkpoint/safetensors_header.h"

namespace masu {
namespace {

constexpr uint64_t kLengthBytes = 8;
// The limit that the format itself sets.
constexpr uint64_t kMaxHeaderBytes = 100'000'000;

std::string_view AsText(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

Result<std::string_view> FindHeader(std::span<const std::byte> bytes, const std::string& file) {
  if (AsText(bytes).starts_with("version https://git-lfs")) {
    return DataLoss("{}: is a Git LFS pointer, not the model itself; run 'git lfs pull'", file);
  }
  uint64_t length = 0;
  if (bytes.size() < kLengthBytes) {
    return DataLoss("{}: has {} bytes, too few for a safetensors file; fetch it again", file,
                    bytes.size());
  }
  std::memcpy(&length, bytes.data(), sizeof(length));
  if (length > kMaxHeaderBytes) {
    return DataLoss("{}: is not a safetensors file: its header would be {} bytes, allowed are {}",
                    file, length, kMaxHeaderBytes);
  }
  if (length > bytes.size() - kLengthBytes) {
    return DataLoss("{}: its header of {} bytes runs past the end of the file at {}; {}", file,
                    length, bytes.size(), "the file is truncated, fetch it again");
  }
  const std::string_view header = AsText(bytes.subspan(kLengthBytes, length));
  if (!header.starts_with('{')) {
    return DataLoss("{}: is not a safetensors file: its header begins with {}, expected '{{'", file,
                    QuoteName(header.substr(0, 1)));
  }
  // The JSON parser takes a zero byte for the end of the text and would not see what follows.
  const size_t zero = header.find('\0');
  if (zero == std::string_view::npos) return header;
  return DataLoss("{}: its header has a zero byte at {}; the file is damaged, fetch it again", file,
                  zero);
}

struct StoredType {
  std::string_view name;
  uint64_t bytes;  // of an element
  std::optional<GgmlFormat> format;
};
constexpr StoredType kTypes[] = {{"F32", 4, GgmlFormat::kF32},   {"F16", 2, GgmlFormat::kF16},
                                 {"BF16", 2, GgmlFormat::kBF16}, {"I8", 1, std::nullopt},
                                 {"U8", 1, std::nullopt},        {"F8_E4M3", 1, std::nullopt},
                                 {"F8_E5M2", 1, std::nullopt},   {"I32", 4, std::nullopt}};

// The type if this tensor may be stored in it, nullptr if not.
const StoredType* FindType(const SafetensorsEntry& entry) {
  const auto* type = std::ranges::find(kTypes, *entry.dtype, &StoredType::name);
  if (type == std::end(kTypes)) return nullptr;
  return type->format || entry.name.ends_with("_zero_point") ? type : nullptr;
}

// Bytes of a tensor of this shape; nullopt if that overflows 62 bits, beyond which every signed
// index computed from the shape later would break too.
std::optional<uint64_t> BytesOf(const std::vector<uint64_t>& shape, uint64_t element_bytes) {
  uint64_t bytes = element_bytes;
  bool overflow = false;
  for (const uint64_t size : shape) overflow |= __builtin_mul_overflow(bytes, size, &bytes);
  // A zero somewhere hides an overflow of the other sizes, which are as wrong.
  for (const uint64_t size : shape) overflow |= size > uint64_t{1} << 62;
  if (overflow || bytes > uint64_t{1} << 62) return std::nullopt;
  return bytes;
}

class Placer {
 public:
  Placer(std::span<const std::byte> data, const std::string& file) : data_(data), file_(file) {}

  Result<SafetensorsTensor> Place(SafetensorsEntry entry) const {
    const StoredType* type = FindType(entry);
    const std::string name = QuoteName(entry.name);
    if (type == nullptr) {
      return MakeError(ErrorCode::kUnimplemented,
                       "{}: tensor {} is stored as {}, masu reads BF16, F16 and F32 from "
                       "safetensors; take a checkpoint in one of those",
                       file_, name, QuoteName(*entry.dtype));
    }
    const auto needed = BytesOf(*entry.shape, type->bytes);
    if (!needed) {
      return DataLoss("{}: tensor {}: the size of its shape [{}] overflows 64 bits; {}", file_,
                      name, fmt::join(*entry.shape, ", "), "the file is damaged, fetch it again");
    }
    const auto [first, end] = std::pair((*entry.offsets)[0], (*entry.offsets)[1]);
    if (first > end || end - first != *needed) {
      return DataLoss(
          "{}: tensor {}: data_offsets {}..{} do not hold the {} bytes that {} [{}] "
          "needs; the file is damaged, fetch it again",
          file_, name, first, end, *needed, *entry.dtype, fmt::join(*entry.shape, ", "));
    }
    if (end > data_.size()) {
      return DataLoss("{}: tensor {}: needs bytes {}..{} of the data but the file has {}; {}",
                      file_, name, first, end, data_.size(),
                      "the file is truncated, fetch it again");
    }
    return SafetensorsTensor{.name = std::move(entry.name),
                             .format = type->format.value_or(GgmlFormat::kF32),
                             .shape = std::move(*entry.shape),
                             .data = data_.subspan(first, *needed),
                             .opaque = !type->format};
  }

  // Sorts by place; tensors must cover the data exactly and have names of their own.
  Result<void> CheckCover(std::vector<SafetensorsTensor>& tensors) const {
    std::ranges::sort(tensors, {}, [](const SafetensorsTensor& tensor) {
      return std::pair(tensor.data.data(), tensor.data.size());
    });
    uint64_t covered = 0;
    std::string before = "the start";
    for (const SafetensorsTensor& tensor : tensors) {
      const auto first = static_cast<uint64_t>(tensor.data.data() - data_.data());
      if (first != covered) {
        return DataLoss(
            "{}: tensor {} begins at byte {} of the data, but {} ends at {}: {}; the "
            "file is damaged, fetch it again",
            file_, QuoteName(tensor.name), first, before, covered,
            first < covered ? "they overlap" : "there is a gap");
      }
      covered = first + tensor.data.size();
      before = "tensor " + QuoteName(tensor.name);
    }
    if (covered != data_.size()) {
      return DataLoss("{}: {} ends at byte {} of the data but the file has {}; {}", file_, before,
                      covered, data_.size(), "the file is damaged, fetch it again");
    }
    std::vector<std::string_view> names;
    for (const SafetensorsTensor& tensor : tensors) names.push_back(tensor.name);
    std::ranges::sort(names);
    const auto twice = std::ranges::adjacent_find(names);
    if (twice == names.end()) return {};
    return DataLoss("{}: tensor {} occurs twice; the file is damaged, fetch it again", file_,
                    QuoteName(*twice));
  }

 private:
  std::span<const std::byte> data_;
  const std::string& file_;
};

Result<std::vector<SafetensorsTensor>> ReadTensors(std::span<const std::byte> bytes,
                                                   const std::string& file) {
  MASU_ASSIGN_OR_RETURN(const std::string_view header, FindHeader(bytes, file));
  MASU_ASSIGN_OR_RETURN(auto entries, ReadSafetensorsHeader(header, file));
  const Placer placer(bytes.subspan(kLengthBytes + header.size()), file);
  std::vector<SafetensorsTensor> tensors;
  tensors.reserve(entries.size());
  for (SafetensorsEntry& entry : entries) {
    MASU_ASSIGN_OR_RETURN(auto tensor, placer.Place(std::move(entry)));
    tensors.push_back(std::move(tensor));
  }
  MASU_TRY(placer.CheckCover(tensors));
  return tensors;
}

}  // namespace

Result<SafetensorsFile> SafetensorsFile::Open(const std::string& path) {
  SafetensorsFile file;
  MASU_ASSIGN_OR_RETURN(file.mapping_, FileMapping::Map(path));
  file.path_ = path;
  MASU_ASSIGN_OR_RETURN(file.tensors_, ReadTensors(file.mapping_.bytes(), path));
  return file;
}

bool SafetensorsFile::Holds(std::span<const std::byte> data) const {
  const std::span<const std::byte> all = mapping_.bytes();
  const std::less_equal<const std::byte*> not_after;
  return not_after(all.data(), data.data()) &&
         not_after(data.data() + data.size(), all.data() + all.size());
}

Result<SafetensorsFile> SafetensorsFile::Parse(std::span<const std::byte> bytes,
                                               const std::string& name) {
  SafetensorsFile file;
  file.path_ = name;
  MASU_ASSIGN_OR_RETURN(file.tensors_, ReadTensors(bytes, name));
  return file;
}

}  // namespace masu
