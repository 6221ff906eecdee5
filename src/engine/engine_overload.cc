// The parts of EngineImpl that keep one owner, or one request, from taking too much: shares of the
// pages, and deadlines.
#include <algorithm>

#include "engine/engine_impl.h"
#include "engine/engine_memory.h"

namespace masu {

// How long a request of each choice may be: what the whole arena holds of its pages, or one owner
// may hold. One that is longer would wait for ever.
Result<void> EngineImpl::InitRequestLengths() {
  const std::optional<double> share = config_.max_kv_share_per_key;
  if (share) {
    if (!(*share > 0 && *share <= 1)) {
      return InvalidArgument("--max-kv-share-per-key {} is no share above 0 and up to 1", *share);
    }
    for (uint32_t i = 0; i < cache_->pool().num_layouts(); ++i)
      limits_.page_bytes.push_back(cache_->pool().layout(LayoutId(i)).page_bytes);
    limits_.max_owner_bytes =
        static_cast<uint64_t>(*share * static_cast<double>(cache_info_.arena.value));
  }
  const PageBudget empty = cache_->pool().Budget();
  for (uint32_t choice = 0; choice < kv_choices_.size(); ++choice) {
    const auto fits = [&](uint32_t tokens) {
      const PageCounts pages = PeakPages(choice, tokens);
      if (!limits_.max_owner_bytes) return empty.Fits(pages);
      uint64_t wanted = 0;
      for (size_t i = 0; i < pages.size(); ++i) wanted += pages[i] * limits_.page_bytes[i];
      return wanted <= *limits_.max_owner_bytes && empty.Fits(pages);
    };
    uint32_t longest = 0;
    for (uint32_t step = 1u << 31; step > 0; step /= 2) {  // longer requests need no fewer pages
      if (longest + step <= cache_info_.max_model_len && fits(longest + step)) longest += step;
    }
    cache_info_.choices[choice].max_request_len = longest;
  }
  cache_info_.max_request_len = cache_info_.choices[0].max_request_len;
  if (share && cache_info_.max_request_len < 2) {
    return InvalidArgument(
        "--max-kv-share-per-key {} is {} of a cache of {}, less than one page of {} tokens; raise "
        "it",
        *share, FormatBytes(Bytes{*limits_.max_owner_bytes}), FormatBytes(cache_info_.arena),
        cache_info_.block_size);
  }
  return {};
}

Result<void> EngineImpl::CheckRequestLength(const Request& request, uint32_t kv_choice) const {
  const uint64_t tokens = request.prompt.size() + uint64_t{request.sampling.max_tokens};
  const KvChoiceInfo& choice = cache_info_.choices[kv_choice];
  if (tokens <= choice.max_request_len) return {};
  const std::string limit =
      limits_.max_owner_bytes ? fmt::format("one API key may hold (--max-kv-share-per-key {})",
                                            *config_.max_kv_share_per_key)
                              : fmt::format("the KV cache holds at kv_cache_dtype {}", choice.name);
  return Error{
      ErrorCode::kInvalidArgument,
      fmt::format("{} tokens, {} of the prompt and {} of the answer, are more than the {} that {}; "
                  "shorten the prompt or lower max_tokens",
                  tokens, request.prompt.size(), request.sampling.max_tokens,
                  choice.max_request_len, limit),
      "input_tokens"};
}

// A flood of one owner must not turn the others away: whoever has no more than an equal part of the
// queue may enter beyond its limit, up to twice that.
bool EngineImpl::QueueIsFull(const std::string& owner, uint64_t choices) const {
  // Whoever the next step can seat does not wait, so an idle engine takes a burst of max_num_seqs
  // beside the queue. Free seats are of no use while pages are short.
  const uint64_t running = std::min<uint64_t>(stats_.requests_running, config_.max_num_seqs);
  const uint64_t seats = blocked_ == StepPlan::Blocked::kPages ? 0 : config_.max_num_seqs - running;
  const uint64_t limit = max_queued_ + seats;
  if (queued_ + choices <= limit) return false;
  if (!config_.fair_share || queued_ + choices > 2 * limit) return true;
  const auto found = queued_by_owner_.find(owner);
  const uint64_t own = found == queued_by_owner_.end() ? 0 : found->second;
  const uint64_t owners = queued_by_owner_.size() + (own == 0 ? 1 : 0);
  return own + choices > max_queued_ / owners;
}

// Before the step is planned, so that a request that is late is not begun. While there is a request
// there are steps, so nobody needs to wake the engine for it.
void EngineImpl::EndLateRequests(std::chrono::steady_clock::time_point now) {
  while (!deadlines_.empty() && deadlines_.begin()->first <= now) {
    ++totals_.requests_timed_out;
    EndRequest(*requests_.at(deadlines_.begin()->second), FinishReason::kTimeout);
  }
}

}  // namespace masu
