#include "checkpoint/file_mapping.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <system_error>

namespace masu {
namespace {

Error SystemError(const std::string& path, const char* what, int error) {
  const auto code =
      error == ENOENT || error == ENOTDIR ? ErrorCode::kNotFound : ErrorCode::kInvalidArgument;
  return MakeError(code, "{}: cannot {}: {}", path, what,
                   std::error_code(error, std::generic_category()).message());
}

}  // namespace

FileMapping::~FileMapping() {
  if (!bytes_.empty()) munmap(bytes_.data(), bytes_.size());
}

Result<FileMapping> FileMapping::Map(const std::string& path) {
  // O_NONBLOCK: opening a FIFO must not wait for a writer. It means nothing for regular files.
  const int file = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (file < 0) return SystemError(path, "open the file", errno);
  struct stat status = {};
  const bool known = fstat(file, &status) == 0;
  if (!known || !S_ISREG(status.st_mode) || status.st_size == 0) {
    close(file);
    if (known && S_ISREG(status.st_mode)) {
      return DataLoss("{}: the file is empty; fetch it again", path);
    }
    return InvalidArgument("{}: is not a regular file; name a file of a model", path);
  }
  const auto size = static_cast<size_t>(status.st_size);
  void* address = mmap(nullptr, size, PROT_READ, MAP_PRIVATE, file, 0);
  const int error = errno;
  close(file);  // the mapping keeps the file
  if (address == MAP_FAILED) return SystemError(path, "map the file into memory", error);
  FileMapping mapping;
  mapping.bytes_ = std::span(static_cast<std::byte*>(address), size);
  return mapping;
}

void FileMapping::Drop(std::span<const std::byte> range) const {
  if (bytes_.empty()) return;
  const auto page = static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
  const auto offset = static_cast<uint64_t>(range.data() - bytes_.data());
  const uint64_t first = (offset + page - 1) / page * page;
  const uint64_t end = (offset + range.size()) / page * page;
  // Advice only: if the kernel declines, the pages stay and nothing else changes.
  if (first < end) madvise(bytes_.data() + first, end - first, MADV_DONTNEED);
}

}  // namespace masu
