#include "quality/eval_data.h"

#include <algorithm>
#include <fstream>

namespace masu {

Result<std::string> DataLine::String(const char* key) const {
  const auto found = fields_.find(key);
  if (found == fields_.end() || !found->is_string()) {
    return DataLoss("{}: expected a string \"{}\"", where_, key);
  }
  return found->get<std::string>();
}

Result<std::vector<std::string>> DataLine::Strings(const char* key) const {
  const auto found = fields_.find(key);
  const bool is_list = found != fields_.end() && found->is_array() && !found->empty();
  if (!is_list || !std::all_of(found->begin(), found->end(),
                               [](const nlohmann::json& item) { return item.is_string(); })) {
    return DataLoss("{}: expected a list of strings \"{}\"", where_, key);
  }
  return found->get<std::vector<std::string>>();
}

Result<uint32_t> DataLine::Index(const char* key, size_t count) const {
  const auto found = fields_.find(key);
  if (found == fields_.end() || !found->is_number_unsigned() || found->get<uint64_t>() >= count) {
    return DataLoss("{}: expected a number \"{}\" from 0 to {}", where_, key, count - 1);
  }
  return found->get<uint32_t>();
}

Result<std::vector<DataLine>> ReadDataFile(const DataFile& file, std::optional<uint32_t> limit) {
  std::ifstream stream(file.path, std::ios::binary);
  if (!stream) {
    return MakeError(
        ErrorCode::kNotFound,
        "{} cannot be read; put the data there, one {} a line, or name its folder with "
        "--data",
        file.path, file.format);
  }
  std::vector<DataLine> lines;
  uint64_t number = 0;
  for (std::string text; lines.size() < limit.value_or(UINT32_MAX) && std::getline(stream, text);) {
    ++number;
    if (text.find_first_not_of(" \t\r") == std::string::npos) continue;
    auto fields = nlohmann::json::parse(text, nullptr, /*allow_exceptions=*/false);
    std::string where = fmt::format("{} line {}", file.path, number);
    if (!fields.is_object()) {
      return DataLoss("{}: expected a JSON object such as {}", where, file.format);
    }
    lines.emplace_back(std::move(where), std::move(fields));
  }
  if (lines.empty()) {
    return DataLoss("{} holds no questions; expected one {} a line", file.path, file.format);
  }
  return lines;
}

std::string TextTail(const std::string& text, size_t bytes) {
  if (text.size() <= bytes) return text;
  size_t begin = text.size() - bytes;
  while (begin < text.size() && (static_cast<unsigned char>(text[begin]) & 0xC0) == 0x80) ++begin;
  return "..." + text.substr(begin);
}

}  // namespace masu
