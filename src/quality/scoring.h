// Teacher-forced scoring outside the engine: the logits of every position of a text, in one KV
// layout. What `masu eval` and the golden tests stand on. Not thread-safe.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "engine/loaded_model.h"
#include "kv/kv_cache.h"
#include "tensor/buffer.h"

namespace masu {

struct ScoringOptions {
  std::string kv_cache_dtype = "auto";
  std::string kv_scale = "auto";
  std::string kv_cache_dtype_skip_layers = {};  // as EngineConfig
  uint32_t block_size = 16;
  uint32_t max_tokens = 512;  // of one text
};

class ScoringSession {
 public:
  // `model` must outlive the session; sessions of one model must not run at the same time.
  static Result<std::unique_ptr<ScoringSession>> Create(LoadedModel& model,
                                                        const ScoringOptions& options);
  ~ScoringSession();

  // Starts a new text.
  void Reset();
  // Appends tokens (at most max_chunk()) to the text; returns their logits [tokens, vocab_size]
  // until the next call.
  std::span<const float> Append(std::span<const TokenId> tokens);
  uint32_t max_chunk() const;

 private:
  ScoringSession(LoadedModel& model, std::unique_ptr<KvCache> cache)
      : model_(model), cache_(std::move(cache)) {}

  LoadedModel& model_;
  std::unique_ptr<KvCache> cache_;
  std::vector<BlockTable> tables_;  // per KV group
  uint32_t length_ = 0;
  Buffer hidden_;
  Buffer logits_;
};

}  // namespace masu
