// Stand-ins for the layers below the server: a chat template, and an engine that plays scripts on a
// thread of its own.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <functional>
#include <list>
#include <map>
#include <mutex>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>
#include <vector>

#include "base/check.h"
#include "engine/engine.h"
#include "server/served_model.h"
#include "tests/support/fake_tokenizer.h"

namespace masu {

// "role: content\n" per message, then "assistant: ".
class FakeTemplate : public ChatTemplate {
 public:
  Result<std::vector<TextSegment>> Render(const ChatTemplateInput& input) const override {
    std::vector<TextSegment> segments;
    for (const auto& message : *input.messages) {
      if (message["content"] == "raise") return InvalidArgument("line 3: raised by the template");
      segments.push_back({message["role"].get<std::string>() + ": ", true});
      const auto& content = message["content"];
      segments.push_back({content.is_string() ? content.get<std::string>() : "", false});
      segments.push_back({"\n", true});
    }
    if (input.add_generation_prompt) segments.push_back({"assistant: ", true});
    return segments;
  }
};

// Each step gives every running choice one token of its script; after its end the script begins
// anew. EOS and stop tokens end a choice as in the real engine.
class FakeEngine : public Engine {
 public:
  using Script = std::function<std::vector<TokenId>(const Request&, uint32_t choice)>;

  explicit FakeEngine(std::vector<TokenId> script, uint32_t max_model_len = 4096)
      : FakeEngine([script = std::move(script)](const Request&, uint32_t) { return script; },
                   max_model_len) {}
  explicit FakeEngine(Script script, uint32_t max_model_len = 4096) : script_(std::move(script)) {
    cache_.kv_cache_dtype = "fp8_e4m3";
    cache_.kv_scale = "dynamic";
    cache_.block_size = 16;
    cache_.pages = 256;
    cache_.max_model_len = max_model_len;
    cache_.max_request_len = max_model_len;
    for (const char* name : {"fp8_e4m3", "bfloat16"}) {
      cache_.choices.push_back({.name = name,
                                .kv_cache_dtype = name,
                                .kv_scale = std::string(name) == "bfloat16" ? "none" : "dynamic",
                                .bits = std::string(name) == "bfloat16" ? 16u : 8u,
                                .bytes_per_token = {},
                                .max_request_len = max_model_len});
    }
    thread_ = std::thread([this] { Loop(); });
  }
  ~FakeEngine() override {
    {
      std::lock_guard lock(mutex_);
      stopping_ = true;
    }
    wake_.notify_all();
    thread_.join();
  }

  std::atomic<int> step_microseconds = 0;
  std::atomic<int> tokens_per_update = 1;
  std::atomic<int> updates_per_step = 1;
  std::atomic<bool> paused = false;  // nothing comes out
  std::atomic<int> fail_after = -1;  // kError after so many tokens of a choice
  std::atomic<uint32_t> max_requests = 1u << 30;
  std::atomic<int> aborts = 0;  // calls that met a live request
  std::atomic<int> stopped_choices = 0;
  std::atomic<uint64_t> generated = 0;

  // What a choice says it read from the cache. Set before the first request.
  std::function<uint32_t(const Request&, uint32_t choice)> cached_tokens;

  void SetStepObserver(StepObserver*) override {}
  void SetPageFiller(PageFiller*) override {}
  void SetDriftObserver(std::shared_ptr<DriftObserver> observer) override {
    drift_observer = std::move(observer);
  }
  std::shared_ptr<DriftObserver> drift_observer;

  // To change before a server gets the engine.
  CacheInfo& mutable_cache_info() { return cache_; }
  EngineConfig& mutable_config() { return config_; }

  Request last_request() const {
    std::lock_guard lock(mutex_);
    return last_request_;
  }
  size_t live() const {
    std::lock_guard lock(mutex_);
    return running_.size();
  }

  Result<RequestId> Submit(Request request) override {
    if (request.sampling.top_p > 1) {
      return Error{ErrorCode::kInvalidArgument, "top_p must lie in (0, 1]", "top_p"};
    }
    std::lock_guard lock(mutex_);
    if (running_.size() >= max_requests) {
      Error error = MakeError(ErrorCode::kUnavailable, "the queue is full");
      error.retry_after = 7;
      return error;
    }
    const RequestId id(++last_id_);
    last_request_ = request;
    last_request_.sink.reset();
    Running running{.id = id, .request = std::move(request), .choices = {}};
    for (uint32_t i = 0; i < running.request.sampling.n; ++i) {
      running.choices.push_back({.script = script_(running.request, i)});
    }
    ++stats_.requests_received;
    running_.push_back(std::move(running));
    wake_.notify_all();
    return id;
  }
  void Abort(RequestId id) override {
    std::lock_guard lock(mutex_);
    for (Running& running : running_) {
      if (running.id == id) running.aborted = true;
    }
  }
  void StopChoice(RequestId id, uint32_t choice) override {
    std::lock_guard lock(mutex_);
    for (Running& running : running_) {
      if (running.id == id) running.choices.at(choice).stopped = true;
    }
    ++stopped_choices;
  }
  bool Step() override { return false; }
  void WaitForWork() override {}
  void Wake() override {}
  EngineStats Stats() const override {
    std::lock_guard lock(mutex_);
    EngineStats stats = stats_;
    stats.requests_running = running_.size();
    stats.generation_tokens = generated;
    return stats;
  }
  Result<KvReport> InspectKv() override {
    KvReport report;
    report.slabs = 3;
    report.violations = {"one"};
    return report;
  }
  const CacheInfo& cache_info() const override { return cache_; }
  const EngineConfig& config() const override { return config_; }
  const LoadedModel& model() const override {
    internal::CheckFailed(__FILE__, __LINE__, "the server does not need Engine::model");
  }
  void AbortAll() override {}
  std::string Explain() const override { return {}; }

 private:
  struct Choice {
    std::vector<TokenId> script;
    uint32_t count = 0;
    bool stopped = false;
    bool done = false;
  };
  struct Running {
    RequestId id;
    Request request;
    std::vector<Choice> choices;
    bool aborted = false;
    bool prompt_sent = false;
  };

  void Loop() {
    std::unique_lock lock(mutex_);
    while (!stopping_) {
      wake_.wait_for(lock, std::chrono::milliseconds(1),
                     [&] { return stopping_ || !running_.empty(); });
      for (auto it = running_.begin(); it != running_.end();) {
        for (int i = 0; i < updates_per_step; ++i) StepOne(*it);
        const bool done = std::all_of(it->choices.begin(), it->choices.end(),
                                      [](const Choice& choice) { return choice.done; });
        it = done ? running_.erase(it) : std::next(it);
      }
      lock.unlock();
      // At least one microsecond: who waits for the mutex must get it.
      std::this_thread::sleep_for(std::chrono::microseconds(std::max(1, step_microseconds.load())));
      lock.lock();
    }
    for (Running& running : running_) {
      running.aborted = true;
      StepOne(running);
    }
  }

  void StepOne(Running& running) {
    if (running.aborted) ++aborts;
    for (uint32_t i = 0; i < running.choices.size(); ++i) {
      Choice& choice = running.choices[i];
      if (choice.done) continue;
      ChoiceUpdate update;
      update.choice = i;
      if (choice.stopped) {
        choice.done = true;
        continue;
      }
      if (running.aborted) {
        update.finish = FinishReason::kAbort;
      } else if (running.request.deadline &&
                 std::chrono::steady_clock::now() > *running.request.deadline) {
        update.finish = FinishReason::kTimeout;
      } else if (paused) {
        continue;
      } else {
        Generate(running, choice, &update);
      }
      choice.done = update.finish.has_value();
      running.request.sink->OnUpdate(running.id, std::move(update));
    }
  }

  void Generate(Running& running, Choice& choice, ChoiceUpdate* update) {
    const SamplingParams& sampling = running.request.sampling;
    if (sampling.prompt_logprobs && choice.count == 0) {
      const auto& prompt = running.request.prompt;
      for (size_t i = 1; i < prompt.size(); ++i) {
        update->prompt_logprobs.push_back(Output(prompt[i], *sampling.prompt_logprobs));
      }
    }
    if (cached_tokens && choice.count == 0) {
      update->cached_tokens = cached_tokens(running.request, update->choice);
    }
    for (int k = 0; k < tokens_per_update && !update->finish; ++k) {
      if (fail_after >= 0 && choice.count >= static_cast<uint32_t>(fail_after)) {
        update->finish = FinishReason::kError;
        update->error = "scripted failure";
        return;
      }
      const TokenId token = choice.script[choice.count % choice.script.size()];
      ++choice.count;
      ++generated;
      update->tokens.push_back(Output(token, sampling.logprobs.value_or(0)));
      const auto& stops = sampling.stop_token_ids;
      const bool stop = std::find(stops.begin(), stops.end(), token) != stops.end();
      if (stop || (token == FakeTokenizer::kEos && !sampling.ignore_eos)) {
        update->finish = FinishReason::kStop;
        update->stop_token = token;
      } else if (choice.count >= sampling.max_tokens) {
        update->finish = FinishReason::kLength;
      }
    }
  }

  // -inf for odd tokens: what greedy masks give.
  static TokenOutput Output(TokenId token, uint32_t top) {
    TokenOutput output{.token = token, .logprob = -0.5f, .rank = 1, .top = {}};
    if (token % 2 == 1) output.logprob = -std::numeric_limits<float>::infinity();
    for (uint32_t i = 0; i < top; ++i) {
      output.top.push_back({static_cast<TokenId>((token + i) % 256),
                            i == 0 ? output.logprob : -std::numeric_limits<float>::infinity()});
    }
    return output;
  }

  Script script_;
  EngineConfig config_;
  CacheInfo cache_;
  mutable std::mutex mutex_;
  std::condition_variable wake_;
  std::list<Running> running_;
  uint64_t last_id_ = 0;
  Request last_request_;
  EngineStats stats_;
  bool stopping_ = false;
  std::thread thread_;
};

inline ServedModel FakeModel(
    std::shared_ptr<Engine> engine,
    std::shared_ptr<const Tokenizer> tokenizer = std::make_shared<FakeTokenizer>()) {
  ServedModel model;
  model.engine = std::move(engine);
  model.tokenizer = std::move(tokenizer);
  model.chat_template = std::make_shared<FakeTemplate>();
  model.root = "models/tiny.gguf";
  return model;
}

}  // namespace masu
