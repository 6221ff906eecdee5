// The parts of EngineImpl that keep one owner, or one request, from taking too much: shares of the
// pages, and deadlines.
#include <algorithm>

#include "engine/engine_impl.h"
#include "engine/engine_memory.h"

namespace masu {

Result<void> EngineImpl::InitOwnerShare() {
  cache_info_.max_request_len = cache_info_.max_model_len;
  if (!config_.max_kv_share_per_key) return {};
  const double share = *config_.max_kv_share_per_key;
  if (!(share > 0 && share <= 1)) {
    return InvalidArgument("--max-kv-share-per-key {} is no share above 0 and up to 1", share);
  }
  for (uint32_t g = 0; g < model_->model->kv_groups().size(); ++g) {
    limits_.page_bytes.push_back(cache_->pool().layout(LayoutId(g)).page_bytes);
  }
  const auto bytes = static_cast<uint64_t>(share * static_cast<double>(cache_info_.arena.value));
  limits_.max_owner_bytes = bytes;
  const auto fits = [&](uint32_t tokens) {
    const PageCounts pages = PeakPages(tokens);
    uint64_t wanted = 0;
    for (size_t g = 0; g < pages.size(); ++g) wanted += pages[g] * limits_.page_bytes[g];
    return wanted <= bytes;
  };
  uint32_t longest = 0;
  for (uint32_t step = 1u << 31; step > 0; step /= 2) {  // longer requests need no fewer pages
    if (longest + step <= cache_info_.max_model_len && fits(longest + step)) longest += step;
  }
  if (longest < 2) {
    return InvalidArgument(
        "--max-kv-share-per-key {} is {} of a cache of {}, less than one page of {} tokens; raise "
        "it",
        share, FormatBytes(Bytes{bytes}), FormatBytes(cache_info_.arena), cache_info_.block_size);
  }
  cache_info_.max_request_len = longest;
  return {};
}

Result<void> EngineImpl::CheckOwnerShare(const Request& request) const {
  const uint64_t tokens = request.prompt.size() + uint64_t{request.sampling.max_tokens};
  if (tokens <= cache_info_.max_request_len) return {};
  return Error{
      ErrorCode::kInvalidArgument,
      fmt::format("{} tokens, {} of the prompt and {} of the answer, are more than the {} that one "
                  "API key may hold (--max-kv-share-per-key {}); shorten the prompt or lower "
                  "max_tokens",
                  tokens, request.prompt.size(), request.sampling.max_tokens,
                  cache_info_.max_request_len, *config_.max_kv_share_per_key),
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
