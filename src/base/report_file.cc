#include "base/report_file.h"

namespace masu {

Result<ReportFile> ReportFile::Open(const std::string& path) {
  ReportFile file;
  if (path.empty() || path == "-") return file;
  file.path_ = path;
  file.stream_.open(path, std::ios::binary);
  if (!file.stream_) {
    return MakeError(ErrorCode::kNotFound,
                     "{}: cannot be written; give a path in a folder that is there", path);
  }
  return file;
}

Result<void> ReportFile::Write(const std::string& text) {
  if (path_.empty()) return {};
  stream_ << text << std::flush;
  if (!stream_) return MakeError(ErrorCode::kInternal, "{}: cannot be written", path_);
  return {};
}

}  // namespace masu
