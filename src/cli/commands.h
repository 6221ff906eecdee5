// One function per command. Each returns the process's exit code; errors are one line on standard
// error.
#pragma once

#include "cli/options.h"

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

// Prints "masu: message" and returns 1.
int PrintError(const Error& error);
// A progress bar on standard error where that is a terminal, a line per tenth elsewhere.
void ShowProgress(double fraction, const std::string& what);

}  // namespace masu
