// An evaluation for readers: text for a terminal, JSON for programs, HTML for a browser. Pure
// functions.
#pragma once

#include <string>

#include "quality/evaluation.h"

namespace masu {

// One table of all settings and checks, flags, what was skipped and the recommendation; with
// `details`, before it a table for each check.
std::string EvaluationToText(const Evaluation& evaluation, bool details);

// Keys: docs/quality.md.
std::string EvaluationToJson(const Evaluation& evaluation);

// One file without references to others. Everything that models, files and users wrote is escaped.
std::string EvaluationToHtml(const Evaluation& evaluation);

// Pieces that several forms share.
std::string FormatShare(double share);  // "57.0 %"
std::string FormatP(double p);          // "0.27", "< 0.001"
// Baseline and answer of a question that came out otherwise than under the baseline.
struct FlippedItem {
  const EvalItem* baseline = nullptr;
  const EvalItem* setting = nullptr;
};
// Right before and wrong now, or the other way round, first; then other answers, to `limit` items
// in all.
std::vector<FlippedItem> FlippedItems(const TaskRun& baseline, const TaskRun& setting,
                                      size_t limit);

}  // namespace masu
