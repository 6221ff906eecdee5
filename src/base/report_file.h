// A report that a command writes to a file beside what it prints.
#pragma once

#include <fstream>
#include <string>

#include "base/result.h"

namespace masu {

// Opened before anything runs: an hour's work must not end at a folder that is not there.
class ReportFile {
 public:
  // Empty and "-" (standard output, which the caller serves) are no file; Write does nothing then.
  static Result<ReportFile> Open(const std::string& path);
  Result<void> Write(const std::string& text);

 private:
  std::string path_;
  std::ofstream stream_;
};

}  // namespace masu
