// What a rank's KV cache takes per token, per page and per request. The sizes are those of the
// layouts in ops/, so a plan cannot differ from what is served.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "plan/model_shape.h"
#include "quant/kv_encoding.h"

namespace masu {

// One way to store K and V that a plan compares.
struct KvChoice {
  std::string name;   // as the user wrote it: "fp8"
  std::string scale;  // none | dynamic | unit | checkpoint
  KvSide side;
};

// `names`: encodings, or "all". `kv_scale` as of --kv-scale; "checkpoint" needs a model that brings
// scales. An encoding that latent attention cannot have is refused by name.
Result<std::vector<KvChoice>> ParseKvChoices(const std::vector<std::string>& names,
                                             const std::string& kv_scale, const PlanConfig& config);

class KvFootprint {
 public:
  struct Input {
    KvSide side;
    uint32_t ranks = 1;
    uint32_t block_size = 16;
    uint32_t prefill_chunk = 2048;  // most tokens that a step adds to a request
  };
  // Errors of the layouts: block size, head size.
  static Result<KvFootprint> Make(const std::vector<PlanKvGroup>& groups, const Input& input);

  // One token in all layers, per rank.
  uint64_t bytes_per_token() const { return bytes_per_token_; }
  // Of a token beyond every window: layers without one.
  uint64_t bytes_per_token_past_windows() const { return bytes_past_windows_; }
  // A request of `tokens` at its peak: whole pages and their headers. Layers with a window hold the
  // window and a prefill chunk, and the page that both straddle, as `masu serve` admits them.
  uint64_t RequestBytes(uint64_t tokens) const;
  bool has_windows() const { return bytes_past_windows_ != bytes_per_token_; }
  // Tokens that an arena holds: whole pages; with windows, in requests of `context` tokens.
  uint64_t Tokens(uint64_t arena, uint64_t context) const;

 private:
  struct Pages {
    uint64_t bytes;  // one page of the group with its header
    std::optional<uint32_t> window;
  };
  std::vector<Pages> groups_;
  uint32_t block_size_ = 0;
  uint32_t prefill_chunk_ = 0;
  uint64_t bytes_per_token_ = 0;
  uint64_t bytes_past_windows_ = 0;
};

}  // namespace masu
