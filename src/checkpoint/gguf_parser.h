// Reads the header, the metadata and the table of tensors of a GGUF file and checks all of it
// against the size of the file. GgufFile hands out what this has read.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/result.h"
#include "checkpoint/byte_cursor.h"
#include "checkpoint/gguf.h"
#include "checkpoint/gguf_metadata.h"

namespace masu {

inline constexpr uint64_t kGgufDefaultAlignment = 32;

class GgufParser {
 public:
  GgufParser(std::span<const std::byte> bytes, std::string file)
      : bytes_(bytes), file_(std::move(file)), cursor_(bytes) {}

  Result<void> Run();

  GgufMetadata metadata;
  std::vector<GgufTensor> tensors;
  std::unordered_map<std::string_view, size_t> tensor_index;  // names are views into the file

 private:
  Result<void> ReadHeader();
  Result<void> ReadAlignment();
  Result<void> ReadTensorEntries();
  Result<void> ReadTensorEntry(uint64_t index);
  Result<std::vector<uint64_t>> ReadShape(const std::string& name);
  Result<uint64_t> BytesOf(const GgufTensor& tensor, uint32_t type) const;
  Result<void> PlaceTensors();
  Result<void> CheckOverlaps() const;

  std::span<const std::byte> bytes_;
  std::string file_;
  ByteCursor cursor_;
  uint64_t num_tensors_ = 0;
  uint64_t num_pairs_ = 0;
  uint64_t alignment_ = kGgufDefaultAlignment;
  struct Extent {
    uint64_t offset;  // from the start of the data section, as in the file
    uint64_t bytes;
  };
  std::vector<Extent> extents_;  // parallel to `tensors`
};

}  // namespace masu
