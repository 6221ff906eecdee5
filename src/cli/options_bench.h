// The options of `masu bench`; a file of its own for its length. Internal to cli/options*.cc.
#pragma once

#include <optional>
#include <string>

#include "cli/options.h"

namespace CLI {  // NOLINT(readability-identifier-naming): the library's name
class App;
}  // namespace CLI

namespace masu {

// The commands under `masu bench`. After parsing, `options` is what the one that was named takes.
// `isa` is what the environment asks for.
void AddBenchCommands(CLI::App& app, const std::optional<std::string>& isa, BenchOptions& options);

}  // namespace masu
