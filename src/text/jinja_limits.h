// What one render may use. A template comes with a model file and its inputs with a request, so
// neither may take the machine's time or memory. Each is far above what real templates need: a
// conversation that fills a million tokens is about 5 MB of text and 100,000 steps.
#pragma once

#include <cstddef>
#include <cstdint>

namespace masu::jinja {

inline constexpr uint64_t kMaxSteps = 20'000'000;          // expressions and statements
inline constexpr size_t kMaxTextBytes = size_t{64} << 20;  // of one string, and of the prompt
inline constexpr size_t kMaxBuiltBytes = size_t{1} << 30;  // of all strings together
inline constexpr size_t kMaxListItems = 1'000'000;
inline constexpr int kMaxCallDepth = 2000;     // nested evaluations, about 300 bytes of stack each
inline constexpr int64_t kMaxRange = 100'000;  // as in jinja2's sandbox

}  // namespace masu::jinja
