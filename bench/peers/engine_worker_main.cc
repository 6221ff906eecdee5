// masu's engine as bench/peers measures it, without a server: `masu_engine_worker OPTIONS`, started
// by workers/masu_worker.py, which speaks the protocol of all peers. OPTIONS is a JSON object
// (EngineWorker::Create reads it); then one object a line comes in on stdin and is answered on
// stdout:
//   {"prompts": [[ID, ...], ...], "tokens": N, "filled": BOOL}
//   {"first": SECONDS, "rest": SECONDS}                or {"error": TEXT}
// first: until each prompt has its first token; rest: from then until each has N. With `filled` the
// prompts are not computed but for their last token: their pages get random K and V.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <exception>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/stopwatch.h"
#include "bench/engine_arm.h"
#include "engine/engine.h"
#include "engine/loaded_model.h"

namespace masu {
namespace {

using Json = nlohmann::json;

// Counts the tokens of one request.
class CountingSink final : public OutputSink {
 public:
  void OnUpdate(RequestId /*id*/, ChoiceUpdate update) override {
    tokens += update.tokens.size();
    if (!update.finish) return;
    finished = true;
    error = update.error;
  }

  size_t tokens = 0;
  bool finished = false;
  std::string error;
};

class EngineWorker {
 public:
  struct Times {
    double first = 0;
    double rest = 0;
  };

  // Keys: model, kv, threads, cache_bytes, sequences, context, prefix_caching.
  static Result<std::unique_ptr<EngineWorker>> Create(const Json& options);
  Result<Times> Run(const std::vector<std::vector<TokenId>>& prompts, uint32_t tokens, bool filled);
  const LoadedModel& model() const { return *model_; }

 private:
  explicit EngineWorker(std::shared_ptr<LoadedModel> model)
      : model_(std::move(model)), filler_(*model_->ops) {}

  std::shared_ptr<LoadedModel> model_;
  RandomPageFiller filler_;
  std::unique_ptr<Engine> engine_;
};

Result<std::unique_ptr<EngineWorker>> EngineWorker::Create(const Json& options) {
  EngineConfig config;
  config.kv_cache_dtype = options.at("kv");
  config.num_threads = options.at("threads");
  config.kv_cache_memory_bytes = Bytes{options.at("cache_bytes")};
  config.max_num_seqs = options.at("sequences");
  config.max_model_len = options.at("context").get<uint32_t>();
  config.enable_prefix_caching = options.at("prefix_caching");
  config.activation_dtype = options.value("activations", "auto");
  config.swap_space = Bytes{0};
  config.generation_config = "vllm";
  MASU_ASSIGN_OR_RETURN(
      std::shared_ptr<LoadedModel> model,
      LoadedModel::Load(options.at("model"), config, nullptr, /*needs_tokenizer=*/false));
  std::unique_ptr<EngineWorker> worker(new EngineWorker(std::move(model)));
  MASU_ASSIGN_OR_RETURN(worker->engine_, Engine::Create(worker->model_, config));
  return worker;
}

Result<EngineWorker::Times> EngineWorker::Run(const std::vector<std::vector<TokenId>>& prompts,
                                              uint32_t tokens, bool filled) {
  std::vector<std::shared_ptr<CountingSink>> sinks;
  engine_->SetPageFiller(filled ? &filler_ : nullptr);
  const auto start = std::chrono::steady_clock::now();
  for (const std::vector<TokenId>& prompt : prompts) {
    Request request;
    request.prompt = prompt;
    request.sampling.temperature = 0;
    request.sampling.max_tokens = tokens;
    request.sampling.ignore_eos = true;
    request.sink = sinks.emplace_back(std::make_shared<CountingSink>());
    if (auto submitted = engine_->Submit(std::move(request)); !submitted.ok()) {
      engine_->AbortAll();
      return submitted.error();
    }
  }
  Times times;
  for (bool is_busy = true; is_busy;) {
    is_busy = engine_->Step();
    const bool all_began =
        std::all_of(sinks.begin(), sinks.end(), [](const auto& sink) { return sink->tokens > 0; });
    if (all_began && times.first == 0) times.first = SecondsSince(start);
  }
  times.rest = SecondsSince(start) - times.first;
  for (const auto& sink : sinks) {
    if (!sink->finished || sink->tokens != tokens) {
      return MakeError(ErrorCode::kInternal, "{} tokens instead of {}{}{}", sink->tokens, tokens,
                       sink->error.empty() ? "" : ": ", sink->error);
    }
  }
  return times;
}

Json Answer(EngineWorker& worker, const Json& request) {
  const auto times = worker.Run(request.at("prompts"), request.at("tokens"), request.at("filled"));
  if (!times.ok()) return {{"error", times.error().message}};
  return {{"first", times->first}, {"rest", times->rest}};
}

int Serve(const char* options) {
  auto worker = EngineWorker::Create(Json::parse(options));
  if (!worker.ok()) {
    std::fprintf(stderr, "masu_engine_worker: %s\n", worker.error().message.c_str());
    return 1;
  }
  const LoadedModel& model = worker.value()->model();
  std::cout << Json{{"isa", model.isa}, {"activation_dtype", model.activation_dtype}} << std::endl;
  for (std::string line; std::getline(std::cin, line);)
    std::cout << Answer(*worker.value(), Json::parse(line)) << std::endl;
  return 0;
}

}  // namespace
}  // namespace masu

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fprintf(stderr, "usage: masu_engine_worker OPTIONS; bench/peers/run.py starts it\n");
    return 2;
  }
  try {
    return masu::Serve(argv[1]);
  } catch (const std::exception& error) {  // of the JSON library
    std::fprintf(stderr, "masu_engine_worker: %s\n", error.what());
    return 1;
  }
}
