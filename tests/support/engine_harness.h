// Engines on tiny models for tests: a model in a temporary file, an engine that the test steps
// itself, and sinks that keep everything they are told. Header only: it needs the engine, which the
// test support library does not link.
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <random>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/check.h"
#include "engine/engine.h"
#include "engine/engine_memory.h"
#include "engine/loaded_model.h"
#include "tests/support/sanitized.h"
#include "tests/support/tiny_models.h"
#include "tests/support/tiny_vocabulary.h"

namespace masu {

// A GGUF file in the temporary folder, removed at the end.
class TemporaryModel {
 public:
  explicit TemporaryModel(const ByteVector& bytes)
      : path_(testing::TempDir() + "masu-XXXXXX.gguf") {
    const int file = ::mkstemps(path_.data(), 5);
    MASU_CHECK(file >= 0);
    ::close(file);
    const Result<void> written = WriteFile(path_, bytes);
    MASU_CHECK(written.ok());
  }
  ~TemporaryModel() { ::unlink(path_.c_str()); }
  TemporaryModel(const TemporaryModel&) = delete;
  TemporaryModel& operator=(const TemporaryModel&) = delete;
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

// What became of one choice.
struct Answer {
  std::vector<TokenOutput> tokens;
  std::vector<TokenOutput> prompt_logprobs;
  std::optional<FinishReason> finish;
  std::optional<TokenId> stop_token;
  std::string error;
  uint32_t cached_tokens = 0;  // not compared: an answer must not depend on it

  std::vector<TokenId> ids() const {
    std::vector<TokenId> ids;
    for (const TokenOutput& output : tokens) ids.push_back(output.token);
    return ids;
  }
};

// Bits, not values: -0 and 0 differ, a NaN equals itself.
inline bool SameBits(float a, float b) {
  return std::bit_cast<uint32_t>(a) == std::bit_cast<uint32_t>(b);
}
inline bool SameBits(const TokenOutput& a, const TokenOutput& b) {
  if (a.token != b.token || !SameBits(a.logprob, b.logprob) || a.rank != b.rank) return false;
  return std::equal(a.top.begin(), a.top.end(), b.top.begin(), b.top.end(),
                    [](const TokenLogprob& x, const TokenLogprob& y) {
                      return x.token == y.token && SameBits(x.logprob, y.logprob);
                    });
}
inline std::string Difference(const char* what, const std::vector<TokenOutput>& a,
                              const std::vector<TokenOutput>& b) {
  for (size_t i = 0; i < std::min(a.size(), b.size()); ++i) {
    if (SameBits(a[i], b[i])) continue;
    return fmt::format(
        "{} {}: token {} logprob {:.9g} rank {}, not token {} logprob {:.9g} rank {}", what, i,
        a[i].token, a[i].logprob, a[i].rank, b[i].token, b[i].logprob, b[i].rank);
  }
  return a.size() == b.size() ? "" : fmt::format("{} {}s, not {}", a.size(), what, b.size());
}
// The first difference between an answer and what it should be, bit for bit; empty if none.
inline std::string Difference(const Answer& answer, const Answer& expected) {
  std::string text = Difference("token", answer.tokens, expected.tokens);
  if (text.empty()) {
    text = Difference("prompt logprob", answer.prompt_logprobs, expected.prompt_logprobs);
  }
  if (!text.empty()) return text;
  if (answer.finish != expected.finish) return "finish reasons differ";
  if (answer.stop_token != expected.stop_token) return "stop tokens differ";
  return answer.error == expected.error ? "" : "errors differ: " + answer.error;
}

// Keeps the updates of a request and what is wrong with their order. Thread-safe.
class RecordingSink final : public OutputSink {
 public:
  using Hook = std::function<void(RequestId, const ChoiceUpdate&)>;
  explicit RecordingSink(uint32_t choices, Hook hook = {})
      : answers_(choices), hook_(std::move(hook)) {}

  void OnUpdate(RequestId id, ChoiceUpdate update) override {
    Record(update);
    if (hook_) hook_(id, update);
  }

  Answer answer(uint32_t choice = 0) const {
    std::lock_guard lock(mutex_);
    return answers_.at(choice);
  }
  bool finished() const {
    std::lock_guard lock(mutex_);
    return std::all_of(answers_.begin(), answers_.end(),
                       [](const Answer& answer) { return answer.finish.has_value(); });
  }
  uint32_t updates() const {
    std::lock_guard lock(mutex_);
    return updates_;
  }
  // Faults of the protocol in request.h; empty if there was none.
  std::string faults() const {
    std::lock_guard lock(mutex_);
    return faults_;
  }

 private:
  void Record(const ChoiceUpdate& update) {
    std::lock_guard lock(mutex_);
    ++updates_;
    if (update.choice >= answers_.size()) {
      faults_ += fmt::format("update of choice {}; ", update.choice);
      return;
    }
    Answer& answer = answers_[update.choice];
    if (answer.finish) faults_ += fmt::format("update of choice {} after its end; ", update.choice);
    if (!update.prompt_logprobs.empty()) {
      if (!answer.prompt_logprobs.empty()) faults_ += "prompt logprobs twice; ";
      if (!answer.tokens.empty()) faults_ += "prompt logprobs after a token; ";
      answer.prompt_logprobs = update.prompt_logprobs;
    }
    if (answer.tokens.empty()) {
      answer.cached_tokens = update.cached_tokens;
    } else if (update.cached_tokens != 0) {
      faults_ += "cached tokens after the first token; ";
    }
    answer.tokens.insert(answer.tokens.end(), update.tokens.begin(), update.tokens.end());
    answer.finish = update.finish;
    answer.stop_token = update.stop_token;
    answer.error = update.error;
    if (!update.error.empty() && update.finish != FinishReason::kError) {
      faults_ += "an error text without kError; ";
    }
  }

  mutable std::mutex mutex_;
  std::vector<Answer> answers_;
  uint32_t updates_ = 0;
  std::string faults_;
  Hook hook_;
};

// A request that was submitted.
struct Ticket {
  RequestId id;
  std::shared_ptr<RecordingSink> sink;
  Answer answer(uint32_t choice = 0) const { return sink->answer(choice); }
  bool finished() const { return sink->finished(); }
};

// Settings that do not depend on this machine: one thread, a small arena.
inline EngineConfig TinyConfig() {
  EngineConfig config;
  config.kv_cache_memory_bytes = MiB(4);
  config.num_threads = 1;
  config.max_num_seqs = 64;
  config.max_num_queued_reqs = 1000;
  config.preemption_mode = PreemptionMode::kRecompute;  // what auto would pick depends on clocks
  return config;
}

class EngineRig {
 public:
  // `pages`: the arena holds exactly so many, instead of kv_cache_memory_bytes.
  EngineRig(const TemporaryModel& file, EngineConfig config,
            std::optional<uint64_t> pages = std::nullopt) {
    model_ = LoadedModel::Load(file.path(), config, [](double, const std::string&) {}).value();
    if (pages) {
      const KvLayouts kv = ConfiguredLayouts(model_->config, config).value();
      const KvPageLayout& layout = kv.layouts[kv.choices[0].groups[0].value()];
      config.kv_cache_memory_bytes = Bytes{layout.page_bytes * *pages};
      engine_ = std::move(Engine::Create(model_, config)).value();
      // Pages of several sizes leave a slab's end unused.
      MASU_CHECK_LE(engine_->cache_info().pages, *pages);
      if (kv.layouts.size() == 1) MASU_CHECK_EQ(engine_->cache_info().pages, *pages);
      return;
    }
    engine_ = std::move(Engine::Create(model_, config)).value();
  }

  Engine& engine() { return *engine_; }
  Engine* operator->() { return engine_.get(); }
  const LoadedModel& model() const { return *model_; }
  EngineStats stats() const { return engine_->Stats(); }

  Result<Ticket> TrySubmit(Request request, RecordingSink::Hook hook = {}) {
    auto sink = std::make_shared<RecordingSink>(request.sampling.n, std::move(hook));
    request.sink = sink;
    MASU_ASSIGN_OR_RETURN(const RequestId id, engine_->Submit(std::move(request)));
    return Ticket{id, sink};
  }
  Ticket Submit(Request request, RecordingSink::Hook hook = {}) {
    return TrySubmit(std::move(request), std::move(hook)).value();
  }
  std::vector<Ticket> SubmitAll(const std::vector<Request>& requests) {
    std::vector<Ticket> tickets;
    for (const Request& request : requests) tickets.push_back(Submit(request));
    return tickets;
  }

  // One step, with the most that was ever resident at once noted.
  bool Step() {
    const bool worked = engine_->Step();
    const EngineStats now = engine_->Stats();
    most_running_ = std::max(most_running_, now.requests_running);
    most_usage_ = std::max(most_usage_, now.kv_cache_usage);
    return worked;
  }
  // Steps until there is nothing to do. False if that takes more than `limit` steps.
  bool Drain(uint64_t limit = 200000) {
    for (uint64_t i = 0; i < limit; ++i) {
      if (!Step()) return true;
    }
    return false;
  }
  // Submits, runs to the end, and returns the answers of all choices of all requests in order.
  std::vector<Answer> Run(const std::vector<Request>& requests) {
    const std::vector<Ticket> tickets = SubmitAll(requests);
    EXPECT_TRUE(Drain());
    std::vector<Answer> answers;
    for (size_t i = 0; i < tickets.size(); ++i) {
      EXPECT_TRUE(tickets[i].finished()) << "request " << i;
      EXPECT_EQ(tickets[i].sink->faults(), "") << "request " << i;
      for (uint32_t choice = 0; choice < requests[i].sampling.n; ++choice) {
        answers.push_back(tickets[i].answer(choice));
      }
    }
    return answers;
  }
  // One after another, so that each runs alone.
  std::vector<Answer> RunAlone(const std::vector<Request>& requests) {
    std::vector<Answer> answers;
    for (const Request& request : requests) {
      for (Answer& answer : Run({request})) answers.push_back(std::move(answer));
    }
    return answers;
  }
  uint64_t most_running() const { return most_running_; }
  double most_usage() const { return most_usage_; }

  // After the end of all requests nothing may be left.
  void ExpectIdle() {
    const EngineStats s = stats();
    EXPECT_EQ(s.requests_running, 0u);
    EXPECT_EQ(s.requests_waiting, 0u);
    EXPECT_EQ(s.kv_pages_used, 0u);
    EXPECT_EQ(s.kv_cache_usage, 0.0);
    EXPECT_EQ(s.step_checks.mismatch, 0u);
    EXPECT_EQ(s.requests_received, s.requests_finished + s.requests_aborted + s.requests_failed);
  }

 private:
  std::shared_ptr<LoadedModel> model_;
  std::unique_ptr<Engine> engine_;
  uint64_t most_running_ = 0;
  double most_usage_ = 0;
};

// Tokens of ordinary text, by a generator that is the same everywhere.
inline std::vector<TokenId> RandomPrompt(size_t length, uint32_t seed, uint32_t vocab) {
  std::mt19937 random(seed);
  const uint32_t first = static_cast<uint32_t>(kTinyFirstByte);
  std::vector<TokenId> prompt(length);
  for (TokenId& token : prompt) {
    token = static_cast<TokenId>(first + random() % (vocab - first));
  }
  return prompt;
}

inline Request GreedyRequest(std::vector<TokenId> prompt, uint32_t max_tokens) {
  Request request;
  request.prompt = std::move(prompt);
  request.sampling.temperature = 0;
  request.sampling.max_tokens = max_tokens;
  request.sampling.ignore_eos = true;
  return request;
}
inline Request SeededRequest(std::vector<TokenId> prompt, uint32_t max_tokens, uint64_t seed) {
  Request request = GreedyRequest(std::move(prompt), max_tokens);
  request.sampling.temperature = 1;
  request.sampling.seed = seed;
  return request;
}

// The KV encodings of design.md, each with its scale mode.
struct KvCase {
  const char* dtype;
  const char* scale;
  std::string name() const {
    std::string name = std::string(dtype) + "_" + scale;
    std::ranges::replace(name, '/', '_');
    return name;
  }
  // The first page of a request is wider than the others. How many tokens are in it matters.
  bool has_wide_first_page() const { return std::string_view(dtype).ends_with("int4"); }
  // An arena of so many pages, with room for the first ones where those are of another size.
  uint64_t Room(uint64_t pages) const { return has_wide_first_page() ? 2 * pages : pages; }
};
inline constexpr KvCase kKvChoices[] = {
    {"float32", "auto"}, {"bfloat16", "auto"},  {"float16", "auto"},
    {"fp8", "dynamic"},  {"fp8", "unit"},       {"fp8_e5m2", "auto"},
    {"int8", "auto"},    {"int8/int4", "auto"}, {"int4", "auto"}};
// The engine takes the same paths for each of them. A sanitized run takes one without scales and
// one whose first pages are of another layout; the kernels that differ are in the backend's tests.
inline std::vector<KvCase> KvChoicesToRun() {
  if (kSanitized) return {{"bfloat16", "auto"}, {"int4", "auto"}};
  return {std::begin(kKvChoices), std::end(kKvChoices)};
}

// Overwrites values of a float32 tensor of a GGUF file in memory: [row * width + column].
inline void PokeFloats(ByteVector& gguf, const std::string& tensor,
                       const std::map<size_t, float>& values) {
  const auto file = GgufFile::Parse(gguf, "tiny").value();
  const GgufTensor* found = file->FindTensor(tensor);
  MASU_CHECK(found != nullptr && found->type == GgmlType::kF32);
  const auto start = static_cast<size_t>(found->data.data() - gguf.data());
  for (const auto& [index, value] : values) {
    MASU_CHECK(index < found->elements());
    std::memcpy(gguf.data() + start + index * sizeof(float), &value, sizeof(float));
  }
}

}  // namespace masu
