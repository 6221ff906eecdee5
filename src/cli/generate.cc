// `masu generate` and `masu chat`: the engine without HTTP.
#include <unistd.h>

#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <iostream>
#include <iterator>
#include <mutex>
#include <nlohmann/json.hpp>

#include "base/log.h"
#include "cli/commands.h"
#include "engine/engine.h"
#include "engine/engine_memory.h"
#include "engine/loaded_model.h"
#include "text/detokenizer.h"

namespace masu {
namespace {

using Json = nlohmann::ordered_json;

// Prints tokens as they come; `Wait` returns when the answer is complete.
class PrintingSink final : public OutputSink {
 public:
  PrintingSink(const Tokenizer& tokenizer, bool print)
      : detokenizer_(tokenizer, true), print_(print) {}

  void OnUpdate(RequestId, ChoiceUpdate update) override {
    const std::lock_guard lock(mutex_);
    for (const TokenOutput& token : update.tokens) {
      if (update.stop_token && token.token == *update.stop_token) continue;
      Print(detokenizer_.Push(token.token));
      ++tokens_;
    }
    if (!update.finish) return;
    Print(detokenizer_.Flush());
    error_ = update.error;
    done_ = true;
    finished_.notify_all();
  }

  void Wait() {
    std::unique_lock lock(mutex_);
    finished_.wait(lock, [this] { return done_; });
  }
  const std::string& text() const { return text_; }
  const std::string& error() const { return error_; }
  uint32_t tokens() const { return tokens_; }

 private:
  void Print(const std::string& piece) {
    text_ += piece;
    if (!print_) return;
    std::fputs(piece.c_str(), stdout);
    std::fflush(stdout);
  }

  std::mutex mutex_;
  std::condition_variable finished_;
  Detokenizer detokenizer_;
  bool print_;
  bool done_ = false;
  std::string text_;
  std::string error_;
  uint32_t tokens_ = 0;
};

struct Runtime {
  std::shared_ptr<LoadedModel> model;
  std::unique_ptr<Engine> engine;
  std::unique_ptr<EngineLoop> loop;
};

Result<Runtime> Start(const GenerateOptions& options) {
  Runtime runtime;
  EngineConfig config = options.engine;
  // One conversation needs one context, not the machine's memory.
  if (!config.kv_cache_memory_bytes) config.kv_cache_memory_bytes = MiB(512);
  config.max_num_seqs = 1;
  const bool is_terminal = isatty(STDERR_FILENO) == 1;
  MASU_ASSIGN_OR_RETURN(
      runtime.model,
      LoadedModel::Load(options.model, config,
                        is_terminal ? LoadedModel::Progress(ShowProgress) : LoadedModel::Progress(),
                        /*needs_tokenizer=*/true,
                        [is_terminal](const EngineMemory& memory) -> Result<void> {
                          // Elsewhere standard error is for errors.
                          if (is_terminal) std::fputs(FormatEngineMemory(memory).c_str(), stderr);
                          return {};
                        }));
  MASU_TRY(GuardKvCache(options.kv_guard, *runtime.model, config));
  MASU_ASSIGN_OR_RETURN(runtime.engine, Engine::Create(runtime.model, config));
  runtime.loop = std::make_unique<EngineLoop>(*runtime.engine);
  return runtime;
}

Result<std::vector<TokenId>> ChatPrompt(const LoadedModel& model, const Json& messages) {
  if (model.chat_template == nullptr) {
    return InvalidArgument("{}; use generate --raw", model.chat_template_error);
  }
  const Tokenizer& tokenizer = *model.tokenizer;
  ChatTemplateInput input = ChatInputFor(tokenizer);
  input.messages = &messages;
  MASU_ASSIGN_OR_RETURN(const std::vector<TextSegment> segments,
                        model.chat_template->Render(input));
  return tokenizer.EncodeSegments(segments, false);
}

Result<std::string> Answer(Runtime& runtime, std::vector<TokenId> prompt,
                           const GenerateOptions& options) {
  const uint64_t room = runtime.engine->cache_info().max_model_len;
  if (prompt.size() >= room) {
    return InvalidArgument(
        "the prompt has {} tokens and the context holds {}; shorten it or raise --max-model-len",
        prompt.size(), room);
  }
  Request request;
  const GenerationConfig& defaults = runtime.model->generation;
  request.sampling = SamplingDefaults(defaults);
  request.sampling.temperature = options.temperature.value_or(defaults.temperature.value_or(0));
  request.sampling.top_p = options.top_p.value_or(request.sampling.top_p);
  request.sampling.seed = options.seed;
  const uint32_t max_tokens =
      options.max_tokens.value_or(defaults.max_new_tokens.value_or(options.default_max_tokens));
  request.sampling.max_tokens =
      static_cast<uint32_t>(std::min<uint64_t>(max_tokens, room - prompt.size()));
  request.prompt = std::move(prompt);
  const auto sink = std::make_shared<PrintingSink>(*runtime.model->tokenizer, true);
  request.sink = sink;
  const auto start = std::chrono::steady_clock::now();
  MASU_ASSIGN_OR_RETURN([[maybe_unused]] const RequestId id,
                        runtime.engine->Submit(std::move(request)));
  sink->Wait();
  std::puts("");
  if (!sink->error().empty()) return MakeError(ErrorCode::kInternal, "{}", sink->error());
  const double seconds =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  std::fprintf(stderr, "(%u tokens, %.1f tokens/s)\n", sink->tokens(), sink->tokens() / seconds);
  return sink->text();
}

Json Message(const char* role, const std::string& content) {
  return {{"role", role}, {"content", content}};
}

}  // namespace

int RunGenerate(const GenerateOptions& options) {
  auto runtime = Start(options);
  if (!runtime.ok()) return PrintError(runtime.error());
  std::string prompt = options.prompt;
  if (prompt == "-") prompt.assign(std::istreambuf_iterator<char>(std::cin), {});
  Result<std::vector<TokenId>> tokens = std::vector<TokenId>();
  if (options.raw) {
    tokens =
        runtime->model->tokenizer->Encode(prompt, {.add_special = true, .parse_special = false});
  } else {
    Json messages = Json::array();
    if (!options.system.empty()) messages.push_back(Message("system", options.system));
    messages.push_back(Message("user", prompt));
    tokens = ChatPrompt(*runtime->model, messages);
  }
  if (!tokens.ok()) return PrintError(tokens.error());
  const Result<std::string> answer = Answer(*runtime, std::move(tokens).value(), options);
  return answer.ok() ? 0 : PrintError(answer.error());
}

int RunChat(const ChatOptions& options) {
  auto runtime = Start(options);
  if (!runtime.ok()) return PrintError(runtime.error());
  std::fprintf(stderr, "Type a message; an empty line or Ctrl-D ends.\n");
  Json messages = Json::array();
  if (!options.system.empty()) messages.push_back(Message("system", options.system));
  for (std::string line; std::fputs("> ", stderr), std::getline(std::cin, line) && !line.empty();) {
    messages.push_back(Message("user", line));
    Result<std::vector<TokenId>> tokens = ChatPrompt(*runtime->model, messages);
    if (!tokens.ok()) return PrintError(tokens.error());
    const Result<std::string> answer = Answer(*runtime, std::move(tokens).value(), options);
    if (!answer.ok()) return PrintError(answer.error());
    messages.push_back(Message("assistant", *answer));
  }
  return 0;
}

}  // namespace masu
