// A report as one HTML file without references to others: light or dark as the reader prefers, wide
// or narrow. Pure functions.
#pragma once

#include <string>
#include <vector>

namespace masu {

// Text with the characters replaced that mean something in HTML, attributes included; bytes that
// are no UTF-8 become U+FFFD.
std::string EscapeHtml(const std::string& text);

// `title` is text, `body` HTML.
std::string HtmlPage(const std::string& title, const std::string& body);

// Cells hold HTML. Classes: "number" (default, to the right) and "name".
std::string HtmlCell(const std::string& html, const std::string& classes = "number");
// The header is text; its first column stands to the left, the others to the right.
std::string HtmlTable(const std::vector<std::string>& header, const std::string& rows);
// `kind`: good, warn or bad. `text` is text.
std::string HtmlChip(const char* kind, const std::string& text);
// A bar of a share from 0 to 1, to stand below a number.
std::string HtmlBar(double share);
// A dot in the index-th arm's colour and a name, which is text.
std::string HtmlArm(size_t index, const std::string& name);

}  // namespace masu
