// The options of `masu eval`, in a file of their own for its length. Internal to cli/options*.cc.
#pragma once

#include "cli/options.h"

namespace CLI {  // NOLINT(readability-identifier-naming): the library's name
class App;
class Option;
}  // namespace CLI

namespace masu {

void AddEvalOptions(CLI::App& app, EvalOptions& options);

// Groups of options that several commands share (cli/options.cc).
void AddModel(CLI::App& app, std::string& model);
CLI::Option* AddScaleFile(CLI::App& app, std::string& path);
void AddIntegrityOptions(CLI::App& app, EngineConfig& config);
void AddKvCacheBytes(CLI::App& app, EngineConfig& config, const std::string& help);
void AddKvMemoryOptions(CLI::App& app, EngineConfig& config);
void AddComputeOptions(CLI::App& app, EngineConfig& config);
// The word nearest to a misspelt one; empty if none is near.
std::string NearestWord(const std::vector<std::string>& words, const std::string& misspelt);

}  // namespace masu
