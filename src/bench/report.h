// `masu bench report`: one self-contained HTML page from the JSON of `masu bench kernel`, `engine`,
// `integrity` and `serve`.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "bench/bench_report.h"

namespace masu {

struct ReportBenchOptions {
  std::vector<std::string> files = {};
  std::string out = {};  // the page
  // Of the machine, in any currency; nullopt: costs are relative to the baseline's.
  std::optional<double> cost_per_hour = {};
};

// Writes options.out; the text says what went into it. Errors: a file that cannot be read, that no
// command of masu bench wrote, or that has another version of its format, named.
Result<BenchReport> RunReportBenchmark(const ReportBenchOptions& options);

// The same without files: each input is a name and its JSON.
struct ReportInput {
  std::string name;
  std::string json;
};
Result<std::string> MakeReportPage(const std::vector<ReportInput>& inputs,
                                   std::optional<double> cost_per_hour);

}  // namespace masu
