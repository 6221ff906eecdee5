// Of the few files that include CLI11, which is slow to compile: kv_flags.cc, options_bench.cc,
// options_eval.cc.
#include "cli/options.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cctype>
#include <chrono>
#include <cmath>
#include <iostream>

#include "base/environment.h"
#include "base/log.h"
#include "base/units.h"
#include "cli/kv_flags.h"
#include "cli/options_bench.h"
#include "cli/options_eval.h"
#include "engine/fault_injection.h"

namespace masu {
namespace {

constexpr uint32_t kAuto = 0;
constexpr int kMaxThreads = 1024;  // beyond any machine of today; each costs a stack
constexpr int kDay = 86'400;       // seconds; the longest time that a flag takes

// "8192", "8k" (8000), "8K" (8192); 0 stands for auto.
std::string ParseLength(const std::string& text, uint32_t& out) {
  if (text == "auto" || text == "-1") return out = kAuto, std::string();
  size_t end = 0;
  unsigned long long value = 0;
  try {
    value = std::stoull(text, &end);
  } catch (const std::exception&) {
    return "'" + text + "' is not a number of tokens; write for example 8192, 8K or auto";
  }
  const std::string unit = text.substr(end);
  const unsigned long long scale = unit == "k" ? 1000 : unit == "K" ? 1024 : unit.empty() ? 1 : 0;
  if (scale == 0 || value == 0 || value > 0x7fffffffULL / scale || text[0] == '-') {
    return "'" + text + "' is not a number of tokens; write for example 8192, 8K or auto";
  }
  out = static_cast<uint32_t>(value * scale);
  return {};
}

// Checked here too, since --kv-cache-memory-bytes leaves it without effect.
const CLI::Validator kShare(
    [](const std::string& text) {
      char* end = nullptr;
      const double share = std::strtod(text.c_str(), &end);
      const bool fits = end != text.c_str() && *end == '\0' && share > 0 && share <= 1;
      return fits ? std::string() : "'" + text + "' is no share above 0 and up to 1, such as 0.9";
    },
    "");

// An option whose value is one of a few words.
template <typename Value>
void AddChoice(CLI::App& app, const std::string& flag, Value& value,
               const std::vector<std::pair<std::string, Value>>& words, const std::string& help) {
  app.add_option_function<std::string>(
         flag,
         [flag, &value, words](const std::string& text) {
           std::string known;
           for (const auto& [word, meaning] : words) {
             if (text == word) {
               value = meaning;
               return;
             }
             known += (known.empty() ? "" : ", ") + word;
           }
           throw CLI::ValidationError(flag, "'" + text + "' is unknown; use one of " + known);
         },
         help)
      ->type_name("WORD");
}

size_t EditDistance(const std::string& a, const std::string& b) {
  std::vector<size_t> row(b.size() + 1);
  for (size_t j = 0; j <= b.size(); ++j) row[j] = j;
  for (size_t i = 1; i <= a.size(); ++i) {
    size_t diagonal = row[0];
    row[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t above = row[j];
      row[j] = std::min({row[j] + 1, row[j - 1] + 1, diagonal + (a[i - 1] == b[j - 1] ? 0 : 1)});
      diagonal = above;
    }
  }
  return row[b.size()];
}

// --api-key "$KEY" with KEY unset would open the server to everybody without a word.
const CLI::Validator kNotEmpty(
    [](const std::string& value) {
      return std::string(value.empty() ? "is empty; give a value, or leave the flag out" : "");
    },
    "");

}  // namespace

CLI::Option* AddScaleFile(CLI::App& app, std::string& path) {
  return app
      .add_option("--quantization-param-path", path,
                  "K and V scales of an fp8 cache, instead of the checkpoint's: a JSON file as "
                  "SGLang reads it, also with one scale for K and one for V in a layer")
      ->check(kNotEmpty)
      ->type_name("FILE");
}

void AddIntegrityOptions(CLI::App& app, EngineConfig& config) {
  AddChoice<KvIntegrity>(app, "--kv-integrity", config.kv_integrity,
                         {{"repair", KvIntegrity::kRepair},
                          {"abort", KvIntegrity::kAbort},
                          {"off", KvIntegrity::kOff}},
                         "what becomes of a request whose pages are not what it expects: repair "
                         "(default: computed again), abort, or off (no checks: to measure them)");
  app.add_option("--kv-integrity-unready-after", config.kv_integrity_unready_after,
                 "bad pages within a minute after which nothing is admitted; 0: never")
      ->capture_default_str();
  app.add_option("--kv-scrub-period", config.kv_scrub_seconds,
                 "seconds within which the bytes of all full pages are verified once; 0: never")
      ->check(CLI::Range(0.0, 1e9))
      ->capture_default_str();
  app.add_option("--fault-injection", config.fault_injection,
                 "for tests: KIND=CHANCE,...,seed=N; makes pages go wrong on purpose "
                 "(docs/integrity.md)")
      ->check([](const std::string& text) {
        const Result<FaultRates> rates = ParseFaultRates(text);
        return rates.ok() ? std::string() : rates.error().message;
      });
}

void AddKvCacheBytes(CLI::App& app, EngineConfig& config, const std::string& help) {
  app.add_option_function<std::string>(
         "--kv-cache-memory-bytes",
         [&config](const std::string& text) {
           const Result<Bytes> bytes = ParseBytes(text);
           if (!bytes.ok())
             throw CLI::ValidationError("--kv-cache-memory-bytes", bytes.error().message);
           config.kv_cache_memory_bytes = *bytes;
         },
         help)
      ->type_name("SIZE");
}

void AddKvMemoryOptions(CLI::App& app, EngineConfig& config) {
  AddKvCacheBytes(app, config,
                  "size of the KV cache's pages, such as 1GiB; overrides --gpu-memory-utilization");
  app.add_option_function<std::string>(
         "--max-model-len",
         [&config](const std::string& text) {
           uint32_t length = 0;
           if (const std::string error = ParseLength(text, length); !error.empty()) {
             throw CLI::ValidationError("--max-model-len", error);
           }
           config.max_model_len = length == kAuto ? std::nullopt : std::optional(length);
         },
         "longest prompt and answer together; auto (default): the model's, shrunk to what fits")
      ->type_name("TOKENS");
  app.add_option("--block-size", config.block_size, "tokens per KV page: 8, 16, 32, 64 or 128")
      ->capture_default_str();
}

void AddComputeOptions(CLI::App& app, EngineConfig& config) {
  app.add_option("--activation-dtype", config.activation_dtype,
                 "auto (bfloat16 where the CPU multiplies it), float32, bfloat16, or int8: faster "
                 "products with quantized weights, at about the cost in quality of an fp8 cache")
      ->capture_default_str();
  app.add_option("--threads", config.num_threads, "0: all CPUs this process may use")
      ->check(CLI::Range(0, kMaxThreads))
      ->capture_default_str();
}

void AddModel(CLI::App& app, std::string& model) {
  app.add_option("MODEL", model, "a .gguf file or a Hugging Face checkpoint directory")->required();
}

std::string NearestWord(const std::vector<std::string>& words, const std::string& misspelt) {
  std::string best;
  size_t distance = misspelt.size() / 2 + 1;
  for (const std::string& word : words) {
    const size_t d = EditDistance(misspelt, word);
    if (d < distance) distance = d, best = word;
  }
  return best;
}

namespace {

void AddSwapOptions(CLI::App& app, EngineConfig& config) {
  app.add_option_function<std::string>(
         "--swap-space",
         [&config](const std::string& text) {
           // A number alone is GiB, as in vLLM.
           const bool number = text.find_first_not_of("0123456789.") == std::string::npos;
           const Result<Bytes> bytes = ParseBytes(number ? text + "GiB" : text);
           if (!bytes.ok()) throw CLI::ValidationError("--swap-space", bytes.error().message);
           config.swap_space = *bytes;
         },
         "GiB for pages of preempted requests, inside the memory budget; 0: none (default: 4, or a "
         "fifth of the budget if that is less)")
      ->type_name("GIB");
  app.add_option("--swap-dir", config.swap_dir,
                 "folder for those pages, in files without names, instead of memory");
  AddChoice<PreemptionMode>(app, "--preemption-mode", config.preemption_mode,
                            {{"auto", PreemptionMode::kAuto},
                             {"swap", PreemptionMode::kSwap},
                             {"recompute", PreemptionMode::kRecompute}},
                            "how a preempted request comes back: swap, recompute, or auto "
                            "(default): whichever is measured to be faster");
}

void AddEngineOptions(CLI::App& app, EngineConfig& config) {
  AddKvEncodingFlags(app, config);
  AddScaleFile(app, config.quantization_param_path);
  app.add_option("--gpu-memory-utilization,--device-memory-utilization",
                 config.gpu_memory_utilization,
                 "share of the machine's memory for weights, buffers and KV cache together: "
                 "0.90-0.95 for a machine of "
                 "its own, 0.60-0.80 when shared")
      ->check(kShare)
      ->capture_default_str();
  AddKvMemoryOptions(app, config);
  app.add_flag(
      "--enable-prefix-caching,!--no-enable-prefix-caching", config.enable_prefix_caching,
      "keep pages of prompts and answers, and share them among requests of one API key and "
      "cache_salt that begin alike (default: on)");
  AddIntegrityOptions(app, config);
  AddSwapOptions(app, config);
  app.add_option("--max-num-seqs", config.max_num_seqs, "choices that may run at once")
      ->check(CLI::Range(1, 65536))
      ->capture_default_str();
  app.add_option("--max-num-batched-tokens", config.max_num_batched_tokens,
                 "tokens computed in one step")
      ->check(CLI::Range(1, 1 << 20))
      ->capture_default_str();
  app.add_option("--long-prefill-token-threshold", config.max_prefill_chunk,
                 "longest chunk of one prompt in a step; 0: only the step's budget bounds it")
      ->capture_default_str();
  app.add_option_function<std::string>(
         "--scheduling-policy",
         [&config](const std::string& name) {
           if (name != "fcfs" && name != "priority") {
             throw CLI::ValidationError("--scheduling-policy",
                                        "'" + name + "' is unknown; use fcfs or priority");
           }
           config.scheduling_policy =
               name == "priority" ? SchedulingPolicy::kPriority : SchedulingPolicy::kFcfs;
         },
         "fcfs (default), or priority: a smaller number in the request goes first")
      ->type_name("POLICY");
  app.add_option(
      "--max-num-queued-reqs", config.max_num_queued_reqs,
      "choices that may wait; beyond, 503 (default: 4 x max-num-seqs). API keys with no more "
      "than an equal part of the queue may wait beyond it, up to twice as many");
  app.add_flag("--enable-fair-share,!--no-enable-fair-share", config.fair_share,
               "among waiting requests of one priority the API key that was served the fewest "
               "tokens goes first; off: in order of arrival (default: on)");
  app.add_option("--max-kv-share-per-key", config.max_kv_share_per_key,
                 "share of the KV cache that the running requests of one API key may hold, such as "
                 "0.5; default: all of it")
      ->check(kShare)
      ->type_name("SHARE");
  app.add_option("--max-logprobs", config.max_logprobs,
                 "most logprobs per token that a request may ask for")
      ->capture_default_str();
  app.add_option("--seed", config.seed, "of requests that bring none")->capture_default_str();
  app.add_option("--generation-config", config.generation_config,
                 "sampling where a request does not say: auto (the checkpoint's "
                 "generation_config.json) or vllm (none of it: the engine's defaults)")
      ->capture_default_str();
  AddComputeOptions(app, config);
  app.add_option("--device", config.backend, "cpu")->capture_default_str();
}

// Flags of vLLM that scripts carry along. Each is accepted and says what happens instead.
struct ForeignFlag {
  const char* name;
  bool takes_value;
  const char* what;
};
constexpr ForeignFlag kForeignFlags[] = {
    {"--calculate-kv-scales", false, "scales are dynamic already; no calibration is needed"},
    {"--enable-chunked-prefill", false, "prompts are always computed in chunks"},
    {"--no-enable-chunked-prefill", false,
     "prompts are always computed in chunks, with the same answer"},
    {"--dtype", true, "weights stay as the checkpoint has them; see --activation-dtype"},
    {"--enforce-eager", false, "there are no graphs to capture"},
    {"--trust-remote-code", false, "no code of a checkpoint is ever run"},
    {"--disable-log-requests", false, "requests are not logged"},
    {"--disable-log-stats", false, "statistics are on /metrics only"},
    {"--use-v2-block-manager", false, "there is one block manager"},
    {"--guided-decoding-backend", true, "structured output is not built yet"},
    {"--uvicorn-log-level", true, "use MASU_LOG_LEVEL"},
    {"--disable-uvicorn-access-log", false, "requests are not logged"},
};

void AddForeignFlags(CLI::App& app) {
  for (const ForeignFlag& flag : kForeignFlags) {
    const auto warn = [flag] { LogWarning("{} has no effect: {}", flag.name, flag.what); };
    if (flag.takes_value) {
      app.add_option_function<std::string>(
             flag.name, [warn](const std::string&) { warn(); }, flag.what)
          ->group("Accepted for vLLM's sake");
    } else {
      app.add_flag_callback(flag.name, warn, flag.what)->group("Accepted for vLLM's sake");
    }
  }
}

void AddServerOptions(CLI::App& app, ServerConfig& config) {
  app.add_option("--host", config.http.host, "address to listen on; 0.0.0.0 for all")
      ->capture_default_str();
  app.add_option("--port", config.http.port, "0: a free one")->capture_default_str();
  app.add_option("--api-key", config.api_keys,
                 "a key that clients must send (repeatable; or MASU_API_KEY)")
      ->check(kNotEmpty);
  app.add_option("--served-model-name", config.served_model_name,
                 "names of the model; the first is in responses")
      ->check(kNotEmpty);
  app.add_option_function<uint32_t>(
         "--sse-keep-alive-interval",
         [&config](uint32_t seconds) {
           config.sse_keep_alive_interval = std::chrono::seconds(seconds);
         },
         "seconds between comment lines in quiet streams; 0: none")
      ->check(CLI::Range(0, kDay))
      ->type_name("SECONDS");
  app.add_option_function<double>(
         "--request-timeout",
         [&config](double seconds) {
           config.request_timeout = std::chrono::milliseconds(std::llround(seconds * 1000));
         },
         "seconds from the arrival of a request to the end of its answer; what takes longer is "
         "ended with 504; a request may ask for less (deadline_ms); default: no limit")
      ->check(CLI::Range(0.001, double{kDay}))
      ->type_name("SECONDS");
  app.add_option_function<uint32_t>(
         "--shutdown-timeout",
         [&config](uint32_t seconds) {
           config.http.shutdown_timeout = std::chrono::seconds(seconds);
         },
         "seconds that running requests have to finish after SIGTERM or SIGINT, while new ones get "
         "503; a second signal ends them; 0 (default): they end at once, with an error")
      ->check(CLI::Range(0, kDay))
      ->type_name("SECONDS");
  app.add_option("--max-body-bytes", config.http.body_limit,
                 "largest request body; the plan of memory keeps room for seven times as much")
      ->check(CLI::Range(uint64_t{1}, uint64_t{1} << 40))
      ->capture_default_str();
  app.add_flag("--enable-debug-endpoints", config.debug_endpoints,
               "open GET /debug/kv: what the cache holds, and what the validators say");
  app.add_option_function<std::string>(
         "--metrics-prefix",
         [&config](const std::string& name) {
           if (name != "both" && name != "native" && name != "vllm") {
             throw CLI::ValidationError("--metrics-prefix",
                                        "'" + name + "' is unknown; use both, native or vllm");
           }
           config.metrics_prefix = name == "both"     ? MetricsPrefix::kBoth
                                   : name == "native" ? MetricsPrefix::kNative
                                                      : MetricsPrefix::kVllm;
         },
         "names of metrics: both (default), native (masu:) or vllm (vllm:)")
      ->type_name("PREFIX");
}

// What has a tokenizer, weights or not.
void AddTextModel(CLI::App& app, std::string& model) {
  app.add_option("MODEL", model,
                 "a .gguf file (a vocabulary is enough), a tokenizer.json or tokenizer.model, or a "
                 "directory that holds one")
      ->required();
}

void AddTemplateOptions(CLI::App& app, TemplateOptions& options) {
  app.add_option("MODEL", options.model,
                 "a .gguf file, a directory, or a .jinja file with a template")
      ->required();
  app.add_option("--input", options.input,
                 "JSON of an OpenAI chat request: messages, tools, chat_template_kwargs, "
                 "add_generation_prompt; - reads standard input")
      ->required();
  app.add_option("--name", options.name, "which template, of a model that has several");
  app.add_option("--bos-token", options.bos_token, "text of BOS, instead of the model's");
  app.add_option("--eos-token", options.eos_token, "text of EOS, instead of the model's");
}

void AddGenerateOptions(CLI::App& app, GenerateOptions& options) {
  AddModel(app, options.model);
  AddEngineOptions(app, options.engine);
  AddKvGuardFlag(app, options.kv_guard);
  app.add_option("--max-tokens", options.max_tokens,
                 fmt::format("longest answer; default: the checkpoint's generation_config.json, "
                             "else {}",
                             options.default_max_tokens));
  app.add_option("--temperature", options.temperature,
                 "0: the most likely token; default: the checkpoint's, else 0");
  app.add_option("--top-p", options.top_p,
                 "share of the likeliest tokens to draw from; default: the checkpoint's, else 1");
  app.add_option("--seed-of-request", options.seed, "same seed, same answer");
  app.add_option("--system", options.system, "system message");
}

void AddPlanOptions(CLI::App& app, PlanOptions& options) {
  app.add_option("MODEL", options.model,
                 "a config.json, the directory that has it, or a .gguf file")
      ->required();
  app.add_option("--device", options.device,
                 "h200, h100, a100-80, a100-40, b200, l40s, l4, rtx5090, rtx4090, rtx3090, or cpu: "
                 "this machine (default)");
  app.add_option("--memory", options.memory,
                 "what one device has, such as 141GB or 139.8GiB; overrides --device")
      ->type_name("SIZE");
  app.add_option("--tp,--tensor-parallel-size", options.ranks, "ranks that share the model")
      ->capture_default_str();
  app.add_option("--gpu-memory-utilization,--device-memory-utilization",
                 options.gpu_memory_utilization,
                 "share of the memory to plan with: 0.90-0.95 for a machine of its own, 0.60-0.80 "
                 "when shared")
      ->check(kShare)
      ->capture_default_str();
  app.add_option("--kv-cache-dtype", options.kv_cache_dtypes,
                 "all (default), auto, or a list such as bfloat16,fp8,int8,int8/int4")
      ->delimiter(',');
  AddSkipLayersFlag(app, options.kv_cache_dtype_skip_layers);
  app.add_option("--kv-scale", options.kv_scale, "auto, dynamic, unit or checkpoint")
      ->capture_default_str();
  app.add_option("--weights", options.weights,
                 "checkpoint (default), or a list of bf16, fp8, int8, int4-g32, int4-g64, "
                 "int4-g128, nvfp4, mxfp4, each also with -experts: routed experts only")
      ->delimiter(',');
  app.add_option_function<std::string>(
         "--context,--max-model-len",
         [&options](const std::string& text) {
           uint32_t length = 0;
           if (const std::string error = ParseLength(text, length); !error.empty()) {
             throw CLI::ValidationError("--context", error);
           }
           options.context = length == kAuto ? std::nullopt : std::optional(length);
         },
         "tokens of a request, prompt and answer; auto (default): the model's longest")
      ->type_name("TOKENS");
  app.add_option("--overhead", options.overhead,
                 "bytes a rank needs beside weights and KV pages; default: estimated")
      ->type_name("SIZE");
  app.add_option("--block-size", options.block_size, "tokens per KV page: 8, 16, 32, 64 or 128")
      ->capture_default_str();
  app.add_option("--max-num-batched-tokens", options.max_num_batched_tokens,
                 "tokens computed in one step, for the estimate of the overhead")
      ->check(CLI::Range(1, 1 << 20))
      ->capture_default_str();
  app.add_option("--max-num-seqs", options.max_num_seqs,
                 "rows sampled in one step, for the estimate of the overhead")
      ->check(CLI::Range(1, 65536))
      ->capture_default_str();
  app.add_option("--without", options.without,
                 "parts that are not loaded: vision-tower, mtp-layers, absorbed-copies")
      ->delimiter(',');
  app.add_option("--price-per-hour", options.price_per_hour, "of one device; shows costs")
      ->type_name("PRICE");
  app.add_option("--throughput", options.throughput,
                 "tokens per second of all ranks together, or a file with a JSON object a line: "
                 "{\"kv_cache_dtype\", \"weights\", \"concurrency\", \"tokens_per_second\"}")
      ->type_name("N|FILE");
  app.add_flag("--json", options.json, "print JSON");
}

// Among the app's flags and the commands under it; empty if none is near.
std::string NearestName(const CLI::App& app, const std::string& unknown) {
  std::vector<std::string> names;
  for (const CLI::Option* option : app.get_options()) {
    for (const std::string& name : option->get_lnames()) names.push_back("--" + name);
  }
  for (const CLI::App* command : app.get_subcommands([](const CLI::App*) { return true; })) {
    names.push_back(command->get_name());
  }
  return NearestWord(names, unknown);
}

// The innermost command that was named.
const CLI::App& CommandInUse(const CLI::App& app) {
  const std::vector<const CLI::App*> parsed =
      app.get_subcommands([](const CLI::App* command) { return command->parsed(); });
  return parsed.empty() ? app : CommandInUse(*parsed.front());
}

std::string FullName(const CLI::App& app) {
  return app.get_parent() == nullptr ? app.get_name()
                                     : FullName(*app.get_parent()) + " " + app.get_name();
}

// --kv_cache_dtype=fp8 -> --kv-cache-dtype=fp8
std::string WithDashes(std::string argument) {
  if (!argument.starts_with("--")) return argument;
  const size_t end = std::min(argument.find('='), argument.size());
  std::replace(argument.begin(), argument.begin() + static_cast<std::ptrdiff_t>(end), '_', '-');
  return argument;
}

}  // namespace

ParsedCommandLine ParseCommandLine(int argc, const char* const* argv) {
  const Environment environment = Environment::Read();
  CLI::App app("masu " MASU_VERSION ": LLM inference that packs more requests into the same memory",
               "masu");
  app.require_subcommand(1);
  app.fallthrough(false);

  ServeOptions serve;
  CLI::App* serve_app = app.add_subcommand("serve", "OpenAI-compatible server");
  AddModel(*serve_app, serve.model);
  AddServerOptions(*serve_app, serve.server);
  AddEngineOptions(*serve_app, serve.engine);
  AddKvGuardFlag(*serve_app, serve.kv_guard);
  AddKvServingFlags(*serve_app, serve.engine, serve.server, serve.kv_policy);
  AddForeignFlags(*serve_app);

  GenerateOptions generate;
  CLI::App* generate_app = app.add_subcommand("generate", "answer one prompt");
  AddGenerateOptions(*generate_app, generate);
  generate_app->add_option("-p,--prompt", generate.prompt, "the prompt; - reads standard input")
      ->required();
  generate_app->add_flag("--raw", generate.raw,
                         "continue the prompt as it is, without the chat template");

  ChatOptions chat;
  chat.default_max_tokens = 512;
  CLI::App* chat_app = app.add_subcommand("chat", "talk to a model in the terminal");
  AddGenerateOptions(*chat_app, chat);

  InfoOptions info;
  CLI::App* info_app =
      app.add_subcommand("info", "what a model file holds, or why a running server is slow");
  info_app->add_option("MODEL", info.model, "a .gguf file or a checkpoint directory");
  CLI::Option* kv_flag = info_app->add_flag(
      "--kv", info.kv, "show only where the scales of K and V come from, and what they are");
  AddScaleFile(*info_app, info.quantization_param_path)->needs(kv_flag);
  info_app->add_flag("--why", info.why,
                     "ask the server at --url why it is slow and why requests wait");
  info_app->add_option("--url", info.url, "of a running server")->capture_default_str();
  info_app->add_option("--api-key", info.api_key, "of that server (or MASU_API_KEY)");

  EvalOptions eval;
  eval.engine.generation_config = "vllm";  // nothing is drawn
  CLI::App* eval_app = app.add_subcommand("eval", "measure what a setting costs in quality");
  AddEvalOptions(*eval_app, eval);

  TokenizeOptions tokenize;
  CLI::App* tokenize_app =
      app.add_subcommand("tokenize", "standard input to token ids on one line");
  AddTextModel(*tokenize_app, tokenize.model);
  tokenize_app->add_flag("--pieces", tokenize.pieces,
                         "print the vocabulary's spelling, one token a line");
  tokenize_app->add_flag("--no-special", tokenize.no_special, "add no BOS or EOS");

  DetokenizeOptions detokenize;
  CLI::App* detokenize_app =
      app.add_subcommand("detokenize", "token ids on standard input to text");
  AddTextModel(*detokenize_app, detokenize.model);
  detokenize_app->add_flag("--no-special", detokenize.no_special, "leave control tokens out");

  TemplateOptions chat_template;
  CLI::App* template_app =
      app.add_subcommand("template", "print the prompt that a chat template makes of a request");
  AddTemplateOptions(*template_app, chat_template);

  PlanOptions plan;
  CLI::App* plan_app = app.add_subcommand(
      "plan", "what fits into a device's memory and what it costs, from a configuration alone");
  AddPlanOptions(*plan_app, plan);

  BenchOptions bench;
  CLI::App* bench_app = app.add_subcommand("bench", "measure speed, against this machine's limits");
  AddBenchCommands(*bench_app, environment, bench);

  CLI::App* version_app = app.add_subcommand("version", "print the version");

  std::vector<std::string> arguments;
  for (int i = argc - 1; i > 0; --i) {
    arguments.push_back(WithDashes(argv[i]));  // CLI11 takes them reversed
    // CLI11 would take the next argument for the value.
    if (arguments.back().starts_with("--") && arguments.back().ends_with('=')) {
      std::cerr << "masu: " << arguments.back() << " has no value after the '='\n";
      return {std::nullopt, 2};
    }
  }
  try {
    app.parse(std::move(arguments));
  } catch (const CLI::CallForHelp&) {
    std::cout << CommandInUse(app).help();
    return {std::nullopt, 0};
  } catch (const CLI::ParseError& error) {
    std::string message = error.what();
    const CLI::App& used = CommandInUse(app);
    // Also where something is missing: `masu serv` lacks a command because that one is misspelt.
    if (const std::vector<std::string> unknown = used.remaining(); !unknown.empty()) {
      const std::string first = unknown.front().substr(0, unknown.front().find('='));
      message = "unknown argument '" + first + "'";
      const std::string nearest = NearestName(used, first);
      if (!nearest.empty()) message += "; did you mean " + nearest + "?";
    }
    constexpr std::string_view kTwice = ": At Most 1 required but received ";
    if (const size_t at = message.find(kTwice); at != std::string::npos) {
      message.replace(at, kTwice.size(), " may be given once; the number of times here is ");
    }
    std::replace(message.begin(), message.end(), '\n', ' ');
    std::cerr << "masu: " << message << " (see " << FullName(used) << " --help)\n";
    return {std::nullopt, 2};
  }

  for (EngineConfig* config : {&serve.engine, &generate.engine, &chat.engine, &eval.engine})
    config->isa = environment.isa;
  if (environment.api_key) {
    serve.server.api_keys.push_back(*environment.api_key);
    if (info.api_key.empty()) info.api_key = *environment.api_key;
  }
  if (*serve_app) return {serve, 0};
  if (*generate_app) return {generate, 0};
  if (*chat_app) return {chat, 0};
  if (*info_app) return {info, 0};
  if (*eval_app) return {eval, 0};
  if (*tokenize_app) return {tokenize, 0};
  if (*detokenize_app) return {detokenize, 0};
  if (*template_app) return {chat_template, 0};
  if (*plan_app) return {plan, 0};
  if (*bench_app) return {bench, 0};
  if (*version_app) return {VersionOptions{}, 0};
  return {std::nullopt, 2};
}

}  // namespace masu
