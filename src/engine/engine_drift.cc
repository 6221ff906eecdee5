// The parts of EngineImpl that compare some answers with a 16-bit cache: a request of the engine's
// own repeats the tokens of an answer that has ended, behind everybody else.
#include <limits>

#include "engine/engine_impl.h"
#include "engine/random.h"

namespace masu {
namespace {

constexpr const char* kDriftOwner =
    "\x01"
    "drift";  // no API key's digest

}  // namespace

Result<void> EngineImpl::InitDrift() {
  if (!(config_.drift_sample >= 0 && config_.drift_sample <= 1)) {
    return InvalidArgument("--drift-sample {} is no share from 0 to 1", config_.drift_sample);
  }
  wide_choice_ = FindWideKvChoice(cache_info_);
  if (config_.drift_sample > 0 && !wide_choice_) {
    return InvalidArgument(
        "--drift-sample needs a 16-bit cache to compare with; add --kv-cache-dtype-choices auto");
  }
  return {};
}

// Which requests are sampled depends on their number alone, so that runs repeat.
void EngineImpl::MaybeProbe(const RequestState& request) {
  if (config_.drift_sample <= 0 || probe_ || request.internal) return;
  if (cache_info_.choices[request.kv_choice].bits >= 16) return;
  const auto drawn =
      Philox4x32({static_cast<uint32_t>(request.arrival), 0, 0, 2},
                 {static_cast<uint32_t>(config_.seed), static_cast<uint32_t>(config_.seed >> 32)});
  if (drawn[0] * 0x1p-32 >= config_.drift_sample) return;
  probe_.emplace(request.id, cache_info_.choices[request.kv_choice].name, request.kv_class);
}

void EngineImpl::ProbeRow(const Sequence& sequence, uint32_t position,
                          std::span<const float> logits) {
  if (!probe_ || probe_->request() != sequence.request->id || sequence.choice != 0) return;
  probe_->Keep(static_cast<uint32_t>(sequence.tokens.size()) - sequence.request->prompt_length,
               position, logits);
}

// Called when choice 0 of the watched request ends, whatever it ended with.
void EngineImpl::EndProbe(const Sequence& sequence) {
  if (!probe_ || probe_->request() != sequence.request->id || sequence.choice != 0) return;
  const std::span<const TokenId> tokens = probe_->TokensToRepeat(sequence.tokens);
  if (tokens.empty() || tokens.size() >= cache_info_.choices[*wide_choice_].max_request_len) {
    probe_.reset();
    return;
  }
  auto state = std::make_unique<RequestState>();
  {
    const std::lock_guard lock(mutex_);
    state->id = RequestId(next_request_);
    state->arrival = next_request_++;
  }
  state->internal = true;
  state->prompt_length = static_cast<uint32_t>(tokens.size());
  state->priority = std::numeric_limits<int32_t>::max();
  state->owner = kDriftOwner;
  state->kv_choice = *wide_choice_;
  auto repeated = std::make_unique<Sequence>();
  repeated->request = state.get();
  repeated->tokens.assign(tokens.begin(), tokens.end());
  repeated->probed = probe_->positions();
  // Pages of its own: the next request must not find what nobody asked for.
  for (const LayoutId layout : kv_choices_[*wide_choice_].groups)
    repeated->tables.push_back({.layout = layout, .scope = state->arrival << 8});
  waiting_.Insert(repeated.get());
  state->sequences.push_back(std::move(repeated));
  state->unfinished = 1;
  requests_.emplace(state->id.value(), std::move(state));
}

void EngineImpl::CompareRow(Sequence& sequence, uint32_t position, std::span<const float> logits) {
  if (!probe_->Compare(position, logits)) return;
  drift_samples_.push_back(probe_->sample());
  Retire(sequence);
}

void EngineImpl::DeliverDrift() {
  for (const DriftSample& sample : std::exchange(drift_samples_, {})) {
    if (drift_observer_) drift_observer_->OnDriftSample(sample);
  }
}

}  // namespace masu
