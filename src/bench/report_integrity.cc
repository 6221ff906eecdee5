#include <fmt/format.h>

#include "bench/report_sections.h"
#include "quality/html_page.h"

namespace masu {
namespace {

std::string Percent(double share) { return fmt::format("{:+.2f} %", 100 * share); }

std::string Bound(double cost, double limit) {
  return HtmlChip(cost < limit ? "good" : "warn", Percent(cost));
}

std::string Steps(const BenchJson& report, double limit) {
  std::string rows;
  for (const BenchJson& step : report.at("steps")) {
    const BenchJson& requests = step.at("requests");
    const BenchJson& ratio = step.at("ratio");
    const BenchJson& high = ratio.at("high");  // null with too few pairs
    rows += "<tr>" +
            HtmlCell(requests.is_null() ? "all" : std::to_string(requests.get<int>()), "name") +
            HtmlCell(Percent(ratio.at("ratio").get<double>() - 1)) +
            HtmlCell(high.is_null() ? "" : Bound(high.get<double>() - 1, limit)) +
            HtmlCell(std::to_string(ratio.at("pairs").get<int>())) + "</tr>";
  }
  return HtmlTable({"requests", "cost", "upper 95 %", "pairs"}, rows);
}

std::string Checks(const BenchJson& report, double limit) {
  std::string rows;
  for (const BenchJson& check : report.at("checks")) {
    const double share = check.at("share").get<double>();
    rows +=
        "<tr>" +
        HtmlCell(EscapeHtml(check.at("kv_cache_dtype").get<std::string>() + ", " +
                            check.at("kv_scale").get<std::string>()),
                 "name") +
        HtmlCell(fmt::format("{:.1f} ms", 1e3 * check.at("step_seconds").get<double>())) +
        HtmlCell(std::to_string(check.at("headers").get<uint64_t>())) +
        HtmlCell(fmt::format("{:.3f} ms<small>cold {:.3f} ms</small>",
                             1e3 * check.at("check_seconds").get<double>(),
                             1e3 * check.at("cold_seconds").get<double>())) +
        HtmlCell(HtmlChip(share < limit ? "good" : "bad", fmt::format("{:.3f} %", 100 * share))) +
        "</tr>";
  }
  return HtmlTable({"encoding", "step", "headers", "compare", "share of a step"}, rows);
}

}  // namespace

std::string IntegritySections(const BenchJson& report) {
  const double limit = report.at("limit").get<double>();
  std::vector<NotRunReason> reasons;
  for (const BenchJson& reason : report.at("skipped")) {
    reasons.push_back({"", reason.get<std::string>()});
  }
  const bool passed = report.at("passed").get<bool>();
  return Section("What checking pages costs",
                 fmt::format("{}, {}. Steps with checks against steps without, in turn; the limit "
                             "is {:g} %.",
                             report.at("model").get<std::string>(),
                             report.at("isa").get<std::string>(), 100 * limit),
                 HtmlChip(passed ? "good" : "bad", passed ? "within the limit" : "over the limit") +
                     Steps(report, limit) + "<h3>Headers of a large step</h3>" +
                     Checks(report, limit)) +
         NotRun(reasons);
}

}  // namespace masu
