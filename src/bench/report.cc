#include "bench/report.h"

#include <fmt/format.h>

#include <filesystem>

#include "base/report_file.h"
#include "bench/report_sections.h"
#include "checkpoint/whole_file.h"
#include "quality/html_page.h"

namespace masu {
namespace {

constexpr uint64_t kMaxFileBytes = 1ull << 30;

Result<BenchJson> ParseInput(const ReportInput& input) {
  BenchJson json = BenchJson::parse(input.json, nullptr, false);
  if (!json.is_object() || !json.contains("benchmark") || !json["benchmark"].is_string()) {
    return DataLoss(
        "{}: no result of masu bench; give files that --json=FILE or --save-result wrote",
        input.name);
  }
  if (json["version"] != kBenchJsonVersion) {
    return MakeError(ErrorCode::kUnimplemented,
                     "{}: version {} of the format, this masu reads version {}", input.name,
                     json["version"].dump(), kBenchJsonVersion);
  }
  return json;
}

// Sections of one file; of a load test none, since those are shown together.
Result<std::string> SectionsOf(const BenchJson& report, const std::string& name,
                               const TokenCost& cost) {
  const std::string kind = report["benchmark"].get<std::string>();
  try {
    if (kind == "engine") return EngineSections(report, cost);
    if (kind == "kernel") return KernelSections(report);
    if (kind == "integrity") return IntegritySections(report);
  } catch (const BenchJson::exception& error) {
    return DataLoss("{}: no whole result of masu bench {}: {}", name, kind, error.what());
  }
  if (kind == "serve") return std::string();
  return MakeError(ErrorCode::kUnimplemented, "{}: a benchmark '{}' is unknown", name, kind);
}

Result<std::string> LoadTests(const std::vector<BenchJson>& reports, const TokenCost& cost) {
  if (reports.empty()) return std::string();
  try {
    return ServeSections(reports, cost);
  } catch (const BenchJson::exception& error) {
    return DataLoss("a result of masu bench serve is not whole: {}", error.what());
  }
}

// By their last names: where they lay is nobody's business.
std::string Sources(const std::vector<ReportInput>& inputs) {
  std::string list;
  for (const ReportInput& input : inputs) {
    list += "<li>" + EscapeHtml(std::filesystem::path(input.name).filename().string()) + "</li>";
  }
  return Folded(fmt::format("{} files", inputs.size()), "<ul>" + list + "</ul>");
}

}  // namespace

Result<std::string> MakeReportPage(const std::vector<ReportInput>& inputs,
                                   std::optional<double> cost_per_hour) {
  const TokenCost cost(cost_per_hour);
  std::string body;
  std::vector<BenchJson> load_tests;
  for (const ReportInput& input : inputs) {
    MASU_ASSIGN_OR_RETURN(BenchJson json, ParseInput(input));
    MASU_ASSIGN_OR_RETURN(const std::string sections, SectionsOf(json, input.name, cost));
    body += sections;
    if (json["benchmark"] == "serve") load_tests.push_back(std::move(json));
  }
  MASU_ASSIGN_OR_RETURN(const std::string load, LoadTests(load_tests, cost));
  return HtmlPage("masu bench",
                  "<h1>masu bench</h1><p class=\"muted\">Measured speed: ratios are of tokens per "
                  "second, above 1 is faster than the baseline; bounds are one-sided, 95 %.</p>" +
                      body + load + "<section><h2>Sources</h2>" + Sources(inputs) +
                      "</section><footer class=\"muted\">Written by masu bench report.</footer>");
}

Result<BenchReport> RunReportBenchmark(const ReportBenchOptions& options) {
  std::vector<ReportInput> inputs;
  for (const std::string& file : options.files) {
    MASU_ASSIGN_OR_RETURN(std::string json, ReadWholeFile(file, kMaxFileBytes));
    inputs.push_back({file, std::move(json)});
  }
  MASU_ASSIGN_OR_RETURN(const std::string page, MakeReportPage(inputs, options.cost_per_hour));
  MASU_ASSIGN_OR_RETURN(ReportFile file, ReportFile::Open(options.out));
  MASU_TRY(file.Write(page));
  return BenchReport{.text = fmt::format("{}: {} result{}\n", options.out, inputs.size(),
                                         inputs.size() == 1 ? "" : "s"),
                     .json = ""};
}

}  // namespace masu
