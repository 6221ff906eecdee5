// Room outside the arena for the pages of requests that were moved aside: memory, or files in a
// folder. A file has no name, so nothing of a request outlives the process, however it ends.
// Not thread-safe.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "base/result.h"
#include "base/units.h"
#include "tensor/buffer.h"

namespace masu {

class SwapSpace {
 public:
  // `directory`: empty for memory. Errors: the folder is not there or cannot hold a file.
  static Result<std::unique_ptr<SwapSpace>> Create(Bytes limit, std::string directory);

  // A piece of it; gives its bytes back when it goes. Must not outlive the space.
  class Piece {
   public:
    Piece(Piece&& other) noexcept;
    Piece& operator=(Piece&&) = delete;
    ~Piece();
    uint64_t size() const { return size_; }
    // False if the device failed, or (Read) has less than was written. `offset` and size within
    // the piece.
    bool Write(uint64_t offset, std::span<const std::byte> bytes);
    bool Read(uint64_t offset, std::span<std::byte> out) const;
    // For fault injection: the second half is gone. False for memory, which cannot be cut.
    bool Truncate();

   private:
    friend class SwapSpace;
    Piece(SwapSpace& space, Buffer memory, int file, uint64_t size)
        : space_(&space), memory_(std::move(memory)), file_(file), size_(size) {}
    SwapSpace* space_;
    Buffer memory_;
    int file_;  // -1: in memory
    uint64_t size_;
  };

  // nullopt if so much is not left, or the machine does not give it.
  std::optional<Piece> Allocate(uint64_t bytes);

  uint64_t used() const { return used_; }
  uint64_t limit() const { return limit_; }
  bool in_memory() const { return directory_.empty(); }

 private:
  SwapSpace(uint64_t limit, std::string directory)
      : limit_(limit), directory_(std::move(directory)) {}
  Result<int> OpenFile() const;

  uint64_t limit_;
  uint64_t used_ = 0;
  std::string directory_;
};

}  // namespace masu
