#include "kv/swap_space.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "base/check.h"

namespace masu {
namespace {

// Calls pread or pwrite until all is done.
template <typename Call, typename Byte>
bool Transfer(Call call, int file, std::span<Byte> bytes, uint64_t offset) {
  while (!bytes.empty()) {
    const ssize_t done = call(file, bytes.data(), bytes.size(), static_cast<off_t>(offset));
    if (done < 0 && errno == EINTR) continue;
    if (done <= 0) return false;
    bytes = bytes.subspan(static_cast<size_t>(done));
    offset += static_cast<uint64_t>(done);
  }
  return true;
}

}  // namespace

Result<std::unique_ptr<SwapSpace>> SwapSpace::Create(Bytes limit, std::string directory) {
  std::unique_ptr<SwapSpace> space(new SwapSpace(limit.value, std::move(directory)));
  if (space->in_memory()) return space;
  MASU_ASSIGN_OR_RETURN(const int file, space->OpenFile());
  ::close(file);
  return space;
}

// A file without a name; where the file system cannot do that, one whose name is gone at once.
Result<int> SwapSpace::OpenFile() const {
  int file = ::open(directory_.c_str(), O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
  if (file < 0 && (errno == EOPNOTSUPP || errno == EISDIR)) {
    std::string name = directory_ + "/masu-swap-XXXXXX";
    file = ::mkostemp(name.data(), O_CLOEXEC);
    if (file >= 0) ::unlink(name.c_str());
  }
  if (file < 0) {
    return MakeError(ErrorCode::kInvalidArgument,
                     "--swap-dir {}: {}; name a folder that can be written to", directory_,
                     std::strerror(errno));
  }
  return file;
}

std::optional<SwapSpace::Piece> SwapSpace::Allocate(uint64_t bytes) {
  if (bytes == 0 || bytes > limit_ - used_) return std::nullopt;
  Buffer memory;
  int file = -1;
  if (in_memory()) {
    Result<Buffer> buffer = Buffer::Allocate({bytes}, /*commit=*/false);
    if (!buffer.ok()) return std::nullopt;
    memory = std::move(*buffer);
  } else {
    const Result<int> opened = OpenFile();
    if (!opened.ok()) return std::nullopt;
    file = *opened;
    // A full disk is found here, before anything was moved.
    if (::posix_fallocate(file, 0, static_cast<off_t>(bytes)) != 0) {
      ::close(file);
      return std::nullopt;
    }
  }
  used_ += bytes;
  return Piece(*this, std::move(memory), file, bytes);
}

SwapSpace::Piece::Piece(Piece&& other) noexcept
    : space_(std::exchange(other.space_, nullptr)),
      memory_(std::move(other.memory_)),
      file_(std::exchange(other.file_, -1)),
      size_(other.size_) {}

SwapSpace::Piece::~Piece() {
  if (space_ == nullptr) return;
  space_->used_ -= size_;
  if (file_ >= 0) ::close(file_);
}

bool SwapSpace::Piece::Write(uint64_t offset, std::span<const std::byte> bytes) {
  MASU_CHECK_LE(offset + bytes.size(), size_);
  if (file_ >= 0) return Transfer(::pwrite, file_, bytes, offset);
  std::memcpy(memory_.data() + offset, bytes.data(), bytes.size());
  return true;
}

bool SwapSpace::Piece::Read(uint64_t offset, std::span<std::byte> out) const {
  MASU_CHECK_LE(offset + out.size(), size_);
  if (file_ >= 0) return Transfer(::pread, file_, out, offset);
  std::memcpy(out.data(), memory_.data() + offset, out.size());
  return true;
}

bool SwapSpace::Piece::Truncate() {
  return file_ >= 0 && ::ftruncate(file_, static_cast<off_t>(size_ / 2)) == 0;
}

}  // namespace masu
