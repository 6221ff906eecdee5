// One check of quality: questions, how they are put to a setting, and how its answers are scored.
// The same questions go to every setting, so answers are compared in pairs.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "quality/eval_target.h"

namespace masu {

struct EvalTaskOptions {
  std::string data_dir = {};           // of data that is not built in
  std::string file = {};               // custom: the user's own prompts
  std::optional<uint32_t> limit = {};  // questions at most, the first ones; nullopt: the task's own
  std::vector<uint32_t> lengths = {};  // needle, copy, instruction: context lengths in tokens
  uint32_t seed = 0;                   // of what is drawn at random (needles, distractors)
};

// What became of one question under one setting.
struct EvalItem {
  std::string id;        // the same under every setting: "arc_easy/17", "needle/2048/0.25"
  std::string question;  // or its end, for a reader
  std::string expected;
  std::string answer = {};                    // what the model said or chose
  double score = 0;                           // 1: right, 0: wrong, or a share in between
  std::optional<double> log_likelihood = {};  // of the right answer, where the task computes it
  // Where it lies in a picture: depth and length of a needle. Both or none.
  std::optional<double> x = {};
  std::optional<double> y = {};
  // Further figures of this question: "acc_norm", "distinct_2".
  std::vector<std::pair<std::string, double>> extra = {};
};

class EvalTask {
 public:
  virtual ~EvalTask() = default;
  virtual std::string name() const = 0;         // "arc_easy"
  virtual std::string description() const = 0;  // one line for reports and --help
  // Reads the data. Missing data is an error that names the file, its format and where to put it.
  virtual Result<void> Prepare(const EvalTaskOptions& options) = 0;
  virtual Result<std::vector<EvalItem>> Run(EvalTarget& target,
                                            const EvalTarget::Progress& progress) = 0;
};

// Names of all tasks in the order in which reports show them.
std::vector<std::string> EvalTaskNames();
// Errors: an unknown name, with the names there are.
Result<std::unique_ptr<EvalTask>> MakeEvalTask(const std::string& name);

}  // namespace masu
