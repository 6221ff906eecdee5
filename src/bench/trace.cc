#include "bench/trace.h"

#include <algorithm>
#include <nlohmann/json.hpp>

namespace masu {

TraceRecorder::TraceRecorder(size_t most_spans) { spans_.reserve(most_spans); }

uint32_t TraceRecorder::AddProcess(std::string name) {
  processes_.push_back(std::move(name));
  return static_cast<uint32_t>(processes_.size() - 1);
}

void TraceRecorder::Add(const char* name, TimePoint begin, TimePoint end, uint32_t rows,
                        uint64_t size) {
  if (!recording_) return;
  if (spans_.size() == spans_.capacity()) {
    ++dropped_;
    return;
  }
  spans_.push_back(
      {.name = name, .begin = begin, .end = end, .rows = rows, .size = size, .process = process_});
}

std::string TraceRecorder::ToJson() const {
  using Json = nlohmann::ordered_json;
  Json events = Json::array();
  for (size_t i = 0; i < processes_.size(); ++i) {
    events.push_back({{"name", "process_name"},
                      {"ph", "M"},
                      {"pid", i},
                      {"tid", 0},
                      {"args", {{"name", processes_[i]}}}});
  }
  // Times count from the first span, in microseconds.
  TimePoint first = TimePoint::max();
  for (const Span& span : spans_) first = std::min(first, span.begin);
  const auto microseconds = [](std::chrono::steady_clock::duration duration) {
    return std::chrono::duration<double, std::micro>(duration).count();
  };
  for (const Span& span : spans_) {
    Json event = {{"name", span.name},
                  {"ph", "X"},
                  {"pid", span.process},
                  {"tid", 0},
                  {"ts", microseconds(span.begin - first)},
                  {"dur", microseconds(span.end - span.begin)}};
    if (span.rows > 0) event["args"]["rows"] = span.rows;
    if (span.size > 0) event["args"]["size"] = span.size;
    events.push_back(std::move(event));
  }
  return Json({{"displayTimeUnit", "ms"},
               {"otherData", {{"dropped_spans", dropped_}}},
               {"traceEvents", std::move(events)}})
      .dump();
}

}  // namespace masu
