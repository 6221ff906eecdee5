#include "cli/options_bench_serve.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <limits>

#include "bench/serve_options.h"
#include "cli/options_eval.h"

namespace masu {
namespace {

constexpr uint32_t kMostTokens = 1u << 20;
constexpr uint32_t kMostPrompts = 10'000'000;
const std::vector<std::string> kLatencies = {"ttft", "tpot", "itl", "e2el"};

// "KEY<separator>VALUE" to its parts; an error names the flag and the form that it takes.
std::pair<std::string, std::string> SplitPair(const std::string& text, char separator,
                                              const char* flag, const char* example) {
  const size_t at = text.find(separator);
  if (at == 0 || at == std::string::npos || at + 1 == text.size()) {
    throw CLI::ValidationError(flag, "'" + text + "' is no pair; write for example " + example);
  }
  return {text.substr(0, at), text.substr(at + 1)};
}

double ParseNumber(const std::string& text, const char* flag) {
  char* end = nullptr;
  const double value = std::strtod(text.c_str(), &end);
  if (end == text.c_str() || *end != '\0' || !(value >= 0)) {
    throw CLI::ValidationError(flag, "'" + text + "' is no number of 0 or above");
  }
  return value;
}

CLI::Option* AddTokens(CLI::App& app, const char* flag, uint32_t& tokens, uint32_t least,
                       const char* help) {
  return app.add_option(flag, tokens, help)
      ->check(CLI::Range(least, kMostTokens))
      ->type_name("TOKENS")
      ->capture_default_str();
}

void AddServerFlags(CLI::App& app, ServeBenchOptions& options) {
  app.add_option("--base-url", options.base_url,
                 "of the server, such as http://10.0.0.2:8000; instead of --host and --port");
  app.add_option("--host", options.host, "name or address of the server")->capture_default_str();
  app.add_option("--port", options.port, "of the server")->capture_default_str();
  app.add_option("--endpoint", options.endpoint, "/v1/completions or /v1/chat/completions")
      ->check([](const std::string& path) {
        const bool fits = path.starts_with('/') && path.ends_with("completions") &&
                          path.find_first_of(" \r\n") == std::string::npos;
        return fits ? std::string()
                    : "'" + path + "' is unknown; use /v1/completions or /v1/chat/completions";
      })
      ->type_name("PATH")
      ->capture_default_str();
  app.add_option_function<std::string>(
         "--backend",
         [&options](const std::string& name) {
           if (name == "openai-chat") options.endpoint = "/v1/chat/completions";
         },
         "for scripts written for vLLM: openai or vllm (completions), or openai-chat")
      ->check(CLI::IsMember({"openai", "vllm", "openai-chat"}))
      ->type_name("WORD");
  app.add_option("--model", options.model, "default: the first one that the server lists")
      ->type_name("NAME");
  app.add_option("--api-key", options.api_key, "of the server (or OPENAI_API_KEY)")
      ->check([](const std::string& key) {
        return key.find_first_of("\r\n") == std::string::npos ? std::string()
                                                              : "a key has no line ends";
      })
      ->type_name("KEY");
}

void AddLoadFlags(CLI::App& app, ServeBenchOptions& options) {
  app.add_option("--num-prompts", options.num_prompts, "requests to send")
      ->check(CLI::Range(1u, kMostPrompts))
      ->capture_default_str();
  app.add_option_function<std::string>(
         "--request-rate",
         [&options](const std::string& text) {
           options.arrivals.request_rate = ParseNumber(text, "--request-rate");
           if (options.arrivals.request_rate == 0) {
             throw CLI::ValidationError("--request-rate", "must be above 0, or inf");
           }
         },
         "requests sent in a second; inf (default): all at once")
      ->type_name("N");
  CLI::Option* burstiness =
      app.add_option("--burstiness", options.arrivals.burstiness,
                     "shape of the gamma distribution of the time between requests; 1: a Poisson "
                     "process; below: bursts; above: more even")
          ->check(CLI::Range(1e-3, 1e6))
          ->capture_default_str();
  app.add_option_function<std::string>(
         "--arrival",
         [&options](const std::string& name) {
           if (name == "fixed") {
             options.arrivals.burstiness = std::numeric_limits<double>::infinity();
           }
         },
         "poisson (default; see --burstiness) or fixed: equal times between requests")
      ->check(CLI::IsMember({"poisson", "fixed"}))
      ->type_name("WORD")
      ->excludes(burstiness);
  app.add_option("--max-concurrency", options.max_concurrency,
                 "requests open at once; more wait in the client (default: no limit)")
      ->check(CLI::Range(1u, 1u << 20));
  app.add_option("--num-warmups", options.num_warmups, "requests before, which are not measured")
      ->check(CLI::Range(0u, kMostPrompts))
      ->capture_default_str();
  app.add_option("--seed", options.seed, "of prompts, lengths and arrivals")->capture_default_str();
  app.add_flag("--ignore-eos", options.ignore_eos,
               "answers do not end before their length; a field that OpenAI's own API lacks");
  app.add_option("--extra-body", options.extra_body,
                 "a JSON object whose members go into every request, such as '{\"temperature\": "
                 "0}'")
      ->type_name("JSON");
}

void AddDatasetFlags(CLI::App& app, ServeDatasetOptions& options) {
  app.add_option_function<std::string>(
         "--dataset-name",
         [&options](const std::string& name) {
           options.name = name == "sharegpt"            ? ServeDataset::kShareGpt
                          : name == "custom"            ? ServeDataset::kCustom
                          : name == "prefix_repetition" ? ServeDataset::kPrefixRepetition
                                                        : ServeDataset::kRandom;
         },
         "random (default): random token ids; prefix_repetition: random ones that share prefixes; "
         "sharegpt: --dataset-path, or without it random ids with lengths as there; custom: "
         "--dataset-path")
      ->check(CLI::IsMember({"random", "sharegpt", "custom", "prefix_repetition"}))
      ->type_name("WORD");
  app.add_option("--dataset-path", options.path,
                 "sharegpt: a JSON array of conversations; custom: a \"prompt\" (text or token "
                 "ids) and perhaps \"output_tokens\" a line")
      ->type_name("FILE");
  app.add_flag("--disable-shuffle{false}", options.shuffle,
               "take prompts in the order of the file");
  app.add_option("--tokenizer", options.tokenizer,
                 "a model or tokenizer file: counts tokens of text, and turns random ids into text "
                 "for chats")
      ->type_name("FILE");
  app.add_option("--random-vocab-size", options.vocab_size,
                 "random ids lie below it; a --tokenizer knows its own")
      ->check(CLI::Range(2u, 1u << 24))
      ->capture_default_str();
  AddTokens(app, "--random-input-len", options.random_input_len, 1, "random: of a prompt");
  AddTokens(app, "--random-output-len", options.random_output_len, 1, "random: of an answer");
  app.add_option("--random-range-ratio", options.random_range_ratio,
                 "random: lengths are drawn evenly from (1 - R) to (1 + R) of those")
      ->check(CLI::Range(0.0, 0.999))
      ->capture_default_str();
  AddTokens(app, "--random-prefix-len", options.random_prefix_len, 0,
            "random: before each prompt, the same for all");
  AddTokens(app, "--prefix-repetition-prefix-len", options.prefix_repetition_prefix_len, 0,
            "prefix_repetition: of a prefix");
  AddTokens(app, "--prefix-repetition-suffix-len", options.prefix_repetition_suffix_len, 1,
            "prefix_repetition: after it, different in each prompt");
  app.add_option("--prefix-repetition-num-prefixes", options.prefix_repetition_num_prefixes,
                 "prefix_repetition: how many there are")
      ->check(CLI::Range(1u, kMostPrompts))
      ->capture_default_str();
  AddTokens(app, "--prefix-repetition-output-len", options.prefix_repetition_output_len, 1,
            "prefix_repetition: of an answer");
  app.add_option("--sharegpt-output-len", options.sharegpt_output_len,
                 "sharegpt: of an answer, instead of the data's")
      ->check(CLI::Range(1u, kMostTokens))
      ->type_name("TOKENS");
  AddTokens(app, "--custom-output-len", options.custom_output_len, 1,
            "custom: of an answer whose line has no output_tokens");
}

void AddResultFlags(CLI::App& app, ServeBenchOptions& options) {
  app.add_option("--percentile-metrics", options.percentile_metrics,
                 "latencies to report: ttft, tpot, itl, e2el")
      ->delimiter(',')
      ->check(CLI::IsMember(kLatencies))
      ->type_name("NAMES")
      ->capture_default_str();
  app.add_option("--metric-percentiles", options.metric_percentiles,
                 "percentiles of them, such as 50,99,99.9")
      ->delimiter(',')
      ->check(CLI::Range(0.0, 100.0))
      ->type_name("NUMBERS")
      ->capture_default_str();
  app.add_option_function<std::vector<std::string>>(
         "--goodput",
         [&options](const std::vector<std::string>& pairs) {
           for (const std::string& text : pairs) {
             const auto [name, limit] = SplitPair(text, ':', "--goodput", "ttft:500 e2el:2000");
             if (name != "ttft" && name != "tpot" && name != "e2el") {
               throw CLI::ValidationError("--goodput",
                                          "'" + name + "' is unknown; use ttft, tpot or e2el");
             }
             options.goodput.emplace_back(name, ParseNumber(limit, "--goodput"));
           }
         },
         "most ms of a request that counts as good, such as ttft:500 e2el:2000")
      ->type_name("NAME:MS");
  app.add_option("--label", options.label, "names this run in files and reports");
  app.add_option_function<std::vector<std::string>>(
         "--metadata",
         [&options](const std::vector<std::string>& pairs) {
           for (const std::string& text : pairs) {
             options.metadata.push_back(SplitPair(text, '=', "--metadata", "kv_cache_dtype=int8"));
           }
         },
         "keys and values for the result's JSON; kv_cache_dtype names an arm of masu bench report")
      ->type_name("KEY=VALUE");
  app.add_flag("--save-result", options.save_result,
               "write the JSON to a file named after label, rate, concurrency, model and time");
  app.add_flag("--save-detailed", options.save_detailed,
               "with times, lengths, text and error of each request");
  app.add_option("--result-dir", options.result_dir, "folder for that file")->type_name("DIR");
  app.add_option("--result-filename", options.result_filename, "another name for it")
      ->type_name("FILE");
}

}  // namespace

void AddServeBenchOptions(CLI::App& app, ServeBenchOptions& options) {
  AddServerFlags(app, options);
  AddLoadFlags(app, options);
  AddDatasetFlags(app, options.dataset);
  AddResultFlags(app, options);
}

}  // namespace masu
