// Python's string operations, keeping provenance byte by byte.
#pragma once

#include <optional>
#include <string_view>
#include <vector>

#include "text/jinja_value.h"

namespace masu::jinja {

Text ToUpper(const Text& text);
Text ToLower(const Text& text);
Text Capitalize(const Text& text);
Text Title(const Text& text);
// str.islower() and str.isupper().
bool IsLowerCase(std::string_view text);
bool IsUpperCase(std::string_view text);
// Whether the text is not empty and `accepts` holds for every character.
bool AllCharacters(std::string_view text, bool (*accepts)(char32_t));
bool IsLetter(char32_t code);
bool IsNumeric(char32_t code);
bool IsDecimalDigit(char32_t code);

enum class Side { kLeft, kRight, kBoth };
// Without `characters`: white space.
Text Strip(const Text& text, const Text* characters, Side side);

// Python's split(separator, limit); limit < 0: no limit; from the right if `from_right`.
std::vector<Value> Split(const Text& text, std::string_view separator, Integer limit,
                         bool from_right);
std::vector<Value> SplitSpace(const Text& text, Integer limit, bool from_right);
std::vector<Text> SplitLines(const Text& text, bool keep_ends);

Text Replace(const Text& text, const Text& from, const Text& to, Integer limit);
Text Join(const Text& separator, const std::vector<Text>& parts);
Text Pad(const Text& text, Integer width, const Text& fill, Side text_side);

Text EscapeHtml(const Text& text);
// format % values.
Text FormatPercent(const Text& format, const Value& values);
// format.format(*arguments).
Text FormatBraces(const Text& format, const Arguments& arguments);
// One value with a format specification such as ">8.3f".
Text FormatValue(const Value& value, std::string_view specification);

}  // namespace masu::jinja
