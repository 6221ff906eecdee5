#include "cli/kv_flags.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdlib>

namespace masu {
namespace {

constexpr const char* kEncodings =
    "bfloat16, float16, float32, fp8 (= fp8_e4m3), fp8_e5m2, int8 or int4";

// --kv-policy "$FILE" with FILE unset would serve without one and not say so.
std::string NotEmpty(const std::string& value) {
  return value.empty() ? "is empty; give a value, or leave the flag out" : "";
}

void AddChoices(CLI::App& app, EngineConfig& config) {
  config.kv_cache_dtype_choices = {"auto"};
  app.add_option_function<std::vector<std::string>>(
         "--kv-cache-dtype-choices",
         [&config](const std::vector<std::string>& names) {
           const bool none = std::ranges::find(names, "none") != names.end();
           if (none && names.size() > 1) {
             throw CLI::ValidationError("--kv-cache-dtype-choices",
                                        "none stands alone; leave it out of a longer list");
           }
           config.kv_cache_dtype_choices = none ? std::vector<std::string>() : names;
         },
         "what else a request may ask for (kv_cache_dtype, or model NAME:KV), as a list such as "
         "auto,int8/int4,fp8:unit; auto (default): the model's 16 bits beside a narrower default; "
         "none: only the default. All share the memory")
      ->delimiter(',')
      ->type_name("LIST");
}

}  // namespace

void AddSkipLayersFlag(CLI::App& app, std::string& layers) {
  app.add_option("--kv-cache-dtype-skip-layers", layers,
                 "layers whose K and V stay at 16 bits: numbers, ranges, first:N, last:N, "
                 "sliding_window, such as 0,5-7,last:1")
      ->check(NotEmpty)
      ->type_name("LAYERS");
}

void AddKvEncodingFlags(CLI::App& app, EngineConfig& config) {
  app.add_option("--kv-cache-dtype", config.kv_cache_dtype,
                 std::string("auto, ") + kEncodings +
                     "; K and V apart as int8/int4; then perhaps :dynamic, :unit or :checkpoint, "
                     "the scales of fp8, as in fp8:unit, or :plain, int4 without layers at 8 bits")
      ->capture_default_str();
  app.add_option("--kv-cache-dtype-k", config.kv_cache_dtype_k,
                 std::string("of K alone: ") + kEncodings)
      ->check(NotEmpty)
      ->type_name("DTYPE");
  app.add_option("--kv-cache-dtype-v", config.kv_cache_dtype_v, "of V alone; likewise")
      ->check(NotEmpty)
      ->type_name("DTYPE");
  AddSkipLayersFlag(app, config.kv_cache_dtype_skip_layers);
  app.add_option("--kv-scale", config.kv_scale,
                 "scales of an fp8 cache: auto (the checkpoint's if it has them, else dynamic), "
                 "dynamic (per token and KV head), checkpoint, or unit (none)")
      ->capture_default_str();
  app.add_flag("!--no-kv-conditioning", config.kv_conditioning,
               "cache K with its bias and its outlier channels; to see what leaving them out is "
               "for");
}

void AddKvGuardFlag(CLI::App& app, std::string& guard) {
  app.add_option("--kv-guard", guard,
                 "compares the cache's encoding with 16 bits on built-in text before the engine "
                 "starts (a second or two, once for each model and encoding): off, warn above a "
                 "mean KL of 0.01 (0.05 at 4 bits), fallback (layers go back to 16 bits until it "
                 "holds), or refuse")
      ->check(CLI::IsMember({"off", "warn", "fallback", "refuse"}))
      ->capture_default_str();
}

void AddKvServingFlags(CLI::App& app, EngineConfig& config, ServerConfig& server,
                       std::string& policy_file) {
  AddChoices(app, config);
  app.add_option("--kv-policy", policy_file,
                 "JSON file: which requests get which kv_cache_dtype, by API key, header or model "
                 "name, and what drift changes (docs/precision.md)")
      ->check(NotEmpty)
      ->type_name("FILE");
  app.add_option("--drift-sample", config.drift_sample,
                 "share of requests, such as 0.001, whose answers are compared with those of a "
                 "16-bit cache, for the metrics masu:kv_drift_* and --kv-policy; 0: none")
      ->check([](const std::string& text) {
        char* end = nullptr;
        const double share = std::strtod(text.c_str(), &end);
        const bool fits = end != text.c_str() && *end == '\0' && share >= 0 && share <= 1;
        return fits ? std::string() : "'" + text + "' is no share from 0 to 1, such as 0.001";
      })
      ->capture_default_str()
      ->type_name("SHARE");
  app.add_flag(
      "--retry-on-degeneration", server.retry_on_degeneration,
      "make an answer that loops or is broken JSON once more at 16 bits before it is sent, "
      "if its cache was narrower and it is not a stream");
}

}  // namespace masu
