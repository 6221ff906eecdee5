// The drift monitor's samples: for a small share of requests (EngineConfig::drift_sample) the
// distributions behind some of their tokens are computed once more with a 16-bit cache, and the two
// are compared. What follows from it is not the engine's to decide.
#pragma once

#include <cstdint>
#include <string>

namespace masu {

// Of one finished choice of a request.
struct DriftSample {
  std::string kv_choice;   // KvChoiceInfo::name that the answer was made with
  std::string kv_class;    // Request::kv_class
  uint32_t positions = 0;  // compared
  double mean_kl = 0;      // KL(16 bits || served) in nats, mean over them
  double max_kl = 0;
  double top1_agreement = 0;  // share of them with the same most likely token
};

class DriftObserver {
 public:
  virtual ~DriftObserver() = default;
  // On the engine's thread, between steps: copy and return.
  virtual void OnDriftSample(const DriftSample& sample) = 0;
};

}  // namespace masu
