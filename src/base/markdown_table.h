// Tables for terminals and documents.
#pragma once

#include <string>
#include <vector>

namespace masu {

// A table in Markdown with columns as wide as their longest cell.
class MarkdownTable {
 public:
  explicit MarkdownTable(std::vector<std::string> header) : rows_{std::move(header)} {}
  // As many cells as the header has.
  void Add(std::vector<std::string> row) { rows_.push_back(std::move(row)); }
  std::string Format() const;

 private:
  std::vector<std::vector<std::string>> rows_;
};

}  // namespace masu
