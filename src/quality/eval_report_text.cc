#include <fmt/format.h>

#include <algorithm>

#include "base/markdown_table.h"
#include "quality/eval_report.h"

namespace masu {
namespace {

std::string FormatInterval(const Interval& interval) {
  return fmt::format("[{:.1f}, {:.1f}]", 100 * interval.low, 100 * interval.high);
}

std::string KlTable(const Evaluation& evaluation) {
  MarkdownTable table({"KV cache", "mean KL", "max KL", "top-1",
                       fmt::format("perplexity ({}: {:.4f})", evaluation.settings.front().name,
                                   evaluation.kl->baseline_perplexity)});
  for (const SettingReport& setting : evaluation.settings) {
    if (!setting.divergence) continue;
    const Divergence& arm = *setting.divergence;
    table.Add({setting.name, fmt::format("{:.2e}", arm.mean_kl), fmt::format("{:.2e}", arm.max_kl),
               fmt::format("{:.2f} %", 100 * arm.top1_agreement),
               fmt::format("{:.4f}", arm.perplexity)});
  }
  return table.Format();
}

std::string TaskTable(const Evaluation& evaluation, const TaskReport& task) {
  std::vector<std::string> header = {"KV cache", "score [95 %]"};
  for (const auto& [name, value] : task.runs.front().extra) header.push_back(name);
  const bool has_likelihood = task.runs.front().mean_log_likelihood.has_value();
  if (has_likelihood) header.emplace_back("log-likelihood");
  for (const char* column : {"flipped (lost, gained)", "other answers", "McNemar p"}) {
    header.emplace_back(column);
  }
  if (has_likelihood) header.emplace_back("change of log-likelihood [95 %]");
  MarkdownTable table(header);
  for (size_t s = 0; s < task.runs.size(); ++s) {
    const TaskRun& run = task.runs[s];
    std::vector<std::string> row = {evaluation.settings[s].name,
                                    FormatShare(run.score) + " " + FormatInterval(run.interval)};
    for (const auto& [name, value] : run.extra) row.push_back(fmt::format("{:.3f}", value));
    if (run.mean_log_likelihood) {
      row.push_back(fmt::format("{:.3f}", *run.mean_log_likelihood));
    }
    if (const auto& pairs = run.comparison; pairs) {
      row.push_back(fmt::format("{} ({}, {})", pairs->flipped(), pairs->lost, pairs->gained));
      row.push_back(std::to_string(pairs->changed));
      row.push_back(FormatP(pairs->mcnemar_p));
      if (const auto& change = pairs->log_likelihood; change) {
        row.push_back(fmt::format("{:+.4f} [{:+.4f}, {:+.4f}]", change->mean, change->interval.low,
                                  change->interval.high));
      }
    }
    row.resize(header.size());
    table.Add(std::move(row));
  }
  return fmt::format("{}: {}; {} questions\n", task.name, task.description,
                     task.runs.front().items.size()) +
         table.Format();
}

std::string SummaryTable(const Evaluation& evaluation) {
  std::vector<std::string> header = {"KV cache", "bytes/token", "of 16 bits"};
  if (evaluation.kl) header.insert(header.end(), {"mean KL", "top-1"});
  for (const TaskReport& task : evaluation.tasks) header.push_back(task.name);
  header.emplace_back("");
  MarkdownTable table(header);
  for (size_t s = 0; s < evaluation.settings.size(); ++s) {
    const SettingReport& setting = evaluation.settings[s];
    std::vector<std::string> row = {setting.name, std::to_string(setting.bytes_per_token),
                                    fmt::format("{:.3f}", setting.share_of_16_bits)};
    if (evaluation.kl) {
      const auto& arm = setting.divergence;
      row.push_back(arm ? fmt::format("{:.2e}", arm->mean_kl) : "baseline");
      row.push_back(arm ? fmt::format("{:.2f} %", 100 * arm->top1_agreement) : "");
    }
    for (const TaskReport& task : evaluation.tasks) {
      const TaskRun& run = task.runs[s];
      std::string cell = FormatShare(run.score);
      if (run.comparison) cell += fmt::format(", {} flipped", run.comparison->flipped());
      row.push_back(std::move(cell));
    }
    row.emplace_back(setting.flags.empty() ? "" : "flagged");
    table.Add(std::move(row));
  }
  return table.Format();
}

}  // namespace

std::string FormatShare(double share) { return fmt::format("{:.1f} %", 100 * share); }

std::string FormatP(double p) {
  return p < 0.001 ? std::string("< 0.001") : fmt::format("{:.2g}", p);
}

std::vector<FlippedItem> FlippedItems(const TaskRun& baseline, const TaskRun& setting,
                                      size_t limit) {
  std::vector<FlippedItem> flipped;
  std::vector<FlippedItem> changed;
  for (size_t i = 0; i < baseline.items.size(); ++i) {
    const FlippedItem item{&baseline.items[i], &setting.items[i]};
    if (IsRight(*item.baseline) != IsRight(*item.setting)) {
      flipped.push_back(item);
    } else if (item.baseline->answer != item.setting->answer) {
      changed.push_back(item);
    }
  }
  flipped.insert(flipped.end(), changed.begin(), changed.end());
  if (flipped.size() > limit) flipped.resize(limit);
  return flipped;
}

std::string EvaluationToText(const Evaluation& evaluation, bool details) {
  const std::string& baseline = evaluation.settings.front().name;
  std::string text = fmt::format("{}, against {} KV; activations {}, {}\n", evaluation.model,
                                 baseline, evaluation.activation_dtype, evaluation.isa);
  if (const auto& kl = evaluation.kl; kl) {
    text += fmt::format("KL over {} tokens of {} in windows of {}\n", kl->tokens, kl->text_name,
                        kl->window);
  }
  if (details && evaluation.kl) text += "\n" + KlTable(evaluation);
  if (details) {
    for (const TaskReport& task : evaluation.tasks) text += "\n" + TaskTable(evaluation, task);
  }
  // With KL alone the summary would only repeat it.
  if (!details || !evaluation.tasks.empty()) text += "\n" + SummaryTable(evaluation);
  text += "\n";
  for (const SettingReport& setting : evaluation.settings) {
    for (const std::string& flag : setting.flags) {
      text += fmt::format("flagged: {}: {}\n", setting.name, flag);
    }
  }
  for (const SkippedTask& skipped : evaluation.skipped) {
    text += fmt::format("not run: {}: {}\n", skipped.name, skipped.reason);
  }
  if (const std::string advice = Recommendation(evaluation); !advice.empty()) text += advice + "\n";
  while (text.ends_with("\n\n")) text.pop_back();
  return text;
}

}  // namespace masu
