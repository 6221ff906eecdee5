#include "cli/options_bench.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <memory>
#include <type_traits>
#include <utility>

#include "cli/options_bench_serve.h"
#include "cli/options_eval.h"

namespace masu {
namespace {

constexpr uint32_t kMostPairs = 1'000'000;

std::string Joined(const std::vector<std::string>& words) {
  std::string text;
  for (const std::string& word : words) text += (text.empty() ? "" : ", ") + word;
  return text;
}

// A command under `masu bench` whose options `add` adds; they are the ones meant if it is named.
template <typename Options, typename Add>
void AddCommand(CLI::App& bench, BenchOptions& options, const char* name, const char* help,
                const Add& add) {
  CLI::App* app = bench.add_subcommand(name, help);
  const auto own = std::make_shared<Options>();
  add(*app, *own);
  if constexpr (!std::is_same_v<Options, ReportBenchOptions>) {  // which measures nothing
    app->add_flag("--json{-}", options.json,
                  "print JSON instead of tables; --json=FILE: write it to a file beside them");
  }
  app->callback([own, &options] { options.command = std::move(*own); });
}

CLI::Option* AddNames(CLI::App& app, const char* flag, std::vector<std::string>& names,
                      const std::string& help) {
  return app.add_option(flag, names, help)
      ->delimiter(',')
      ->allow_extra_args(false)
      ->type_name("NAMES");
}

CLI::Option* AddNumbers(CLI::App& app, const char* flag, std::vector<uint32_t>& numbers,
                        uint32_t least, const std::string& help) {
  return app.add_option(flag, numbers, help)
      ->delimiter(',')
      ->allow_extra_args(false)
      ->check(CLI::Range(least, 1u << 20))
      ->type_name("NUMBERS")
      ->capture_default_str();
}

void AddKernelOptions(CLI::App& app, KernelBenchOptions& options) {
  AddNames(app, "--op", options.ops,
           "operations to measure: " + Joined(KernelNames()) + "; default: all")
      ->check(CLI::IsMember(KernelNames()));
  AddNames(app, "--format", options.formats,
           "linear: formats of the weights, such as f32, f16, bf16, q8_0, q4_0, q4_1, q5_0, q5_1, "
           "q4_k, q5_k, q6_k")
      ->capture_default_str();
  AddNames(app, "--kv", options.kv,
           "attention, kv_write: encodings of K and V, as --kv-cache-dtype has them")
      ->capture_default_str();
  AddNames(app, "--isa", options.isas,
           "instruction sets: scalar, avx2, avx512, avx512vbmi, avx512bf16, amx; default: all that "
           "this CPU has but scalar, which takes minutes");
  AddNames(app, "--shape", options.shapes,
           "sizes of the layers that operations are part of: smollm2, 1b, 8b, or "
           "HIDDEN/FFN/HEADS/KV_HEADS/HEAD_DIM such as 2048/8192/32/8/64")
      ->capture_default_str();
  AddNumbers(app, "--rows", options.rows, 1,
             "tokens of a step. attention: up to 64 are so many requests that decode, from 64 on "
             "they are a chunk of one prompt");
  app.add_option("--context", options.context, "attention: tokens in the cache of each request")
      ->check(CLI::Range(1u, 1u << 20))
      ->capture_default_str();
  app.add_option("--block-size", options.block_size, "tokens per KV page: 8, 16, 32, 64 or 128")
      ->capture_default_str();
  app.add_option("--activation-dtype", options.activation_dtype,
                 "auto (bfloat16 where the CPU multiplies it), float32, bfloat16, or int8: of "
                 "products with weights in block formats")
      ->capture_default_str();
  app.add_option("--threads", options.num_threads, "0: all CPUs this process may use")
      ->check(CLI::Range(0, 1024))
      ->capture_default_str();
  app.add_option("--seconds", options.seconds_per_case,
                 "for each case, after it was set up; three samples are taken at least")
      ->check(CLI::Range(0.0, 3600.0))
      ->capture_default_str();
}

void AddModelSettings(CLI::App& app, const std::optional<std::string>& isa, EngineConfig& config) {
  AddComputeOptions(app, config);
  config.isa = isa;
}

void AddEngineBenchOptions(CLI::App& app, const std::optional<std::string>& isa,
                           EngineBenchOptions& options) {
  app.add_option(
         "MODEL", options.models,
         "a .gguf file or a Hugging Face checkpoint directory; of several, each is compared "
         "with the first (weight formats of one model, for instance)")
      ->required();
  AddNames(app, "--kv-cache-dtype", options.encodings,
           "encodings to compare, as masu serve has them; the first is the baseline")
      ->capture_default_str();
  AddNumbers(app, "--concurrency", options.concurrencies, 1, "requests that decode at once");
  AddNumbers(app, "--context", options.contexts, 1, "tokens in the cache of each as they begin");
  AddNumbers(app, "--block-size", options.block_sizes, 1, "tokens per KV page");
  AddNumbers(app, "--queue", options.queues, 0,
             "requests that wait while steps are timed; of several, each is compared with the "
             "first");
  app.add_option("--pairs", options.pairs, "decode steps of each arm in each cell")
      ->check(CLI::Range(3u, kMostPairs))
      ->capture_default_str();
  app.add_option("--prefill-pairs", options.prefill_pairs,
                 "prompts that each arm computes alone, for each context and block size; 0: none")
      ->check(CLI::Range(0u, kMostPairs))
      ->capture_default_str();
  app.add_option_function<std::string>(
         "--fill",
         [&options](const std::string& name) {
           const auto place = std::ranges::find(kContextFillNames, name);
           options.fill = static_cast<ContextFill>(place - std::begin(kContextFillNames));
         },
         "how contexts come into the cache: random (default: random K and V in pages of their "
         "own; only the last request computes its prompt), prefill (every prompt is computed) or "
         "shared (one prompt for all, computed once)")
      ->check(CLI::IsMember(
          std::vector<std::string>(std::begin(kContextFillNames), std::end(kContextFillNames))))
      ->type_name("WORD");
  app.add_option("--trace", options.trace,
                 "write a Chrome trace (chrome://tracing, Perfetto) of some steps of each arm")
      ->type_name("FILE");
  AddModelSettings(app, isa, options.engine);
  AddKvCacheBytes(app, options.engine,
                  "pages of each arm, the same for all; requests that do not fit wait (default: "
                  "512MiB)");
  app.add_option("--max-num-batched-tokens", options.engine.max_num_batched_tokens,
                 "tokens computed in one step")
      ->check(CLI::Range(1, 1 << 20))
      ->capture_default_str();
}

void AddIntegrityBenchOptions(CLI::App& app, const std::optional<std::string>& isa,
                              IntegrityBenchOptions& options) {
  AddModel(app, options.model);
  AddModelSettings(app, isa, options.engine);
  app.add_option("--pairs", options.pairs,
                 "decode steps with checks and without, for each number of requests")
      ->check(CLI::Range(3u, kMostPairs))
      ->capture_default_str();
}

void AddReportBenchOptions(CLI::App& app, ReportBenchOptions& options) {
  app.add_option("FILE", options.files, "JSON that --json=FILE or --save-result wrote")->required();
  app.add_option("--out", options.out, "the HTML page to write")->type_name("FILE")->required();
  app.add_option(
         "--cost-per-hour", options.cost_per_hour,
         "price of the machine, in any currency: shows what a million tokens cost; default: "
         "costs relative to the baseline's")
      ->check(CLI::Range(0.0, 1e9))
      ->type_name("PRICE");
}

}  // namespace

void AddBenchCommands(CLI::App& app, const Environment& environment, BenchOptions& options) {
  const std::optional<std::string>& isa = environment.isa;
  app.require_subcommand(1);
  AddCommand<KernelBenchOptions>(app, options, "kernel",
                                 "each operation against the limits of this machine",
                                 [&](CLI::App& command, KernelBenchOptions& own) {
                                   if (isa) own.isas = {*isa};
                                   AddKernelOptions(command, own);
                                 });
  AddCommand<EngineBenchOptions>(app, options, "engine",
                                 "steps of the engine: encodings of the KV cache side by side",
                                 [&](CLI::App& command, EngineBenchOptions& own) {
                                   AddEngineBenchOptions(command, isa, own);
                                 });
  AddCommand<IntegrityBenchOptions>(app, options, "integrity", "what the checks of KV pages cost",
                                    [&](CLI::App& command, IntegrityBenchOptions& own) {
                                      AddIntegrityBenchOptions(command, isa, own);
                                    });
  AddCommand<ServeBenchOptions>(
      app, options, "serve", "a server under load: times of requests, at any rate or concurrency",
      [&](CLI::App& command, ServeBenchOptions& own) {
        own.api_key = environment.openai_api_key.value_or("");
        AddServeBenchOptions(command, own);
      });
  AddCommand<ReportBenchOptions>(app, options, "report",
                                 "a page with plots from the JSON of the other commands",
                                 AddReportBenchOptions);
}

}  // namespace masu
