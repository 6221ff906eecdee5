// One function per command. Each returns the process's exit code; errors are one line on standard
// error.
#pragma once

#include "cli/options.h"
#include "engine/loaded_model.h"

namespace masu {

int RunServe(const ServeOptions& options);
int RunGenerate(const GenerateOptions& options);
int RunChat(const ChatOptions& options);
int RunInfo(const InfoOptions& options);
int RunEval(const EvalOptions& options);
int RunTokenize(const TokenizeOptions& options);
int RunDetokenize(const DetokenizeOptions& options);
int RunTemplate(const TemplateOptions& options);
int RunPlan(const PlanOptions& options);
int RunBench(const BenchOptions& options);

// Runs the KV guard in the mode that --kv-guard names, says what it found, and may leave more
// layers at 16 bits: true then, and the plan of memory is another. Errors: it refuses.
Result<bool> GuardKvCache(const std::string& guard, LoadedModel& model, EngineConfig& config);

// Prints "masu: message" and returns 1.
int PrintError(const Error& error);
// A progress bar on standard error where that is a terminal, a line per tenth elsewhere.
void ShowProgress(double fraction, const std::string& what);

}  // namespace masu
