#include "base/units.h"

#include <fmt/format.h>

#include <cctype>
#include <cstdlib>
#include <map>

namespace masu {

Result<Bytes> ParseBytes(std::string_view text) {
  const auto bad = [&] {
    return InvalidArgument("'{}' is not a size; write for example 1GiB, 1.5GB or 1073741824", text);
  };
  const std::string copy(text);
  if (copy.empty() || !(std::isdigit(static_cast<unsigned char>(copy[0])) || copy[0] == '.'))
    return bad();
  char* end = nullptr;
  const double number = std::strtod(copy.c_str(), &end);
  std::string unit(end);
  std::erase(unit, ' ');
  for (char& c : unit) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  static const std::map<std::string, double, std::less<>> kUnits = {{"", 1},
                                                                    {"b", 1},
                                                                    {"k", 1 << 10},
                                                                    {"kib", 1 << 10},
                                                                    {"kb", 1e3},
                                                                    {"m", 1 << 20},
                                                                    {"mib", 1 << 20},
                                                                    {"mb", 1e6},
                                                                    {"g", 1 << 30},
                                                                    {"gib", 1 << 30},
                                                                    {"gb", 1e9},
                                                                    {"t", 1099511627776.0},
                                                                    {"tib", 1099511627776.0},
                                                                    {"tb", 1e12}};
  const auto it = kUnits.find(unit);
  if (it == kUnits.end()) return bad();
  const double bytes = number * it->second;
  if (!(bytes >= 0) || bytes >= 9.2e18) return bad();
  return Bytes{static_cast<uint64_t>(bytes)};
}

std::string FormatBytes(Bytes bytes) {
  static constexpr const char* kUnits[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB"};
  double value = static_cast<double>(bytes.value);
  int unit = 0;
  while (value >= 1024 && unit < 5) value /= 1024, ++unit;
  if (unit == 0) return fmt::format("{} B", bytes.value);
  return fmt::format("{:.{}f} {}", value, value < 10 ? 2 : value < 100 ? 1 : 0, kUnits[unit]);
}

std::string FormatCount(uint64_t count) {
  std::string digits = std::to_string(count);
  for (int i = static_cast<int>(digits.size()) - 3; i > 0; i -= 3)
    digits.insert(static_cast<size_t>(i), ",");
  return digits;
}

}  // namespace masu
