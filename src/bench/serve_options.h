// What `masu bench serve` is asked to do. Flags have the names of `vllm bench serve` where that has
// them; docs/performance.md tells what differs.
#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace masu {

enum class ServeDataset { kRandom, kShareGpt, kCustom, kPrefixRepetition };

struct ServeDatasetOptions {
  ServeDataset name = ServeDataset::kRandom;
  std::string path = {};       // sharegpt: JSON, or empty for lengths alone; custom: JSONL
  std::string tokenizer = {};  // a model or tokenizer file; empty: lengths of text are estimated
  // Random ids lie below it. The default is below the vocabulary of Llama 2 (32,000), the smallest
  // of a model in wide use; --tokenizer brings the model's own.
  uint32_t vocab_size = 30'000;
  bool shuffle = true;

  // Tokens.
  uint32_t random_input_len = 1024;
  uint32_t random_output_len = 128;
  double random_range_ratio = 0;   // lengths are uniform in [len * (1 - r), len * (1 + r)]
  uint32_t random_prefix_len = 0;  // before the input, the same in all prompts
  uint32_t prefix_repetition_prefix_len = 256;
  uint32_t prefix_repetition_suffix_len = 256;
  uint32_t prefix_repetition_num_prefixes = 10;
  uint32_t prefix_repetition_output_len = 128;
  std::optional<uint32_t> sharegpt_output_len = {};  // instead of the data's
  uint32_t custom_output_len = 256;                  // where a line has no output_tokens
};

struct ArrivalOptions {
  // Requests per second; infinite: all at once.
  double request_rate = std::numeric_limits<double>::infinity();
  // Shape of the gamma distribution of intervals; 1: a Poisson process; below 1: bursts; infinite:
  // equal intervals.
  double burstiness = 1;
};

// Upper limits in ms that a request must keep to count as good; empty: goodput is not asked for.
using Goodput = std::vector<std::pair<std::string, double>>;  // "ttft", "tpot" or "e2el"

struct ServeBenchOptions {
  std::string base_url = {};  // such as http://10.0.0.2:8000; empty: of host and port
  std::string host = "127.0.0.1";
  uint16_t port = 8000;
  std::string endpoint = "/v1/completions";
  std::string model = {};    // empty: the first one of GET /v1/models
  std::string api_key = {};  // empty: none is sent

  uint32_t num_prompts = 1000;
  uint32_t num_warmups = 0;
  uint64_t seed = 0;
  ArrivalOptions arrivals = {};
  std::optional<uint32_t> max_concurrency = {};
  ServeDatasetOptions dataset = {};
  bool ignore_eos = false;
  std::string extra_body = {};  // a JSON object whose members go into every request; empty: none

  std::vector<std::string> percentile_metrics = {"ttft", "tpot", "itl", "e2el"};
  std::vector<double> metric_percentiles = {99};
  Goodput goodput = {};
  std::string label = {};  // names the arm in reports; empty: the API's name
  std::vector<std::pair<std::string, std::string>> metadata = {};
  bool save_result = false;          // to result_dir / result_filename
  bool save_detailed = false;        // with a value for each request
  std::string result_dir = {};       // made if it is not there
  std::string result_filename = {};  // empty: of label, rate, concurrency, model and time
};

}  // namespace masu
