#include "bench/machine.h"

#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <random>
#include <span>

#include "backend/cpu/peak.h"
#include "base/machine.h"
#include "base/stopwatch.h"
#include "base/thread_pool.h"
#include "bench/random_data.h"
#include "tensor/buffer.h"

namespace masu {
namespace {

using Clock = std::chrono::steady_clock;

// A thread's piece of a read: long enough that handing it out costs nothing, short enough that
// threads end together.
constexpr uint64_t kPiece = 2 << 20;
constexpr int kSamples = 12;
constexpr double kProbeSeconds = 10e-6;

void FillRandom(std::span<uint64_t> words) {
  std::mt19937_64 random(1);
  for (uint64_t& word : words) word = random();
}

// Sums all words, line by line; asks for the line so many bytes ahead, unless 0.
template <size_t kAhead>
uint64_t ReadAll(std::span<const uint64_t> words) {
  constexpr size_t kLine = 8;  // words of a cache line
  uint64_t sums[kLine] = {};
  for (size_t i = 0; i + kLine <= words.size(); i += kLine) {
    if constexpr (kAhead > 0) __builtin_prefetch(&words[i] + kAhead / sizeof(uint64_t));
    for (size_t j = 0; j < kLine; ++j) sums[j] += words[i + j];
  }
  uint64_t total = 0;
  for (const uint64_t sum : sums) total += sum;
  return total;
}

// The faster of two ways: what the hardware fetches by itself, which is best on AMD's cores, and
// asking 4 KiB ahead, which helps where it looks less far.
double ReadRate(ThreadPool& pool, std::span<const uint64_t> words) {
  std::vector<uint64_t> sink(pool.size());
  const size_t piece = kPiece / sizeof(uint64_t);
  const auto pieces = static_cast<uint32_t>(words.size() / piece);
  double best = 0;
  for (int sample = 0; sample < kSamples; ++sample) {
    const auto begin = Clock::now();
    pool.For(pieces, 1, [&](uint32_t from, uint32_t to, uint32_t thread) {
      for (uint32_t i = from; i < to; ++i) {
        const std::span part = words.subspan(i * piece, piece);
        sink[thread] += sample % 2 == 0 ? ReadAll<0>(part) : ReadAll<4096>(part);
      }
    });
    best = std::max(best, static_cast<double>(pieces * kPiece) / SecondsSince(begin));
  }
  // The sums must exist for the reads to.
  volatile uint64_t kept = 0;
  for (const uint64_t sum : sink) kept = kept + sum;
  return best;
}

double OperationRate(ThreadPool& pool, const PeakLoop& loop) {
  constexpr uint64_t kRounds = 200'000;  // some milliseconds: frequencies settle, a tick is nothing
  std::vector<float> sink(pool.size());
  double best = 0;
  for (int sample = 0; sample < kSamples; ++sample) {
    const auto begin = Clock::now();
    pool.For(pool.size(), 1, [&](uint32_t from, uint32_t to, uint32_t thread) {
      for (uint32_t i = from; i < to; ++i) sink[thread] += loop.run(kRounds);
    });
    const double operations = static_cast<double>(kRounds) * loop.operations * pool.size();
    best = std::max(best, operations / SecondsSince(begin));
  }
  return best;
}

std::string CpuName() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);) {
    const size_t colon = line.find(": ");
    if (line.starts_with("model name") && colon != std::string::npos) return line.substr(colon + 2);
  }
  return "unknown CPU";
}

uint64_t ReadBufferBytes() {
  constexpr uint64_t kTimesCache = 8;
  constexpr uint64_t kLeast = 256 << 20;
  constexpr uint64_t kMost = 1 << 30;
  const uint64_t wanted = std::clamp(kTimesCache * LastLevelCacheBytes(), kLeast, kMost);
  const uint64_t available = ReadMachineMemory().available.value / 4;
  return std::max(kPiece, std::min(wanted, available) / kPiece * kPiece);
}

}  // namespace

uint64_t LastLevelCacheBytes() {
  constexpr uint64_t kUsual = 32 << 20;
  const long bytes = sysconf(_SC_LEVEL3_CACHE_SIZE);
  return bytes > 0 ? static_cast<uint64_t>(bytes) : kUsual;
}

Result<Roofline> MeasureRoofline(const std::string& isa, uint32_t num_threads) {
  const PeakLoop loop = PeakLoopOf(isa);
  Roofline roofline{.cpu = CpuName(),
                    .isa = isa,
                    .peak_name = std::string(loop.name),
                    .num_threads = num_threads};
  roofline.read_buffer_bytes = ReadBufferBytes();
  MASU_ASSIGN_OR_RETURN(Buffer buffer, Buffer::Allocate({roofline.read_buffer_bytes}, true));
  const std::span words(buffer.as<uint64_t>(), buffer.size() / sizeof(uint64_t));
  FillRandom(words);
  ThreadPool one(1);
  ThreadPool all(num_threads);
  roofline.read_bytes_per_second_one_thread = ReadRate(one, words);
  roofline.operations_per_second_one_thread = OperationRate(one, loop);
  roofline.read_bytes_per_second = ReadRate(all, words);
  roofline.operations_per_second = OperationRate(all, loop);
  return roofline;
}

Roofline BestOf(const Roofline& a, const Roofline& b) {
  Roofline best = a;
  for (double Roofline::*rate :
       {&Roofline::read_bytes_per_second, &Roofline::read_bytes_per_second_one_thread,
        &Roofline::operations_per_second, &Roofline::operations_per_second_one_thread}) {
    best.*rate = std::max(a.*rate, b.*rate);
  }
  return best;
}

double RooflineSeconds(const Work& work, const Roofline& roofline) {
  return std::max(work.streamed_bytes() / roofline.read_bytes_per_second,
                  work.operations / roofline.operations_per_second);
}

std::string LimitingStream(const Work& work, const Roofline& roofline) {
  if (work.operations / roofline.operations_per_second >
      work.streamed_bytes() / roofline.read_bytes_per_second) {
    return "arithmetic";
  }
  if (work.weight_bytes + work.cache_bytes == 0) return "activations";
  return work.weight_bytes >= work.cache_bytes ? "weights" : "cache";
}

Result<ContentionProbe> ContentionProbe::Create(Ops& ops) {
  // A thread's share is 32 KiB of weights, which with its rows of x stays in the second cache at
  // the worst.
  constexpr uint32_t kInputs = 256;
  constexpr uint32_t kOutputsPerThread = 64;
  constexpr uint32_t kMostRows = 512;
  const uint32_t outputs = kOutputsPerThread * ops.num_threads();
  ContentionProbe probe(ops);
  const std::vector<std::byte> source = RandomWeight(GgmlFormat::kBF16, outputs, kInputs);
  MASU_ASSIGN_OR_RETURN(probe.weight_, ops.PackWeight({.format = GgmlFormat::kBF16,
                                                       .outputs = outputs,
                                                       .inputs = kInputs,
                                                       .data = source.data()}));
  probe.x_ = RandomActivations(size_t{kMostRows} * kInputs, ops.multiplies_bf16());
  probe.y_.resize(size_t{kMostRows} * outputs);
  // As many rows as take the time wanted, from the time of many: handing work to threads that sleep
  // takes several times as long as the probe, and must not be taken for its work.
  double best = 1;
  for (int i = 0; i < 50; ++i) best = std::min(best, probe.TimeProduct(kMostRows));
  const double rows = std::ceil(kMostRows * kProbeSeconds / best);
  probe.rows_ = static_cast<uint32_t>(std::clamp(rows, 1.0, double{kMostRows}));
  for (int i = 0; i < 50; ++i) probe.Measure();
  return probe;
}

double ContentionProbe::TimeProduct(uint32_t rows) {
  const LinearArgs product{
      .weight = weight_.get(),
      .x = x_.data(),
      .x_stride = weight_->inputs(),
      .rows = rows,
      .y = y_.data(),
      .y_stride = weight_->outputs(),
      .activations = ops_->multiplies_bf16() ? Activations::kBFloat16 : Activations::kFloat32};
  const auto begin = Clock::now();
  ops_->Linear({&product, 1});
  return SecondsSince(begin);
}

double ContentionProbe::Measure() {
  double seconds = TimeProduct(rows_);
  for (int i = 1; i < kTries; ++i) seconds = std::min(seconds, TimeProduct(rows_));
  if (best_ == 0 || seconds < best_) best_ = seconds;
  return seconds;
}

std::vector<double> ProbedSamples::Of(bool quiet) const {
  std::vector<double> chosen;
  for (size_t i = 0; i < seconds_.size(); ++i) {
    if (probe_->IsQuiet(probes_[i]) == quiet) chosen.push_back(seconds_[i]);
  }
  return chosen;
}

}  // namespace masu
