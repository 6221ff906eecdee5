#include <fmt/format.h>

#include <algorithm>

#include "quality/eval_plots.h"
#include "quality/eval_report.h"

namespace masu {
namespace {

// Answers side by side, for each setting and check. JSON has them all.
constexpr size_t kShownItems = 100;

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
details { border: 1px solid var(--grid); border-radius: 8px; margin-top: 10px; }
summary { cursor: pointer; padding: 8px 12px; }
details .scroll { padding: 0 12px 8px; }
.answers { table-layout: fixed; min-width: 760px; }
.answers td { white-space: pre-wrap; overflow-wrap: anywhere; font-size: 13px; }
ul { margin: 6px 0 0; padding-left: 20px; }
.flags { list-style: none; padding: 8px 10px 0; }
.flags li { margin-top: 6px; }
footer { margin-top: 24px; font-size: 13px; }
@media print { section { break-inside: avoid; } }
)";

std::string Cell(const std::string& html, const std::string& classes = "number") {
  return fmt::format("<td class=\"{}\">{}</td>", classes, html);
}

std::string Chip(const char* kind, const std::string& text) {
  return fmt::format("<span class=\"chip {}\">{}</span>", kind, EscapeHtml(text));
}

std::string SettingName(const Evaluation& evaluation, size_t s) {
  return fmt::format("<span class=\"dot\" style=\"background:{}\"></span>{}{}", SeriesColor(s),
                     EscapeHtml(evaluation.settings[s].name),
                     s == 0 ? " <span class=\"muted\">baseline</span>" : "");
}

std::string Header(const std::vector<std::string>& names) {
  std::string html = "<thead><tr>";
  for (size_t i = 0; i < names.size(); ++i) {
    html += fmt::format("<th{}>{}</th>", i == 0 ? "" : " class=\"number\"", EscapeHtml(names[i]));
  }
  return html + "</tr></thead>";
}

std::string Table(const std::vector<std::string>& header, const std::string& rows) {
  return "<div class=\"scroll\"><table>" + Header(header) + "<tbody>" + rows +
         "</tbody></table></div>";
}

// Half the limit is good, up to the limit is to be watched.
const char* KlKind(const SettingReport& setting) {
  const double limit = MeanKlLimit(16 * setting.share_of_16_bits);
  const double kl = setting.divergence->mean_kl;
  return kl <= limit / 2 ? "good" : kl <= limit ? "warn" : "bad";
}

std::string SummaryScore(const TaskRun& run) {
  std::string html = FormatShare(run.score);
  if (const auto& pairs = run.comparison; pairs) {
    html +=
        fmt::format("<small>{} flipped</small><small class=\"{}\">p {}</small>", pairs->flipped(),
                    pairs->is_worse() ? "bad" : "", EscapeHtml(FormatP(pairs->mcnemar_p)));
  }
  return html;
}

std::string SummaryRow(const Evaluation& evaluation, size_t s) {
  const SettingReport& setting = evaluation.settings[s];
  std::string name = SettingName(evaluation, s);
  if (!setting.flags.empty()) name += " " + Chip("bad", "flagged");
  std::string row = "<tr>" + Cell(name, "name");
  row += Cell(fmt::format(
      "{}<small>{:.3f} of 16 bits</small><div class=\"bar\"><i style=\"width:{:.1f}%\"></i></div>",
      setting.bytes_per_token, setting.share_of_16_bits,
      100 * std::min(1.0, setting.share_of_16_bits)));
  if (evaluation.kl) {
    const auto& arm = setting.divergence;
    row += arm ? Cell(Chip(KlKind(setting), fmt::format("{:.2e}", arm->mean_kl)) +
                      fmt::format("<small>max {:.1e}</small>", arm->max_kl))
               : Cell("0");
    row += Cell(arm ? fmt::format("{:.2f} %", 100 * arm->top1_agreement) : "100 %");
    row += Cell(fmt::format("{:.3f}", arm ? arm->perplexity : evaluation.kl->baseline_perplexity));
  }
  for (const TaskReport& task : evaluation.tasks) row += Cell(SummaryScore(task.runs[s]));
  return row + "</tr>";
}

// What a user should know before choosing, below the table.
std::string Flags(const Evaluation& evaluation) {
  std::string list;
  for (size_t s = 0; s < evaluation.settings.size(); ++s) {
    for (const std::string& flag : evaluation.settings[s].flags) {
      list += fmt::format("<li>{} {}: {}</li>", Chip("bad", "flagged"), SettingName(evaluation, s),
                          EscapeHtml(flag));
    }
  }
  return list.empty() ? "" : "<ul class=\"flags\">" + list + "</ul>";
}

std::string Summary(const Evaluation& evaluation) {
  std::vector<std::string> header = {"KV cache", "bytes per token"};
  if (evaluation.kl) header.insert(header.end(), {"mean KL", "top-1", "perplexity"});
  for (const TaskReport& task : evaluation.tasks) header.push_back(task.name);
  std::string rows;
  for (size_t s = 0; s < evaluation.settings.size(); ++s) rows += SummaryRow(evaluation, s);
  return "<section><h2>Summary</h2>" + Table(header, rows) + Flags(evaluation) + "</section>";
}

std::string KlByPosition(const Evaluation& evaluation) {
  std::vector<LineSeries> series;
  for (size_t s = 1; s < evaluation.settings.size(); ++s) {
    LineSeries one{.name = evaluation.settings[s].name, .color = s, .points = {}};
    for (const PositionBin& bin : evaluation.settings[s].divergence->by_position) {
      if (bin.tokens > 0) one.points.emplace_back((bin.begin + bin.end) / 2.0, bin.mean_kl);
    }
    series.push_back(std::move(one));
  }
  return fmt::format(
      "<section><h2>KL divergence by position</h2><p class=\"muted\">KL({} || encoding) of the "
      "next-token distributions, over {} tokens of {} in windows of {}.</p>{}</section>",
      EscapeHtml(evaluation.settings.front().name), evaluation.kl->tokens,
      EscapeHtml(evaluation.kl->text_name), evaluation.kl->window,
      LogLinePlot(series, "position in the window", "mean KL, nats"));
}

std::string TaskRow(const Evaluation& evaluation, const TaskReport& task, size_t s) {
  const TaskRun& run = task.runs[s];
  std::string row = "<tr>" + Cell(SettingName(evaluation, s), "name");
  row += Cell(fmt::format("{}<small>{:.1f} to {:.1f}</small>", FormatShare(run.score),
                          100 * run.interval.low, 100 * run.interval.high));
  for (const auto& [name, value] : run.extra) row += Cell(fmt::format("{:.3f}", value));
  if (run.mean_log_likelihood) {
    row += Cell(fmt::format("{:.3f}", *run.mean_log_likelihood));
  }
  if (const auto& pairs = run.comparison; pairs) {
    row += Cell(fmt::format("{}<small>{} lost, {} gained</small>", pairs->flipped(), pairs->lost,
                            pairs->gained));
    row += Cell(std::to_string(pairs->changed));
    row += Cell(Chip(pairs->is_worse() ? "bad" : "good", FormatP(pairs->mcnemar_p)));
    if (const auto& change = pairs->log_likelihood; change) {
      row += Cell(fmt::format("{:+.4f}<small>{:+.4f} to {:+.4f}</small>", change->mean,
                              change->interval.low, change->interval.high));
    }
  } else {
    row += Cell("") + Cell("") + Cell("");
    if (run.mean_log_likelihood) row += Cell("");
  }
  return row + "</tr>";
}

std::string HeatMaps(const Evaluation& evaluation, const TaskReport& task) {
  std::string maps;
  for (size_t s = 0; s < task.runs.size(); ++s) {
    const std::string map = HeatMap(task.runs[s].items);
    if (!map.empty()) maps += "<div><h3>" + SettingName(evaluation, s) + "</h3>" + map + "</div>";
  }
  return maps.empty() ? ""
                      : "<h3>Score by depth and length</h3><div class=\"maps\">" + maps + "</div>";
}

std::string Verdict(const EvalItem& item) {
  if (IsRight(item)) return Chip("good", "right");
  if (item.score > 0) return Chip("warn", FormatShare(item.score));
  return Chip("bad", "wrong");
}

std::string Answers(const Evaluation& evaluation, const TaskReport& task, size_t s) {
  const TaskRun& run = task.runs[s];
  const auto items = FlippedItems(task.runs.front(), run, kShownItems);
  if (items.empty()) return "";
  std::string rows;
  for (const FlippedItem& item : items) {
    rows +=
        fmt::format("<tr><td><small>{}</small>{}</td><td>{}</td><td>{} {}</td><td>{} {}</td></tr>",
                    EscapeHtml(item.baseline->id), EscapeHtml(item.baseline->question),
                    EscapeHtml(item.baseline->expected), Verdict(*item.baseline),
                    EscapeHtml(item.baseline->answer), Verdict(*item.setting),
                    EscapeHtml(item.setting->answer));
  }
  const uint64_t flipped = run.comparison->flipped();
  const uint64_t differ = std::max(run.comparison->changed, flipped);
  const std::string shown =
      differ > items.size() ? fmt::format(", the first {} shown", items.size()) : "";
  return fmt::format(
      "<details><summary>{}: {} flipped, {} other {}{}</summary><div class=\"scroll\"><table "
      "class=\"answers\"><thead><tr><th style=\"width:40%\">question</th><th>expected</th>"
      "<th>{}</th><th>{}</th></tr></thead><tbody>{}</tbody></table></div></details>",
      SettingName(evaluation, s), flipped, differ, differ == 1 ? "answer" : "answers", shown,
      EscapeHtml(evaluation.settings.front().name), EscapeHtml(evaluation.settings[s].name), rows);
}

std::string Task(const Evaluation& evaluation, const TaskReport& task) {
  const TaskRun& baseline = task.runs.front();
  std::vector<DotRow> dots;
  std::vector<std::string> header = {"KV cache", "score"};
  for (const auto& [name, value] : baseline.extra) header.push_back(name);
  if (baseline.mean_log_likelihood) header.emplace_back("log-likelihood");
  header.insert(header.end(), {"flipped", "other answers", "McNemar p"});
  if (baseline.mean_log_likelihood) header.emplace_back("change of log-likelihood");
  std::string rows;
  std::string answers;
  for (size_t s = 0; s < task.runs.size(); ++s) {
    const TaskRun& run = task.runs[s];
    dots.push_back({evaluation.settings[s].name, run.score, run.interval});
    rows += TaskRow(evaluation, task, s);
    if (s > 0) answers += Answers(evaluation, task, s);
  }
  if (!answers.empty()) answers = "<h3>Answers side by side</h3>" + answers;
  return fmt::format(
      "<section id=\"{0}\"><h2>{0}</h2><p class=\"muted\">{1}; {2} questions. Bars are 95 % "
      "intervals, the dashed line is the baseline.</p>{3}{4}{5}{6}</section>",
      EscapeHtml(task.name), EscapeHtml(task.description), baseline.items.size(), DotPlot(dots),
      Table(header, rows), HeatMaps(evaluation, task), answers);
}

std::string Skipped(const Evaluation& evaluation) {
  if (evaluation.skipped.empty()) return "";
  std::string list;
  for (const SkippedTask& task : evaluation.skipped) {
    list += fmt::format("<li><b>{}</b>: {}</li>", EscapeHtml(task.name), EscapeHtml(task.reason));
  }
  return "<section><h2>Not run</h2><ul>" + list + "</ul></section>";
}

}  // namespace

std::string EvaluationToHtml(const Evaluation& evaluation) {
  const std::string model = EscapeHtml(evaluation.model);
  std::string body = fmt::format(
      "<h1>{}</h1><p class=\"muted\">What an encoding of the KV cache costs in quality, against "
      "{}; "
      "activations {}, {}</p>",
      model, EscapeHtml(evaluation.settings.front().name), EscapeHtml(evaluation.activation_dtype),
      EscapeHtml(evaluation.isa));
  if (const std::string advice = Recommendation(evaluation); !advice.empty()) {
    body += "<section class=\"advice\">" + EscapeHtml(advice) + "</section>";
  }
  body += Summary(evaluation);
  if (evaluation.kl && evaluation.settings.size() > 1) body += KlByPosition(evaluation);
  for (const TaskReport& task : evaluation.tasks) body += Task(evaluation, task);
  body += Skipped(evaluation);
  body +=
      "<footer class=\"muted\">Written by masu eval. p: McNemar's exact test on the same "
      "questions, two-sided. Score intervals are Wilson's, those of differences are paired; all "
      "are 95 %.</footer>";
  return fmt::format(
      "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><meta name=\"viewport\" "
      "content=\"width=device-width, initial-scale=1\"><title>masu eval: {}</title><style>{}"
      "</style></head><body><main>{}</main></body></html>\n",
      model, kStyle, body);
}

}  // namespace masu
