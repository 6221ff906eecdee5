// What this machine can do at most, measured in the run whose figures stand beside it, and whether
// it is quiet: neighbours on a shared machine take bandwidth and cores for milliseconds to minutes.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/result.h"
#include "bench/paired.h"
#include "ops/ops.h"

namespace masu {

// Rates are the best of some samples: a limit that a neighbour lowered is none.
struct Roofline {
  std::string cpu;  // its name, as the system has it
  std::string isa;
  std::string peak_name;  // what `operations_per_second` counts
  uint32_t num_threads = 1;
  double read_bytes_per_second = 0;  // of memory that no cache holds, all threads
  double read_bytes_per_second_one_thread = 0;
  double operations_per_second = 0;  // a multiplication and an addition are two; all threads
  double operations_per_second_one_thread = 0;
  uint64_t read_buffer_bytes = 0;
};

// Takes about a second. Errors: no memory for the buffer.
Result<Roofline> MeasureRoofline(const std::string& isa, uint32_t num_threads);

// The better of each rate of two measurements of one run.
Roofline BestOf(const Roofline& a, const Roofline& b);

// Bytes of the last-level cache; 32 MiB where the system does not say.
uint64_t LastLevelCacheBytes();

// What a piece of work moves and computes at the least.
struct Work {
  double weight_bytes = 0;
  double cache_bytes = 0;       // of K and V
  double activation_bytes = 0;  // in and out
  double operations = 0;        // a multiplication and an addition are two

  double bytes() const { return weight_bytes + cache_bytes + activation_bytes; }
  // That come from memory: activations stay in caches, and count where there is nothing else.
  double streamed_bytes() const {
    return weight_bytes + cache_bytes > 0 ? weight_bytes + cache_bytes : activation_bytes;
  }
};

// The time that the roofline allows: reading and computing may overlap, so the larger of the two.
double RooflineSeconds(const Work& work, const Roofline& roofline);
// What takes the most of it: "weights", "cache", "activations" or "arithmetic".
std::string LimitingStream(const Work& work, const Roofline& roofline);

// Tells quiet samples from contended ones: about 10 us of products that the first caches hold, on
// all threads, before and after each sample. On a core, or a tile unit, that is shared with a
// neighbour they take 1.3 to 4 times as long.
class ContentionProbe {
 public:
  // A probe that takes longer than this times the best one seen is contended: above the jitter of a
  // quiet machine (below 1.1), below the mildest sharing of a core.
  static constexpr double kQuietRatio = 1.2;

  // `ops` and its threads are the ones that the samples use: another team of threads would still
  // be spinning as a sample begins.
  static Result<ContentionProbe> Create(Ops& ops);

  // Seconds of the fastest of some products: the first ones may have to wake threads up, or fetch
  // what the sample took from the caches. What a neighbour takes, it takes from all of them.
  static constexpr int kTries = 5;
  double Measure();
  // Of the slower probe around a sample; decided when all are known, as the best one is needed.
  bool IsQuiet(double probe_seconds) const { return probe_seconds <= kQuietRatio * best_; }
  double best() const { return best_; }

 private:
  explicit ContentionProbe(Ops& ops) : ops_(&ops) {}
  double TimeProduct(uint32_t rows);

  Ops* ops_;
  std::unique_ptr<PackedWeight> weight_;
  std::vector<float> x_;  // [rows, inputs]
  std::vector<float> y_;  // [rows, outputs]
  uint32_t rows_ = 1;
  double best_ = 0;  // 0: none yet
};

// Samples of one thing, each with the slower of the two probes around it.
class ProbedSamples {
 public:
  explicit ProbedSamples(ContentionProbe& probe) : probe_(&probe) {}

  // Runs `body` once between two probes and keeps how long it took. The probe after one sample is
  // not the one before the next: setting up may lie between them.
  template <typename Body>
  double Take(const Body& body) {
    const double before = probe_->Measure();
    const auto begin = std::chrono::steady_clock::now();
    body();
    const double seconds =
        std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    const double after = probe_->Measure();
    seconds_.push_back(seconds);
    probes_.push_back(before > after ? before : after);
    return seconds;
  }

  size_t size() const { return seconds_.size(); }
  Summary all() const { return Summarize(seconds_); }
  Summary quiet() const { return Summarize(Of(true)); }
  Summary contended() const { return Summarize(Of(false)); }

 private:
  std::vector<double> Of(bool quiet) const;

  ContentionProbe* probe_;
  std::vector<double> seconds_;
  std::vector<double> probes_;
};

}  // namespace masu
