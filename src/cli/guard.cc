// The KV guard between loading a model and starting its engine.
#include "base/environment.h"
#include "base/log.h"
#include "cli/commands.h"
#include "quality/kv_guard.h"

namespace masu {

Result<bool> GuardKvCache(const std::string& guard, LoadedModel& model, EngineConfig& config) {
  KvGuardOptions options;
  MASU_ASSIGN_OR_RETURN(options.guard, ParseKvGuard(guard));
  options.cache_folder = Environment::Read().home + "/kv_guard";
  options.progress = [](double fraction) {
    ShowProgress(fraction, "looking for sensitive layers");
  };
  MASU_ASSIGN_OR_RETURN(const KvGuardResult result, RunKvGuard(model, config, options));
  for (const std::string& warning : result.warnings) LogWarning("{}", warning);
  for (const KvVerdict& verdict : result.verdicts) {
    LogInfo("KV guard: {}: mean KL {:.3g} over {} tokens (limit {:.3g}), top-1 {:.1f} %{}",
            verdict.kv, verdict.mean_kl, verdict.tokens, verdict.limit,
            100 * verdict.top1_agreement, verdict.cached ? ", measured earlier" : "");
  }
  const bool changed =
      !result.skip_layers.empty() && result.skip_layers != config.kv_cache_dtype_skip_layers;
  if (changed) config.kv_cache_dtype_skip_layers = result.skip_layers;
  return changed;
}

}  // namespace masu
