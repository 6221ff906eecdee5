#include "quality/html_page.h"

#include <fmt/format.h>

#include <algorithm>

#include "quality/svg_plot.h"
#include "text/utf8.h"

namespace masu {
namespace {

constexpr const char* kStyle = R"(
:root { color-scheme: light dark; --page: #f6f7f9; --card: #fff; --text: #1c2330; --muted: #667085;
  --grid: #e4e7ec; --good: #157f4b; --good-back: #e3f5ea; --warn: #8a5a00; --warn-back: #fdf0d5;
  --bad: #b3261e; --bad-back: #fde7e5; --accent: #2456c7; --series-0: #667085; --series-1: #2456c7;
  --series-2: #c2571a; --series-3: #157f4b; --series-4: #8b3fb0; --series-5: #b3261e;
  --series-6: #00798c; --series-7: #937200; }
@media (prefers-color-scheme: dark) { :root { --page: #12151b; --card: #1b2029; --text: #e6e9ef;
  --muted: #97a1b2; --grid: #323a47; --good: #6bd69c; --good-back: #17352a; --warn: #f0c065;
  --warn-back: #3a2f16; --bad: #ff9a90; --bad-back: #40201f; --accent: #8fb1ff;
  --series-0: #97a1b2; --series-1: #7ea6ff; --series-2: #ffa066; --series-3: #6bd69c;
  --series-4: #d09bf0; --series-5: #ff8d85; --series-6: #5fd0e0; --series-7: #e3c44f; } }
* { box-sizing: border-box; }
body { margin: 0; background: var(--page); color: var(--text);
  font: 15px/1.5 system-ui, -apple-system, "Segoe UI", Roboto, sans-serif; }
main { max-width: 1200px; margin: 0 auto; padding: 32px 20px 64px; }
h1 { font-size: 26px; margin: 0 0 4px; overflow-wrap: anywhere; }
h2 { font-size: 19px; margin: 0 0 4px; }
h3 { font-size: 15px; margin: 20px 0 6px; }
p { margin: 4px 0 12px; }
.muted { color: var(--muted); }
section { background: var(--card); border: 1px solid var(--grid); border-radius: 10px;
  padding: 20px 22px; margin-top: 20px; }
.advice { border-left: 4px solid var(--accent); font-weight: 600; }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; width: 100%; font-variant-numeric: tabular-nums; }
th, td { text-align: left; padding: 7px 10px; border-bottom: 1px solid var(--grid);
  vertical-align: top; }
th { color: var(--muted); font-weight: 600; font-size: 13px; white-space: nowrap; }
tbody tr:last-child td { border-bottom: 0; }
td.name { white-space: nowrap; }
td.number, th.number { text-align: right; white-space: nowrap; }
th.number { white-space: normal; vertical-align: bottom; }
td small { color: var(--muted); display: block; }
td small.bad { color: var(--bad); background: none; }
.good { color: var(--good); background: var(--good-back); }
.warn { color: var(--warn); background: var(--warn-back); }
.bad { color: var(--bad); background: var(--bad-back); }
.chip { display: inline-block; border-radius: 99px; padding: 1px 9px; font-size: 13px;
  font-weight: 600; white-space: nowrap; }
.dot { display: inline-block; width: 10px; height: 10px; border-radius: 50%; margin-right: 8px; }
.bar { background: var(--grid); height: 5px; border-radius: 3px; margin-top: 5px; min-width: 72px; }
.bar i { display: block; height: 5px; border-radius: 3px; background: var(--accent); }
svg { max-width: 100%; height: auto; display: block; margin: 6px 0 14px; font: 12px system-ui, sans-serif; }
.maps { display: flex; flex-wrap: wrap; gap: 24px; }
.plots { display: grid; grid-template-columns: repeat(auto-fill, minmax(min(320px, 100%), 1fr)); gap: 8px 24px; }
.plots svg { width: 100%; }
.legend { display: flex; flex-wrap: wrap; gap: 4px 18px; margin: 8px 0; padding: 0; list-style: none; }
details { border: 1px solid var(--grid); border-radius: 8px; margin-top: 10px; }
summary { cursor: pointer; padding: 8px 12px; }
details .scroll { padding: 0 12px 8px; }
details ul { padding: 0 12px 10px 32px; overflow-wrap: anywhere; }
.answers { table-layout: fixed; min-width: 760px; }
.answers td { white-space: pre-wrap; overflow-wrap: anywhere; font-size: 13px; }
ul { margin: 6px 0 0; padding-left: 20px; }
.flags { list-style: none; padding: 8px 10px 0; }
.flags li { margin-top: 6px; }
footer { margin-top: 24px; font-size: 13px; }
@media (max-width: 600px) { main { padding: 20px 10px 40px; } section { padding: 14px 12px; }
  th, td { padding: 6px 5px; } table { font-size: 14px; } }
@media print { section { break-inside: avoid; } }
)";

}  // namespace

std::string EscapeHtml(const std::string& text) {
  std::string valid;
  std::string pending;
  AppendDecided(text, &pending, &valid);
  if (!pending.empty()) valid += kReplacementCharacter;
  std::string escaped;
  for (const char c : valid) {
    switch (c) {
      case '&':
        escaped += "&amp;";
        break;
      case '<':
        escaped += "&lt;";
        break;
      case '>':
        escaped += "&gt;";
        break;
      case '"':
        escaped += "&quot;";
        break;
      case '\'':
        escaped += "&#39;";
        break;
      case '\0':  // which no HTML may hold
        escaped += kReplacementCharacter;
        break;
      default:
        escaped += c;
    }
  }
  return escaped;
}

std::string HtmlPage(const std::string& title, const std::string& body) {
  return fmt::format(
      "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><meta name=\"viewport\" "
      "content=\"width=device-width, initial-scale=1\"><title>{}</title><style>{}"
      "</style></head><body><main>{}</main></body></html>\n",
      EscapeHtml(title), kStyle, body);
}

std::string HtmlCell(const std::string& html, const std::string& classes) {
  return fmt::format("<td class=\"{}\">{}</td>", classes, html);
}

std::string HtmlTable(const std::vector<std::string>& header, const std::string& rows) {
  std::string html = "<div class=\"scroll\"><table><thead><tr>";
  for (size_t i = 0; i < header.size(); ++i) {
    html += fmt::format("<th{}>{}</th>", i == 0 ? "" : " class=\"number\"", EscapeHtml(header[i]));
  }
  return html + "</tr></thead><tbody>" + rows + "</tbody></table></div>";
}

std::string HtmlChip(const char* kind, const std::string& text) {
  return fmt::format("<span class=\"chip {}\">{}</span>", kind, EscapeHtml(text));
}

std::string HtmlBar(double share) {
  return fmt::format("<div class=\"bar\"><i style=\"width:{:.1f}%\"></i></div>",
                     100 * std::clamp(share, 0.0, 1.0));
}

std::string HtmlArm(size_t index, const std::string& name) {
  return fmt::format("<span class=\"dot\" style=\"background:{}\"></span>{}", SeriesColor(index),
                     EscapeHtml(name));
}

}  // namespace masu
