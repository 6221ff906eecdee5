// The options of `masu bench serve`, in a file of their own for their number. Internal to
// cli/options*.cc.
#pragma once

#include "bench/serve_options.h"

namespace CLI {  // NOLINT(readability-identifier-naming): the library's name
class App;
}  // namespace CLI

namespace masu {

// --api-key may be set before: what the environment says.
void AddServeBenchOptions(CLI::App& app, ServeBenchOptions& options);

}  // namespace masu
