#include <cmath>
#include <nlohmann/json.hpp>

#include "quality/eval_report.h"

namespace masu {
namespace {

using Json = nlohmann::ordered_json;

Json Pair(const Interval& interval) { return {interval.low, interval.high}; }

Json Difference(const MeanDifference& difference) {
  return {{"mean", difference.mean}, {"interval", Pair(difference.interval)}};
}

Json ArmJson(const SettingReport& setting) {
  Json json = {{"kv_cache_dtype", setting.name},
               {"bytes_per_token", setting.bytes_per_token},
               {"share_of_16_bits", setting.share_of_16_bits}};
  if (setting.divergence) {
    const Divergence& arm = *setting.divergence;
    json["mean_kl"] = arm.mean_kl;
    json["max_kl"] = arm.max_kl;
    json["top1_agreement"] = arm.top1_agreement;
    json["perplexity"] = arm.perplexity;
    json["mean_kl_limit"] = MeanKlLimit(16 * setting.share_of_16_bits);
    json["by_position"] = Json::array();
    for (const PositionBin& bin : arm.by_position) {
      json["by_position"].push_back({{"begin", bin.begin},
                                     {"end", bin.end},
                                     {"tokens", bin.tokens},
                                     {"mean_kl", bin.mean_kl},
                                     {"top1_agreement", bin.top1_agreement}});
    }
  }
  json["flags"] = setting.flags;
  return json;
}

Json ItemJson(const EvalItem& item) {
  Json json = {{"id", item.id}, {"score", item.score}, {"answer", item.answer}};
  if (item.log_likelihood) json["log_likelihood"] = *item.log_likelihood;
  if (item.x && item.y) {
    json["x"] = *item.x;
    json["y"] = *item.y;
  }
  for (const auto& [name, value] : item.extra) json["extra"][name] = value;
  return json;
}

Json RunJson(const std::string& setting, const TaskRun& run, const TaskRun& baseline) {
  Json json = {{"kv_cache_dtype", setting},
               {"score", run.score},
               {"interval", Pair(run.interval)},
               {"extra", Json::object()}};
  for (const auto& [name, value] : run.extra) json["extra"][name] = value;
  if (run.mean_log_likelihood) {
    json["mean_log_likelihood"] = *run.mean_log_likelihood;
    json["perplexity"] = std::exp(-*run.mean_log_likelihood);
  }
  json["seconds"] = run.seconds;
  if (const auto& pairs = run.comparison; pairs) {
    const double count = static_cast<double>(std::max<uint64_t>(1, pairs->count));
    json["lost"] = pairs->lost;
    json["gained"] = pairs->gained;
    json["flipped_share"] = static_cast<double>(pairs->flipped()) / count;
    json["changed"] = pairs->changed;
    json["changed_share"] = static_cast<double>(pairs->changed) / count;
    json["mcnemar_p"] = pairs->mcnemar_p;
    json["score_difference"] = Difference(pairs->score);
    if (pairs->log_likelihood) {
      json["log_likelihood_difference"] = Difference(*pairs->log_likelihood);
    }
    json["flipped"] = Json::array();
    for (const FlippedItem& item : FlippedItems(baseline, run, pairs->flipped())) {
      json["flipped"].push_back(item.setting->id);
    }
  }
  json["items"] = Json::array();
  for (const EvalItem& item : run.items) json["items"].push_back(ItemJson(item));
  return json;
}

Json TaskJson(const Evaluation& evaluation, const TaskReport& task) {
  const TaskRun& baseline = task.runs.front();
  Json json = {{"name", task.name},
               {"description", task.description},
               {"questions", Json::array()},
               {"runs", Json::array()}};
  for (const EvalItem& item : baseline.items) {
    json["questions"].push_back(
        {{"id", item.id}, {"question", item.question}, {"expected", item.expected}});
  }
  for (size_t s = 0; s < task.runs.size(); ++s) {
    json["runs"].push_back(RunJson(evaluation.settings[s].name, task.runs[s], baseline));
  }
  return json;
}

}  // namespace

std::string EvaluationToJson(const Evaluation& evaluation) {
  const SettingReport& baseline = evaluation.settings.front();
  Json json = {{"model", evaluation.model},
               {"baseline", baseline.name},
               {"activation_dtype", evaluation.activation_dtype},
               {"isa", evaluation.isa}};
  if (const auto& kl = evaluation.kl; kl) {
    json["text"] = kl->text_name;
    json["tokens"] = kl->tokens;
    json["window"] = kl->window;
    json["baseline_perplexity"] = kl->baseline_perplexity;
  }
  json["baseline_bytes_per_token"] = baseline.bytes_per_token;
  json["arms"] = Json::array();
  for (size_t s = 1; s < evaluation.settings.size(); ++s) {
    json["arms"].push_back(ArmJson(evaluation.settings[s]));
  }
  json["tasks"] = Json::array();
  for (const TaskReport& task : evaluation.tasks) {
    json["tasks"].push_back(TaskJson(evaluation, task));
  }
  json["skipped"] = Json::array();
  for (const SkippedTask& skipped : evaluation.skipped) {
    json["skipped"].push_back({{"name", skipped.name}, {"reason", skipped.reason}});
  }
  json["recommendation"] = Recommendation(evaluation);
  // A model's answer may end within a character.
  return json.dump(2, ' ', false, Json::error_handler_t::replace);
}

}  // namespace masu
