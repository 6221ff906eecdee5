#include "cli/options_eval.h"

#include <CLI/CLI.hpp>
#include <algorithm>

#include "quality/evaluation.h"

namespace masu {
namespace {

std::vector<std::string> KnownChecks() {
  std::vector<std::string> names = {kKlTask, kRecommendedChecks, kAllChecks};
  for (std::string& name : EvalTaskNames()) names.push_back(std::move(name));
  return names;
}

std::string Joined(const std::vector<std::string>& names) {
  std::string text;
  for (const std::string& name : names) text += (text.empty() ? "" : ", ") + name;
  return text;
}

// "kl,arc_easy" to names; an unknown one is an error.
std::vector<std::string> ParseChecks(const std::string& text) {
  const std::vector<std::string> known = KnownChecks();
  std::vector<std::string> names = CLI::detail::split(text, ',');
  for (const std::string& name : names) {
    if (std::find(known.begin(), known.end(), name) != known.end()) continue;
    const std::string nearest = NearestWord(known, name);
    throw CLI::ValidationError(
        "TASKS", "there is no check '" + name + "'; " +
                     (nearest.empty() ? "" : "did you mean " + nearest + "? ") + "use one of " +
                     Joined(known));
  }
  return names;
}

void AddDataOptions(CLI::App& app, EvalOptions& options) {
  app.add_option("--data", options.task.data_dir,
                 "folder with the questions, such as arc_easy.jsonl; what is missing is named with "
                 "its format")
      ->capture_default_str();
  app.add_option("--file", options.task.file, "custom: your own prompts, one JSON object a line");
  app.add_option("--limit", options.task.limit,
                 "questions of each check, the first ones; default: all of them, with kv 200")
      ->check(CLI::Range(uint32_t{1}, uint32_t{1} << 30));
  app.add_option("--lengths", options.task.lengths,
                 "needle, copy, instruction: context lengths in tokens, such as 512,2048")
      ->delimiter(',');
  app.add_option("--seed", options.task.seed, "of what a check draws at random")
      ->capture_default_str();
  app.add_option(
      "--text", options.text,
      "kl: plain text, or .jsonl with a \"context\" or \"text\" in each line; default: a "
      "built-in text");
  app.add_option("--tokens", options.tokens, "kl: how many tokens of the text")
      ->capture_default_str();
  app.add_option("--window", options.window, "kl: context length; each window starts anew")
      ->capture_default_str();
}

}  // namespace

void AddEvalOptions(CLI::App& app, EvalOptions& options) {
  app.add_option_function<std::string>(
         "TASKS", [&options](const std::string& text) { options.checks = ParseChecks(text); },
         "what to measure, separated by commas: kl (KL divergence, top-1 and perplexity over a "
         "text), " +
             Joined(EvalTaskNames()) +
             "; kv: the set that shows which encoding to choose; all: all whose data is there")
      ->required()
      ->type_name("NAMES");
  AddModel(app, options.model);
  app.add_option(
         "--kv-cache-dtype", options.encodings,
         "encodings to compare, such as int8,int8/int4,fp8:unit,int4:norotate; default: all that "
         "are smaller than 16 bits")
      ->delimiter(',');
  app.add_option("--baseline", options.baseline, "encoding to compare with")->capture_default_str();
  AddDataOptions(app, options);
  app.add_flag("--json{-}", options.json,
               "print JSON instead of tables; --json=FILE: write it to a file beside them");
  app.add_option("--html", options.html, "write a report with plots to this file");
  AddScaleFile(app, options.engine.quantization_param_path);
  AddKvMemoryOptions(app, options.engine);
  AddIntegrityOptions(app, options.engine);
  AddComputeOptions(app, options.engine);
}

}  // namespace masu
