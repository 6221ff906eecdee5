// The options of `masu bench`; a file of its own for its length. Internal to cli/options*.cc.
#pragma once

#include "base/environment.h"
#include "cli/options.h"

namespace CLI {  // NOLINT(readability-identifier-naming): the library's name
class App;
}  // namespace CLI

namespace masu {

// The commands under `masu bench`. After parsing, `options` is what the one that was named takes.
void AddBenchCommands(CLI::App& app, const Environment& environment, BenchOptions& options);

}  // namespace masu
