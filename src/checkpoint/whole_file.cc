#include "checkpoint/whole_file.h"

#include <array>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>

namespace masu {
namespace {

Error TooLarge(const std::string& path, const std::string& size, uint64_t max_bytes) {
  return DataLoss("{}: has {} bytes, at most {} make sense; the file is damaged", path, size,
                  max_bytes);
}

}  // namespace

Result<std::string> ReadWholeFile(const std::string& path, uint64_t max_bytes) {
  std::error_code error;
  const auto status = std::filesystem::status(path, error);
  if (!std::filesystem::exists(status)) {
    return MakeError(ErrorCode::kNotFound, "{}: no such file", path);
  }
  if (std::filesystem::is_directory(status)) {
    return InvalidArgument("{}: is a directory; give a file", path);
  }
  uint64_t size = 0;  // 0: not known before the end, as of pipes
  if (std::filesystem::is_regular_file(status)) {
    size = std::filesystem::file_size(path, error);
    if (error) return InvalidArgument("{}: cannot read its size: {}", path, error.message());
    if (size > max_bytes) return TooLarge(path, std::to_string(size), max_bytes);
  }
  std::ifstream file(path, std::ios::binary);
  if (!file) return InvalidArgument("{}: {}; check its permissions", path, std::strerror(errno));
  std::string text;
  text.reserve(size);
  std::array<char, 1 << 16> part;
  while (file.read(part.data(), part.size()), file.gcount() > 0) {
    text.append(part.data(), static_cast<size_t>(file.gcount()));
    if (text.size() > max_bytes) return TooLarge(path, "more", max_bytes);
  }
  if (file.bad()) return InvalidArgument("{}: cannot be read: {}", path, std::strerror(errno));
  return text;
}

}  // namespace masu
