// The command line, parsed once into one struct per command.
#pragma once

#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "base/result.h"
#include "bench/engine_benchmark.h"
#include "bench/integrity_benchmark.h"
#include "bench/kernel_benchmark.h"
#include "bench/report.h"
#include "bench/serve_options.h"
#include "engine/engine_config.h"
#include "quality/eval_task.h"
#include "server/server_config.h"

namespace masu {

struct ServeOptions {
  std::string model;
  std::string kv_guard = "warn";
  EngineConfig engine;
  ServerConfig server;
  std::string kv_policy;  // a file; empty: none
};

struct GenerateOptions {
  std::string model;
  std::string kv_guard = "warn";
  EngineConfig engine;
  std::string prompt;  // "-": standard input
  std::string system;  // chat only
  uint32_t default_max_tokens = 128;
  // nullopt: as the checkpoint says, else default_max_tokens, the likeliest token, and all of them.
  std::optional<uint32_t> max_tokens;
  std::optional<float> temperature;
  std::optional<float> top_p;
  std::optional<uint64_t> seed;
  bool raw = false;  // generate: the prompt as it is, without chat template
};

struct ChatOptions : GenerateOptions {};

struct InfoOptions {
  std::string model;  // a file, or empty with --url
  bool kv = false;
  std::string quantization_param_path;
  bool why = false;
  std::string url = "http://127.0.0.1:8000";
  std::string api_key;
};

// Names beside those of EvalTaskNames() and "kl".
inline constexpr const char* kRecommendedChecks = "kv";
inline constexpr const char* kAllChecks = "all";
struct EvalOptions {
  std::string model;
  EngineConfig engine;
  std::vector<std::string> checks;
  std::vector<std::string> encodings;  // "int8", "fp8", "fp8:unit"; empty: ComparedEncodings()
  std::string baseline = "bfloat16";
  EvalTaskOptions task = {.data_dir = "data/eval", .file = "", .limit = {}};
  std::string text;  // .jsonl with "context" (or "text") fields, or plain text; empty: built in
  uint32_t tokens = 4096;
  uint32_t window = 512;
  std::string json;  // a file; "-": standard output, instead of text; empty: none
  std::string html;  // a file; empty: none
};

struct TokenizeOptions {
  std::string model;
  bool pieces = false;
  bool no_special = false;
};
struct DetokenizeOptions {
  std::string model;
  bool no_special = false;
};
struct TemplateOptions {
  std::string model;  // or a .jinja file
  std::string input;  // a chat request; "-": standard input
  std::string name;   // of a model's several templates; empty: the default one
  std::optional<std::string> bos_token;
  std::optional<std::string> eos_token;
};
// Numbers that need the model or a table stay text here; cli/plan.cc reads them.
struct PlanOptions {
  std::string model;   // config.json, its directory, or a .gguf file
  std::string device;  // empty: what --memory says, or this machine
  std::string memory;
  uint32_t ranks = 1;
  double gpu_memory_utilization = 0.90;
  std::vector<std::string> kv_cache_dtypes;
  std::string kv_scale = "auto";
  std::string kv_cache_dtype_skip_layers;
  std::vector<std::string> weights;
  std::optional<uint32_t> context;
  std::string overhead;
  uint32_t block_size = 16;
  uint32_t max_num_batched_tokens = 2048;
  uint32_t max_num_seqs = 256;
  std::vector<std::string> without;
  std::optional<double> price_per_hour;
  std::string throughput;  // a number, or a file
  bool json = false;
};
// What each command of `masu bench` takes is in src/bench.
struct BenchOptions {
  std::variant<KernelBenchOptions, EngineBenchOptions, IntegrityBenchOptions, ServeBenchOptions,
               ReportBenchOptions>
      command;
  std::string json;  // a file; "-": standard output, instead of text; empty: none
};
struct VersionOptions {};

using Command = std::variant<ServeOptions, GenerateOptions, ChatOptions, InfoOptions, EvalOptions,
                             TokenizeOptions, DetokenizeOptions, TemplateOptions, PlanOptions,
                             BenchOptions, VersionOptions>;

struct ParsedCommandLine {
  std::optional<Command> command;  // none: what there was to say has been printed
  int exit_code = 0;
};

// `--a_b` is read as `--a-b`. Help goes to standard output, errors (an unknown flag with the
// nearest known one) to standard error with exit code 2.
ParsedCommandLine ParseCommandLine(int argc, const char* const* argv);

}  // namespace masu
