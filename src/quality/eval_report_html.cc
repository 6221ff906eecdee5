#include <fmt/format.h>

#include <algorithm>

#include "quality/eval_plots.h"
#include "quality/eval_report.h"
#include "quality/html_page.h"
#include "quality/svg_plot.h"

namespace masu {
namespace {

// Answers side by side, for each setting and check. JSON has them all.
constexpr size_t kShownItems = 100;

std::string SettingName(const Evaluation& evaluation, size_t s) {
  return HtmlArm(s, evaluation.settings[s].name) +
         (s == 0 ? " <span class=\"muted\">baseline</span>" : "");
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
  if (!setting.flags.empty()) name += " " + HtmlChip("bad", "flagged");
  std::string row = "<tr>" + HtmlCell(name, "name");
  row += HtmlCell(fmt::format("{}<small>{:.3f} of 16 bits</small>{}", setting.bytes_per_token,
                              setting.share_of_16_bits, HtmlBar(setting.share_of_16_bits)));
  if (evaluation.kl) {
    const auto& arm = setting.divergence;
    row += arm ? HtmlCell(HtmlChip(KlKind(setting), fmt::format("{:.2e}", arm->mean_kl)) +
                          fmt::format("<small>max {:.1e}</small>", arm->max_kl))
               : HtmlCell("0");
    row += HtmlCell(arm ? fmt::format("{:.2f} %", 100 * arm->top1_agreement) : "100 %");
    row +=
        HtmlCell(fmt::format("{:.3f}", arm ? arm->perplexity : evaluation.kl->baseline_perplexity));
  }
  for (const TaskReport& task : evaluation.tasks) row += HtmlCell(SummaryScore(task.runs[s]));
  return row + "</tr>";
}

// What a user should know before choosing, below the table.
std::string Flags(const Evaluation& evaluation) {
  std::string list;
  for (size_t s = 0; s < evaluation.settings.size(); ++s) {
    for (const std::string& flag : evaluation.settings[s].flags) {
      list += fmt::format("<li>{} {}: {}</li>", HtmlChip("bad", "flagged"),
                          SettingName(evaluation, s), EscapeHtml(flag));
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
  return "<section><h2>Summary</h2>" + HtmlTable(header, rows) + Flags(evaluation) + "</section>";
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
  std::string plot = LinePlot(series, {.x_label = "position in the window",
                                       .y_label = "mean KL, nats",
                                       .y_axis = PlotAxis::kLog10});
  if (plot.empty()) plot = "<p class=\"muted\">no difference at any position</p>";
  return fmt::format(
      "<section><h2>KL divergence by position</h2><p class=\"muted\">KL({} || encoding) of the "
      "next-token distributions, over {} tokens of {} in windows of {}.</p>{}</section>",
      EscapeHtml(evaluation.settings.front().name), evaluation.kl->tokens,
      EscapeHtml(evaluation.kl->text_name), evaluation.kl->window, plot);
}

std::string TaskRow(const Evaluation& evaluation, const TaskReport& task, size_t s) {
  const TaskRun& run = task.runs[s];
  std::string row = "<tr>" + HtmlCell(SettingName(evaluation, s), "name");
  row += HtmlCell(fmt::format("{}<small>{:.1f} to {:.1f}</small>", FormatShare(run.score),
                              100 * run.interval.low, 100 * run.interval.high));
  for (const auto& [name, value] : run.extra) row += HtmlCell(fmt::format("{:.3f}", value));
  if (run.mean_log_likelihood) {
    row += HtmlCell(fmt::format("{:.3f}", *run.mean_log_likelihood));
  }
  if (const auto& pairs = run.comparison; pairs) {
    row += HtmlCell(fmt::format("{}<small>{} lost, {} gained</small>", pairs->flipped(),
                                pairs->lost, pairs->gained));
    row += HtmlCell(std::to_string(pairs->changed));
    row += HtmlCell(HtmlChip(pairs->is_worse() ? "bad" : "good", FormatP(pairs->mcnemar_p)));
    if (const auto& change = pairs->log_likelihood; change) {
      row += HtmlCell(fmt::format("{:+.4f}<small>{:+.4f} to {:+.4f}</small>", change->mean,
                                  change->interval.low, change->interval.high));
    }
  } else {
    row += HtmlCell("") + HtmlCell("") + HtmlCell("");
    if (run.mean_log_likelihood) row += HtmlCell("");
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
  if (IsRight(item)) return HtmlChip("good", "right");
  if (item.score > 0) return HtmlChip("warn", FormatShare(item.score));
  return HtmlChip("bad", "wrong");
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
      HtmlTable(header, rows), HeatMaps(evaluation, task), answers);
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
  return HtmlPage("masu eval: " + evaluation.model, body);
}

}  // namespace masu
