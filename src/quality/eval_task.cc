#include "quality/eval_task.h"

#include "quality/task_arc.h"
#include "quality/task_copy.h"
#include "quality/task_custom.h"
#include "quality/task_gsm8k.h"
#include "quality/task_instruction.h"
#include "quality/task_json.h"
#include "quality/task_lambada.h"
#include "quality/task_mmlu.h"
#include "quality/task_needle.h"
#include "quality/task_repetition.h"
#include "quality/task_toolcall.h"

namespace masu {
namespace {

struct TaskEntry {
  const char* name;
  std::unique_ptr<EvalTask> (*make)();
};

// In the order in which reports show them.
constexpr TaskEntry kTasks[] = {
    {"needle", MakeNeedleTask},
    {"copy", MakeCopyTask},
    {"instruction", MakeInstructionTask},
    {"json", MakeJsonTask},
    {"repetition", MakeRepetitionTask},
    {"arc_easy", [] { return MakeArcTask("arc_easy"); }},
    {"arc_challenge", [] { return MakeArcTask("arc_challenge"); }},
    {"lambada", MakeLambadaTask},
    {"gsm8k", MakeGsm8kTask},
    {"mmlu", MakeMmluTask},
    {"mmlu_pro", MakeMmluProTask},
    {"toolcall", MakeToolcallTask},
    {"custom", MakeCustomTask},
};

}  // namespace

std::vector<std::string> EvalTaskNames() {
  std::vector<std::string> names;
  for (const TaskEntry& task : kTasks) names.emplace_back(task.name);
  return names;
}

Result<std::unique_ptr<EvalTask>> MakeEvalTask(const std::string& name) {
  std::string known;
  for (const TaskEntry& task : kTasks) {
    if (name == task.name) return task.make();
    known += (known.empty() ? "" : ", ") + std::string(task.name);
  }
  return MakeError(ErrorCode::kNotFound, "there is no check '{}'; use one of {}", name, known);
}

}  // namespace masu
