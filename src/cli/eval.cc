// `masu eval`: reads what is asked for, runs it, writes reports.
#include <algorithm>
#include <cstdio>

#include "base/report_file.h"
#include "cli/commands.h"
#include "quality/eval_report.h"
#include "quality/eval_text.h"
#include "quality/evaluated_model.h"

namespace masu {
namespace {

// Questions of each check of `kv`, where the user does not say: some minutes for a small model.
constexpr uint32_t kRecommendedLimit = 200;

// What `kv` stands for, as far as it is built.
std::vector<std::string> RecommendedChecks() {
  std::vector<std::string> names = {kKlTask};
  const std::vector<std::string> known = EvalTaskNames();
  for (const char* name : {"arc_easy", "lambada", "needle", "copy", "json", "repetition"}) {
    if (std::find(known.begin(), known.end(), name) != known.end()) names.emplace_back(name);
  }
  return names;
}

struct Checks {
  std::vector<std::string> names;  // each once
  bool recommended = false;
  bool skip_missing = false;  // a set was asked for, not each of its members
};

Checks ExpandChecks(const EvalOptions& options) {
  Checks checks;
  const auto add = [&checks](const std::string& name) {
    if (std::find(checks.names.begin(), checks.names.end(), name) == checks.names.end()) {
      checks.names.push_back(name);
    }
  };
  for (const std::string& name : options.checks) {
    if (name == kRecommendedChecks) {
      checks.recommended = checks.skip_missing = true;
      for (const std::string& member : RecommendedChecks()) add(member);
    } else if (name == kAllChecks) {
      checks.skip_missing = true;
      add(kKlTask);
      for (const std::string& member : EvalTaskNames()) add(member);
    } else {
      add(name);
    }
  }
  return checks;
}

Result<EvaluationRequest> MakeRequest(const EvalOptions& options, const Checks& checks) {
  EvaluationRequest request;
  MASU_ASSIGN_OR_RETURN(EncodingSetting baseline, ParseEncodingSetting(options.baseline));
  request.settings.push_back(std::move(baseline));
  request.skip_impossible = options.encodings.empty();
  for (const std::string& name :
       options.encodings.empty() ? ComparedEncodings() : options.encodings) {
    MASU_ASSIGN_OR_RETURN(EncodingSetting setting, ParseEncodingSetting(name));
    request.settings.push_back(std::move(setting));
  }
  if (std::find(checks.names.begin(), checks.names.end(), kKlTask) != checks.names.end()) {
    KlOptions kl{.text = std::string(BuiltinEvalText()),
                 .text_name = "the built-in text",
                 .tokens = options.tokens,
                 .window = options.window};
    if (!options.text.empty()) {
      MASU_ASSIGN_OR_RETURN(kl.text, ReadEvalText(options.text));
      kl.text_name = options.text;
    }
    request.kl = std::move(kl);
  }
  return request;
}

Result<void> Eval(const EvalOptions& options) {
  const Checks checks = ExpandChecks(options);
  MASU_ASSIGN_OR_RETURN(const EvaluationRequest request, MakeRequest(options, checks));
  EvalTaskOptions task = options.task;
  if (checks.recommended && !task.limit) task.limit = kRecommendedLimit;
  MASU_ASSIGN_OR_RETURN(PreparedTasks tasks, PrepareTasks(checks.names, task, checks.skip_missing));
  MASU_ASSIGN_OR_RETURN(ReportFile json, ReportFile::Open(options.json));
  MASU_ASSIGN_OR_RETURN(ReportFile html, ReportFile::Open(options.html));
  MASU_ASSIGN_OR_RETURN(std::shared_ptr<LoadedModel> model,
                        LoadedModel::Load(options.model, options.engine, nullptr));
  EvaluatedModel evaluated(std::move(model), options.engine);
  MASU_ASSIGN_OR_RETURN(const Evaluation evaluation,
                        RunEvaluation(request, std::move(tasks), evaluated, ShowProgress));
  if (options.json == "-") {
    std::printf("%s\n", EvaluationToJson(evaluation).c_str());
  } else {
    std::fputs(EvaluationToText(evaluation, !checks.recommended).c_str(), stdout);
  }
  MASU_TRY(json.Write(EvaluationToJson(evaluation) + "\n"));
  MASU_TRY(html.Write(EvaluationToHtml(evaluation)));
  return {};
}

}  // namespace

int RunEval(const EvalOptions& options) {
  const Result<void> done = Eval(options);
  return done.ok() ? 0 : PrintError(done.error());
}

}  // namespace masu
