// One choice of a request on its way through the engine. Owned by the engine, touched by its thread
// only.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/typed_id.h"
#include "engine/request.h"
#include "kv/kv_cache.h"

namespace masu {

// waiting -> running (admitted: has pages) -> finished; running -> waiting when preempted.
enum class SequenceState { kWaiting, kRunning, kFinished };

struct RequestState;

// What became of the pages of a choice that was moved aside.
struct SwappedPages {
  std::vector<SwappedTable> tables;  // per KV group
  uint32_t computed = 0;             // leading tokens that they hold
};

struct Sequence {
  RequestState* request = nullptr;
  uint32_t choice = 0;
  uint64_t seed = 0;
  SequenceState state = SequenceState::kWaiting;
  std::vector<TokenId> tokens;            // prompt, then generated
  uint32_t computed = 0;                  // leading tokens whose K and V are in pages
  std::vector<BlockTable> tables;         // per KV group
  std::unique_ptr<SwappedPages> swapped;  // of one that waits
  PrefixMatch prefix;                     // what was found in the cache last, while it waited
  uint32_t preemptions = 0;
  uint32_t repairs = 0;  // since its last token: bad pages that it lost
  // Leading prompt tokens that this choice never had to compute; none before it was admitted.
  std::optional<uint32_t> cached_tokens;
  std::unordered_map<TokenId, uint32_t> generated_counts;
  std::vector<TokenOutput> prompt_logprobs;  // so far; sent with the first token

  // The first prompt token whose logprobs are still to come, if they were asked for.
  uint32_t next_prompt_logprob() const;
  bool had_its_turn() const { return cached_tokens.has_value(); }  // was admitted once
  uint32_t remaining() const { return static_cast<uint32_t>(tokens.size()) - computed; }
  bool decoding() const {
    return remaining() == 1 && state == SequenceState::kRunning && computed > 0;
  }
};

// What the choices of one request share.
struct RequestState {
  RequestId id;
  SamplingParams sampling;
  uint32_t prompt_length = 0;
  int32_t priority = 0;
  std::string owner;
  uint32_t kv_choice = 0;
  std::optional<std::chrono::steady_clock::time_point> deadline;
  uint64_t arrival = 0;  // order of submission
  std::shared_ptr<OutputSink> sink;
  std::vector<std::unique_ptr<Sequence>> sequences;
  uint32_t unfinished = 0;
  bool aborted = false;
  bool failed = false;
  std::vector<TokenId> stop_tokens;  // that end a choice (EOS unless ignored, and stop_token_ids)
};

// Who goes first: smaller priority number, then earlier arrival, then choice. With FCFS priorities
// are equal.
struct GoesFirst {
  bool use_priority = false;
  bool operator()(const Sequence* a, const Sequence* b) const {
    if (use_priority && a->request->priority != b->request->priority) {
      return a->request->priority < b->request->priority;
    }
    if (a->request->arrival != b->request->arrival)
      return a->request->arrival < b->request->arrival;
    return a->choice < b->choice;
  }
};

inline uint32_t Sequence::next_prompt_logprob() const {
  return request->sampling.prompt_logprobs_begin + static_cast<uint32_t>(prompt_logprobs.size());
}

}  // namespace masu
