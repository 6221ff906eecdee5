// The drift monitor: adds up the engine's samples (engine/drift.h) by layout and class, for
// metrics, and says when new requests of a class are to get another layout. Thread-safe.
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <map>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "engine/drift.h"

namespace masu {

// A class leaves its layout when the mean KL of its last `min_samples` samples exceeds `max_kl`.
// The last ones, so that drift that begins late shows as soon as one that was there from the start.
struct DriftReaction {
  std::string kv_class;
  std::string kv_choice;  // KvChoiceInfo::name that the class has until then
  double max_kl = 0;      // nats
  uint32_t min_samples = 20;
  std::string moves_to;  // as kv_choice; for messages
};

class KvDriftMonitor final : public DriftObserver {
 public:
  // Upper borders of the histogram of KL, in nats: half a decade apart, from far below what 8 bits
  // cost to where text is visibly another one (docs/quality.md).
  static constexpr std::array<double, 11> kKlBorders = {1e-5, 3e-5, 1e-4, 3e-4, 1e-3, 3e-3,
                                                        1e-2, 3e-2, 1e-1, 3e-1, 1};

  // Of the samples of one layout and class since start.
  struct Totals {
    std::string kv_choice;
    std::string kv_class;
    uint64_t samples = 0;
    double kl_sum = 0;  // of their mean KL, nats
    // Samples within each border and above the one before it; the last: above all of them.
    std::array<uint64_t, kKlBorders.size() + 1> kl_counts = {};
    uint64_t positions = 0;
    double same_top1 = 0;  // positions with the same most likely token
  };

  explicit KvDriftMonitor(std::vector<DriftReaction> reactions = {});

  // Says in the log, once, when a class moves.
  void OnDriftSample(const DriftSample& sample) override;

  // Until the process ends: going back would need samples of the layout that is not used any more.
  bool HasMoved(const std::string& kv_class) const;
  // Every class that has a reaction, and whether it has moved.
  std::vector<std::pair<std::string, bool>> moves() const;
  std::vector<Totals> totals() const;  // by layout, then class

 private:
  struct Watch {
    DriftReaction reaction;
    std::deque<double> last;  // at most min_samples
    bool moved = false;
  };
  static void React(const DriftSample& sample, Watch& watch);

  mutable std::mutex mutex_;
  std::map<std::pair<std::string, std::string>, Totals> totals_;  // layout, class
  std::map<std::string, Watch> watches_;                          // by class
};

}  // namespace masu
