// What all checks share that let the model write and look at what it wrote.
#pragma once

#include <functional>
#include <vector>

#include "quality/eval_task.h"

namespace masu {

struct GenerationQuestion {
  EvalItem item;  // all but the answer, its score and its figures
  GenerateQuery query;
  // Sets score and extra of the item, whose answer is filled in.
  std::function<void(const GenerateResult&, EvalItem&)> score;
};

class GenerationTask : public EvalTask {
 public:
  Result<void> Prepare(const EvalTaskOptions& options) final;
  Result<std::vector<EvalItem>> Run(EvalTarget& target, const EvalTarget::Progress& progress) final;

 protected:
  // Reads the data, if there is any.
  virtual Result<void> Load() { return {}; }
  // The same ones for every setting of a model.
  virtual Result<std::vector<GenerationQuestion>> Questions(const EvalTarget& target) const = 0;
  const EvalTaskOptions& options() const { return options_; }

 private:
  EvalTaskOptions options_;
};

// Without whitespace at both ends.
std::string Trimmed(std::string_view text);

}  // namespace masu
