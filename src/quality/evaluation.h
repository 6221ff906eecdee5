// A list of checks over a list of settings of one model in one run, each against the same baseline.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "quality/divergence.h"
#include "quality/encoding_setting.h"
#include "quality/eval_statistics.h"
#include "quality/eval_task.h"

namespace masu {

// The name of the check that compares distributions; it is no EvalTask, since it needs all settings
// side by side.
inline constexpr const char* kKlTask = "kl";

// The largest mean KL that passes at so many bits per value of K and V, scales included: 0.01 at 8
// bits and above, 0.05 below (limits of the guard at load, too).
double MeanKlLimit(double bits_per_value);

struct KlOptions {
  std::string text;
  std::string text_name;   // for reports
  uint32_t tokens = 4096;  // at most
  uint32_t window = 512;   // each starts anew
};

struct EvaluationRequest {
  // Settings that do not go with the model are left out and named, not errors.
  bool skip_impossible = false;
  std::vector<EncodingSetting> settings;  // the baseline first
  std::optional<KlOptions> kl;            // none: not asked for
};

// A check that was asked for and could not run.
struct SkippedTask {
  std::string name;
  std::string reason;
};
struct PreparedTasks {
  std::vector<std::unique_ptr<EvalTask>> tasks;
  std::vector<SkippedTask> skipped;
};
// Reads the data of the named checks; kKlTask is passed over. Data that is not there is an error,
// or, with `skip_missing`, skips the check. Errors too: an unknown name, damaged data.
Result<PreparedTasks> PrepareTasks(const std::vector<std::string>& names,
                                   const EvalTaskOptions& options, bool skip_missing);

// One check under one setting.
struct TaskRun {
  std::vector<EvalItem> items;
  double score = 0;   // mean of the items' scores
  Interval interval;  // of the score
  // Of the right answers, if all items have it. exp(-mean) is what LAMBADA calls perplexity.
  std::optional<double> mean_log_likelihood;
  std::vector<std::pair<std::string, double>> extra;  // means of the items' further figures
  std::optional<PairedComparison> comparison;         // none of the baseline
  double seconds = 0;
};
struct TaskReport {
  std::string name;
  std::string description;
  std::vector<TaskRun> runs;  // per setting, the baseline first
};

struct SettingReport {
  std::string name;
  uint64_t bytes_per_token = 0;  // of the cache, all layers, scales included
  double share_of_16_bits = 1;   // of the bytes that a 16-bit cache takes
  std::optional<Divergence> divergence;
  std::vector<std::string> flags;  // what a user should know before choosing it, one line each
};

struct Evaluation {
  std::string model;
  std::string activation_dtype;
  std::string isa;
  std::vector<SettingReport> settings;  // the baseline first
  std::vector<TaskReport> tasks;
  std::vector<SkippedTask> skipped;
  struct Kl {
    std::string text_name;
    uint64_t tokens = 0;
    uint32_t window = 0;
    double baseline_perplexity = 0;
  };
  std::optional<Kl> kl;
};

// What an evaluation needs of a model. Tests give a fake, RunEvaluation's callers a EvaluatedModel.
class EvaluationModel {
 public:
  virtual ~EvaluationModel() = default;
  virtual std::string name() const = 0;
  virtual std::string activation_dtype() const = 0;
  virtual std::string isa() const = 0;
  // Errors: a setting that is unknown or does not go with the model.
  virtual Result<uint64_t> BytesPerToken(const EncodingSetting& setting) const = 0;
  // The target before it is gone by then.
  virtual Result<std::unique_ptr<EvalTarget>> Open(const EncodingSetting& setting) = 0;
  // Arms in the order of `settings` without the first, which is the baseline. Fills in `kl`.
  virtual Result<DivergenceReport> MeasureKl(const std::vector<EncodingSetting>& settings,
                                             const KlOptions& options, Evaluation::Kl& kl,
                                             const std::function<void(double)>& progress) = 0;
};

// `fraction` of the whole run from 0 to 1, and what is being done.
using EvaluationProgress = std::function<void(double fraction, const std::string& what)>;

// Errors: those of the model and of the tasks; settings are checked before anything runs.
Result<Evaluation> RunEvaluation(const EvaluationRequest& request, PreparedTasks tasks,
                                 EvaluationModel& model, const EvaluationProgress& progress);

// The setting to choose for each size below 16 bits, one line; empty without KL. Sizes within a
// tenth of each other count as the same.
std::string Recommendation(const Evaluation& evaluation);

}  // namespace masu
