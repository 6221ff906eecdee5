// Questions of a task: files with one JSON object a line.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"

namespace masu {

// One line of a file. Getters' errors name the file, the line, and what was expected there.
class DataLine {
 public:
  DataLine(std::string where, nlohmann::json fields)
      : where_(std::move(where)), fields_(std::move(fields)) {}

  const std::string& where() const { return where_; }  // "arc_easy.jsonl line 3"
  const nlohmann::json& fields() const { return fields_; }
  bool Has(const char* key) const { return fields_.contains(key); }
  Result<std::string> String(const char* key) const;
  Result<std::vector<std::string>> Strings(const char* key) const;
  // A number from 0 to count - 1.
  Result<uint32_t> Index(const char* key, size_t count) const;

 private:
  std::string where_;
  nlohmann::json fields_;
};

struct DataFile {
  std::string path;
  std::string format;  // of a line, for errors: "{\"query\", \"choices\", \"gold\"}"
};

// The first `limit` lines, all of them without; empty lines count as none. Errors: the file is not
// there (with its format, and where to put it), a line that is no JSON object, no lines at all.
Result<std::vector<DataLine>> ReadDataFile(const DataFile& file, std::optional<uint32_t> limit);

// The end of a text that is for a reader to recognize it by: at most `bytes`, cut between
// characters, with "..." before it if something is missing.
std::string TextTail(const std::string& text, size_t bytes);

}  // namespace masu
