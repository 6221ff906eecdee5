#include "plan/process_memory.h"

#include <fmt/format.h>

#include <algorithm>

#include "plan/activation_model.h"
#include "plan/saturating.h"

namespace masu {
namespace {

// Measured on x86-64 with glibc: what a process that has only started holds (4 MiB: relocated data
// of the program and its libraries, its heap), and what freed blocks leave in the heaps of the
// threads under load.
constexpr uint64_t kProgram = 24ULL << 20;
// A thread's touched stack, its control block, and the first page of its heap.
constexpr uint64_t kThread = 128ULL << 10;
// Beside the computing ones: I/O, the engine's, two workers, the loader.
constexpr uint64_t kOtherThreads = 5;
// A vocabulary entry: its bytes, its places in the tables of tokens and merges. Measured: 90 bytes
// for SmolLM2's 49,152 byte-level tokens, 165 for Qwen2's 152,000, 212 for Llama 3's 128,000, and
// 280 there while it is read. And templates, regular expressions, special tokens.
constexpr uint64_t kVocabularyEntry = 288;
constexpr uint64_t kTextFixed = 4ULL << 20;
// A choice that runs or waits: session, sequence, counts.
constexpr uint64_t kChoice = 8ULL << 10;
// A logprob in the tree from which an answer's JSON is written: names, numbers, bytes.
constexpr uint64_t kLogprobJson = 512;
constexpr uint64_t kWriters = 2;
// Answers with more tokens and their logprobs are seldom; they take from the reserve.
constexpr uint64_t kAnswerTokens = 4096;

// As Ops of backend/cpu allocate them: the inputs of the widest product as tiles or as int8 codes
// (two bytes each, and up to twelve for 32), tiles and partial results of attention, and per thread
// scores, what a bias of the keys adds to them, a decoded tile, what stands beside int4's codes,
// two rows of q and two of results.
uint64_t KernelScratch(const PlanConfig& config, const ProcessSettings& settings) {
  constexpr uint64_t kPartials = 8ULL << 20;
  const uint64_t widest =
      std::max({uint64_t{config.hidden_size}, uint64_t{config.num_heads} * config.head_dim,
                uint64_t{config.intermediate_size}});
  const uint64_t per_row = SaturatingMultiply(widest + 32, 2) + widest / 32 * 12 + 32;
  const uint64_t head_dim = (uint64_t{config.head_dim} + 31) / 32 * 32;
  const uint64_t pairs = (48 * (head_dim + 64) + 2 * 64 * head_dim) / 2 + 16;
  const uint64_t codes = head_dim / 32 * (48 * 32 + 4 * 64 + 48 * 2);
  const uint64_t per_thread =
      (2 * 48 * 64 + 32 * head_dim + pairs + codes + 48 * (4 * head_dim + 5)) * sizeof(float);
  return SaturatingAdd(
      SaturatingAdd(kPartials, SaturatingMultiply(settings.max_num_batched_tokens, per_row)),
      SaturatingMultiply(settings.num_threads, per_thread));
}

// Rows of logits computed at a time, and the sampler's candidates (a logit, a pair that may be in a
// vector twice as large, and a weight likewise).
uint64_t LogitBytes(const PlanConfig& config) {
  constexpr uint64_t kSampler = sizeof(float) + 3 * (8 + 8);
  return SaturatingMultiply(uint64_t{kLogitRows} * sizeof(float) + kSampler, config.vocab_size);
}

}  // namespace

std::vector<ProcessMemory::Part> ProcessMemory::parts() const {
  return {{"weights", "weights, packed", weights_bytes},
          {"kv_arena", "KV pages", kv_arena_bytes},
          {"kv_bookkeeping", "page headers and bookkeeping", kv_bookkeeping_bytes},
          {"activations", "activations and RoPE table", activation_bytes},
          {"step_buffers", "hidden states, logits, scratch", step_bytes},
          {"text", "tokenizer and template", text_bytes},
          {"requests", "request bodies and answers", request_bytes},
          {"threads", "stacks of threads", thread_bytes},
          {"program", "program and heap", program_bytes},
          {"swap", "swap space", swap_bytes},
          {"reserve", "reserve", reserve_bytes}};
}

uint64_t ProcessMemory::total() const {
  uint64_t sum = 0;
  for (const Part& part : parts()) sum = SaturatingAdd(sum, part.bytes);
  return sum;
}

uint64_t ProcessMemory::overhead() const {
  uint64_t sum = 0;
  for (const uint64_t bytes :
       {activation_bytes, step_bytes, text_bytes, request_bytes, thread_bytes, program_bytes}) {
    sum = SaturatingAdd(sum, bytes);
  }
  return sum;
}

ProcessMemory ProcessOverhead(const PlanConfig& config, const ProcessSettings& settings) {
  ProcessMemory memory;
  const uint64_t positions = settings.positions.value_or(config.max_position);
  memory.activation_bytes =
      SaturatingAdd(SaturatingMultiply(ValuesPerToken(config, 1),
                                       uint64_t{settings.max_num_batched_tokens} * sizeof(float)),
                    SaturatingMultiply(positions, uint64_t{config.head_dim} * sizeof(float)));
  const uint64_t rows = std::max(settings.max_num_batched_tokens, settings.max_num_seqs);
  const uint64_t hidden = rows * config.hidden_size * sizeof(float);
  memory.step_bytes =
      SaturatingAdd(SaturatingAdd(hidden, LogitBytes(config)), KernelScratch(config, settings));
  memory.step_bytes = SaturatingAdd(
      memory.step_bytes,
      SaturatingMultiply(settings.kept_logit_rows, uint64_t{config.vocab_size} * sizeof(float)));
  memory.text_bytes =
      SaturatingAdd(kTextFixed, SaturatingMultiply(kVocabularyEntry, config.vocab_size));
  const uint64_t choices = uint64_t{settings.max_num_seqs} + settings.max_queued;
  memory.request_bytes = choices * kChoice;
  if (settings.server.value > 0) {
    const uint64_t answer =
        SaturatingMultiply(kWriters * std::min(positions, kAnswerTokens),
                           (uint64_t{settings.max_logprobs} + 1) * kLogprobJson);
    memory.request_bytes =
        SaturatingAdd(memory.request_bytes, SaturatingAdd(settings.server.value, answer));
  }
  memory.thread_bytes = (settings.num_threads + kOtherThreads) * kThread;
  memory.program_bytes = kProgram;
  return memory;
}

std::string FormatProcessMemory(const ProcessMemory& memory) {
  std::string text = "Memory of this process\n";
  const auto line = [&](std::string_view title, uint64_t bytes, const std::string& remark) {
    text += fmt::format("  {:<32}{:>12}{}\n", title, FormatBytes({bytes}), remark);
  };
  for (const ProcessMemory::Part& part : memory.parts()) {
    const double share = 100.0 * static_cast<double>(part.bytes) /
                         static_cast<double>(std::max<uint64_t>(memory.total(), 1));
    line(part.title, part.bytes, part.name == "reserve" ? fmt::format("  {:.1f} %", share) : "");
  }
  line("TOTAL", memory.total(), "");
  if (memory.mapped_file_bytes > 0) {
    line("beside it, while loading", memory.mapped_file_bytes,
         "  of the checkpoint's file, mapped: the kernel takes its pages back");
  }
  return text;
}

}  // namespace masu
