// A whole file mapped into memory, read-only and private; move-only, safe to read from any thread.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <utility>

#include "base/result.h"

namespace masu {

// A file that another process shortens after Map raises SIGBUS when a lost page is touched: nothing
// a reader of mappings can check beforehand, and outside what we guard against. Replace model files
// by rename.
class FileMapping {
 public:
  // Errors name the path and the cause. An empty file is one.
  static Result<FileMapping> Map(const std::string& path);
  FileMapping() = default;
  FileMapping(FileMapping&& other) noexcept : bytes_(std::exchange(other.bytes_, {})) {}
  FileMapping& operator=(FileMapping&& other) noexcept {
    std::swap(bytes_, other.bytes_);
    return *this;
  }
  ~FileMapping();

  std::span<const std::byte> bytes() const { return bytes_; }
  // Drops the whole pages of this range from memory; a later read brings them back from the file.
  void Drop(std::span<const std::byte> range) const;

 private:
  std::span<std::byte> bytes_;
};

}  // namespace masu
