// What the reports of several benchmarks have in common.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "bench/machine.h"
#include "bench/paired.h"

namespace masu {

using BenchJson = nlohmann::ordered_json;
// "version" beside "benchmark", the command's name: raised when a key changes its meaning.
inline constexpr int kBenchJsonVersion = 1;

BenchJson ToJson(const Summary& summary);
BenchJson ToJson(const RatioEstimate& ratio);  // bounds that do not exist are null
BenchJson ToJson(const Roofline& roofline);
BenchJson ToJson(const Work& work);

// "avx512, 2 threads: reads 31.2 GB/s, float32 FMA, 512 bits 210 GFLOP/s (...)": one line.
std::string Describe(const Roofline& roofline);
// With three significant digits: "1.23 ms", "45.6 us".
std::string FormatSeconds(double seconds);
// "1.042 [1.031, 1.053]"; bounds that do not exist are left out.
std::string FormatRatio(const RatioEstimate& ratio);
std::string FormatPercent(double share);  // "73 %"

}  // namespace masu
