// The flags that say how K and V are stored, of the commands that have an engine.
#pragma once

#include <string>

#include "engine/engine_config.h"
#include "server/server_config.h"

namespace CLI {  // NOLINT: the library's name
class App;
}

namespace masu {

// serve, generate, chat: the encoding of the cache.
void AddKvEncodingFlags(CLI::App& app, EngineConfig& config);
// serve: what requests may choose, the policy, and the watch over quality.
void AddKvServingFlags(CLI::App& app, EngineConfig& config, ServerConfig& server,
                       std::string& policy_file);
// serve, generate, chat: the check of the encoding at load.
void AddKvGuardFlag(CLI::App& app, std::string& guard);
// Also of plan.
void AddSkipLayersFlag(CLI::App& app, std::string& layers);

}  // namespace masu
