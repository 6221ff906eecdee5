#include "quality/evaluation.h"

#include <algorithm>
#include <chrono>
#include <cmath>

#include "base/stopwatch.h"

namespace masu {
namespace {

TaskRun Summarize(std::vector<EvalItem> items) {
  TaskRun run;
  const double count = static_cast<double>(std::max<size_t>(1, items.size()));
  double log_likelihood = 0;
  bool all_have_it = !items.empty();
  for (const EvalItem& item : items) {
    run.score += item.score / count;
    all_have_it = all_have_it && item.log_likelihood.has_value();
    log_likelihood += item.log_likelihood.value_or(0) / count;
    for (const auto& figure : item.extra) {
      auto mean = std::find_if(run.extra.begin(), run.extra.end(),
                               [&](const auto& entry) { return entry.first == figure.first; });
      if (mean == run.extra.end()) mean = run.extra.insert(mean, {figure.first, 0.0});
      mean->second += figure.second / count;
    }
  }
  run.score = std::clamp(run.score, 0.0, 1.0);  // sums of shares may round beyond 1
  run.interval = WilsonInterval(run.score, items.size());
  if (all_have_it) run.mean_log_likelihood = log_likelihood;
  run.items = std::move(items);
  return run;
}

// Shares of one progress line: every check under every setting is a part.
class ProgressParts {
 public:
  ProgressParts(size_t parts, const EvaluationProgress& show) : parts_(parts), show_(show) {}
  void Show(double within, const std::string& what) const {
    if (!show_) return;
    // The whole is done once, at the very end.
    const double fraction = (static_cast<double>(done_) + within) / static_cast<double>(parts_);
    show_(std::min(fraction, 0.999), what);
  }
  void Next() { ++done_; }

 private:
  size_t parts_;
  size_t done_ = 0;
  const EvaluationProgress& show_;
};

Result<void> RunTasks(const std::vector<EncodingSetting>& settings, const PreparedTasks& prepared,
                      EvaluationModel& model, ProgressParts& progress, Evaluation& evaluation) {
  if (prepared.tasks.empty()) return {};
  for (const auto& task : prepared.tasks) {
    evaluation.tasks.push_back({task->name(), task->description(), {}});
  }
  for (const EncodingSetting& setting : settings) {
    MASU_ASSIGN_OR_RETURN(const std::unique_ptr<EvalTarget> target, model.Open(setting));
    for (size_t i = 0; i < prepared.tasks.size(); ++i) {
      EvalTask& task = *prepared.tasks[i];
      const auto begin = std::chrono::steady_clock::now();
      const auto show = [&](size_t done, size_t total) {
        progress.Show(static_cast<double>(done) / static_cast<double>(std::max<size_t>(1, total)),
                      setting.name + ": " + task.name());
      };
      auto items = task.Run(*target, show);
      if (!items.ok()) {
        Error error = items.error();
        error.message = fmt::format("{} with {}: {}", task.name(), setting.name, error.message);
        return error;
      }
      TaskRun run = Summarize(std::move(items).value());
      run.seconds = SecondsSince(begin);
      std::vector<TaskRun>& runs = evaluation.tasks[i].runs;
      if (!runs.empty()) run.comparison = ComparePaired(runs.front().items, run.items);
      runs.push_back(std::move(run));
      progress.Next();
    }
  }
  return {};
}

void AddFlags(Evaluation& evaluation) {
  for (size_t s = 1; s < evaluation.settings.size(); ++s) {
    SettingReport& setting = evaluation.settings[s];
    if (setting.divergence) {
      const double bits = 16 * setting.share_of_16_bits;
      const double limit = MeanKlLimit(bits);
      // NaN is above any limit.
      if (!(setting.divergence->mean_kl <= limit)) {
        setting.flags.push_back(
            fmt::format("mean KL {:.2g} is above {}, the limit at {:.0f} bits a value",
                        setting.divergence->mean_kl, limit, bits));
      }
    }
    for (const TaskReport& task : evaluation.tasks) {
      const PairedComparison& comparison = *task.runs[s].comparison;
      if (comparison.is_worse()) {
        setting.flags.push_back(fmt::format("{}: {} answers lost and {} gained, p = {:.2g}",
                                            task.name, comparison.lost, comparison.gained,
                                            comparison.mcnemar_p));
      }
    }
  }
}

}  // namespace

double MeanKlLimit(double bits_per_value) { return bits_per_value >= 7.5 ? 0.01 : 0.05; }

Result<PreparedTasks> PrepareTasks(const std::vector<std::string>& names,
                                   const EvalTaskOptions& options, bool skip_missing) {
  PreparedTasks prepared;
  for (const std::string& name : names) {
    if (name == kKlTask) continue;
    MASU_ASSIGN_OR_RETURN(std::unique_ptr<EvalTask> task, MakeEvalTask(name));
    const Result<void> ready = task->Prepare(options);
    if (ready.ok()) {
      prepared.tasks.push_back(std::move(task));
    } else if (skip_missing && ready.error().code == ErrorCode::kNotFound) {
      prepared.skipped.push_back({name, ready.error().message});
    } else {
      return ready.error();
    }
  }
  return prepared;
}

Result<Evaluation> RunEvaluation(const EvaluationRequest& request, PreparedTasks tasks,
                                 EvaluationModel& model, const EvaluationProgress& progress) {
  Evaluation evaluation{.model = model.name(),
                        .activation_dtype = model.activation_dtype(),
                        .isa = model.isa(),
                        .settings = {},
                        .tasks = {},
                        .skipped = std::move(tasks.skipped),
                        .kl = {}};
  MASU_ASSIGN_OR_RETURN(const uint64_t full, model.BytesPerToken({.name = "bfloat16"}));
  std::vector<EncodingSetting> settings;
  for (const EncodingSetting& setting : request.settings) {
    const Result<uint64_t> bytes = model.BytesPerToken(setting);
    if (!bytes.ok()) {
      const bool is_baseline = settings.empty();
      if (!request.skip_impossible || is_baseline ||
          bytes.error().code != ErrorCode::kUnimplemented)
        return bytes.error();
      evaluation.skipped.push_back({setting.name, bytes.error().message});
      continue;
    }
    settings.push_back(setting);
    SettingReport report;
    report.name = setting.name;
    report.bytes_per_token = *bytes;
    report.share_of_16_bits = static_cast<double>(*bytes) / static_cast<double>(full);
    evaluation.settings.push_back(std::move(report));
  }
  ProgressParts parts(tasks.tasks.size() * settings.size() + (request.kl ? 1 : 0), progress);
  if (request.kl) {
    evaluation.kl = Evaluation::Kl();
    MASU_ASSIGN_OR_RETURN(DivergenceReport divergence,
                          model.MeasureKl(settings, *request.kl, *evaluation.kl,
                                          [&](double f) { parts.Show(f, "comparing"); }));
    for (size_t i = 0; i < divergence.arms.size(); ++i) {
      evaluation.settings[i + 1].divergence = std::move(divergence.arms[i]);
    }
    parts.Next();
  }
  MASU_TRY(RunTasks(settings, tasks, model, parts, evaluation));
  AddFlags(evaluation);
  if (progress) progress(1, "done");
  return evaluation;
}

std::string Recommendation(const Evaluation& evaluation) {
  std::vector<const SettingReport*> candidates;
  for (size_t s = 1; s < evaluation.settings.size(); ++s) {
    const SettingReport& setting = evaluation.settings[s];
    if (setting.divergence && setting.share_of_16_bits < 0.95) candidates.push_back(&setting);
  }
  std::stable_sort(candidates.begin(), candidates.end(), [](const auto* a, const auto* b) {
    return a->share_of_16_bits > b->share_of_16_bits;
  });
  std::string text;
  for (auto begin = candidates.begin(); begin != candidates.end();) {
    const auto end = std::find_if(begin, candidates.end(), [&](const auto* setting) {
      return setting->share_of_16_bits < 0.9 * (*begin)->share_of_16_bits;
    });
    const SettingReport& best = **std::min_element(begin, end, [](const auto* a, const auto* b) {
      return a->divergence->mean_kl < b->divergence->mean_kl;
    });
    const std::string choice =
        fmt::format("{} (mean KL {:.1e}, {:.2f}x the tokens of 16 bits)", best.name,
                    best.divergence->mean_kl, 1 / best.share_of_16_bits);
    text += text.empty() ? "" : "; ";
    text += best.flags.empty() ? choice : "not without care " + choice;
    begin = end;
  }
  return text.empty() ? text : "Recommended, lowest KL at its size: " + text;
}

}  // namespace masu
