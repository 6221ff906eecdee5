// A check of the chosen KV layout at load: how far the model's next tokens move from those of a
// 16-bit cache, on a text that is built in. A second or two for a small model; the verdict is kept
// on disk for the next start.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "engine/engine_config.h"
#include "engine/loaded_model.h"

namespace masu {

// kFallback: layers go back to 16 bits, the most sensitive first, until the limit holds.
enum class KvGuard { kOff, kWarn, kFallback, kRefuse };
Result<KvGuard> ParseKvGuard(const std::string& name);

struct KvGuardOptions {
  KvGuard guard = KvGuard::kWarn;
  std::string cache_folder;   // of verdicts; empty: none are kept
  double budget_seconds = 2;  // for each layout; at least 64 tokens are compared
  std::function<void(double fraction)> progress = {};
};

struct KvVerdict {
  std::string kv;           // canonical name of the layout
  std::string skip_layers;  // that stay at 16 bits
  double mean_kl = 0;       // KL(16 bits || layout), mean over tokens
  double top1_agreement = 1;
  uint32_t tokens = 0;  // compared
  double limit = 0;     // MeanKlLimit (evaluation.h) of the narrower side's bits
  bool cached = false;  // from an earlier start
  bool holds() const { return mean_kl <= limit; }
};

struct KvGuardResult {
  // Of each layout with fewer than 16 bits that the configuration asks for, the default first; what
  // a fallback chose is the last word on the default.
  std::vector<KvVerdict> verdicts;
  std::vector<std::string> warnings;  // what a user should hear, one line each
  std::string skip_layers;            // kFallback: for EngineConfig::kv_cache_dtype_skip_layers
};

// Errors: kRefuse and the limit does not hold. Does nothing (no verdicts) with kOff, for a model
// without tokenizer, and for layouts of 16 bits and more. Not while an engine runs the model.
Result<KvGuardResult> RunKvGuard(LoadedModel& model, const EngineConfig& config,
                                 const KvGuardOptions& options);

}  // namespace masu
