#include "quality/evaluation.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <nlohmann/json.hpp>

#include "quality/eval_report.h"
#include "tests/support/fake_tokenizer.h"

namespace masu {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

class IdleTarget final : public EvalTarget {
 public:
  explicit IdleTarget(std::string setting) : setting_(std::move(setting)) {}
  const Tokenizer& tokenizer() const override { return tokenizer_; }
  const ChatTemplate* chat_template() const override { return nullptr; }
  uint32_t max_model_len() const override { return 100; }
  Result<std::vector<ScoreResult>> Score(std::span<const ScoreQuery>, const Progress&) override {
    return std::vector<ScoreResult>();
  }
  Result<std::vector<GenerateResult>> Generate(std::span<const GenerateQuery>,
                                               const Progress&) override {
    return std::vector<GenerateResult>();
  }
  const std::string& setting() const { return setting_; }

 private:
  FakeTokenizer tokenizer_;
  std::string setting_;
};

// Scores, by setting.
class ScriptedTask final : public EvalTask {
 public:
  using Script = std::map<std::string, std::vector<EvalItem>>;
  ScriptedTask(std::string name, Script script)
      : name_(std::move(name)), script_(std::move(script)) {}
  std::string name() const override { return name_; }
  std::string description() const override { return "scripted <b>"; }
  Result<void> Prepare(const EvalTaskOptions&) override { return {}; }
  Result<std::vector<EvalItem>> Run(EvalTarget& target,
                                    const EvalTarget::Progress& progress) override {
    progress(1, 2);
    progress(2, 2);
    const std::string& setting = dynamic_cast<IdleTarget&>(target).setting();
    if (!script_.contains(setting)) return InvalidArgument("nothing for it");
    return script_.at(setting);
  }

 private:
  std::string name_;
  Script script_;
};

class FakeModel final : public EvaluationModel {
 public:
  std::string name() const override { return "<model>"; }
  std::string activation_dtype() const override { return "float32"; }
  std::string isa() const override { return "scalar"; }
  Result<uint64_t> BytesPerToken(const EncodingSetting& setting) const override {
    if (setting.name == "int8" || setting.name == "fp8") return uint64_t{520};
    if (setting.name == "int4") return uint64_t{310};
    if (setting.name == "bfloat16") return uint64_t{1000};
    return InvalidArgument("there is no {}", setting.name);
  }
  Result<std::unique_ptr<EvalTarget>> Open(const EncodingSetting& setting) override {
    return std::unique_ptr<EvalTarget>(std::make_unique<IdleTarget>(setting.name));
  }
  Result<DivergenceReport> MeasureKl(const std::vector<EncodingSetting>& settings,
                                     const KlOptions& options, Evaluation::Kl& kl,
                                     const std::function<void(double)>& progress) override {
    progress(1);
    kl = {.text_name = options.text_name, .tokens = 64, .window = 32, .baseline_perplexity = 9};
    DivergenceReport report;
    for (size_t s = 1; s < settings.size(); ++s) {
      Divergence arm;
      arm.name = settings[s].name;
      arm.mean_kl = mean_kl.at(arm.name);
      arm.by_position = {{.begin = 0, .end = 16, .tokens = 32, .mean_kl = arm.mean_kl / 2},
                         {.begin = 16, .end = 32, .tokens = 32, .mean_kl = arm.mean_kl * 2}};
      report.arms.push_back(arm);
    }
    return report;
  }

  std::map<std::string, double> mean_kl = {{"int8", 2e-4}, {"fp8", 4e-3}, {"int4", 0.07}};
};

// `right`: '+' or '-' for each question.
std::vector<EvalItem> Items(const std::string& right) {
  std::vector<EvalItem> items;
  for (const char mark : right) {
    const bool is_right = mark == '+';
    items.push_back({.id = "scripted/" + std::to_string(items.size()),
                     .question = "Is 1 < 2 && \"so\"?",
                     .expected = "yes",
                     .answer = is_right ? "yes" : "<script>alert(1)</script>",
                     .score = is_right ? 1.0 : 0.0,
                     .log_likelihood = is_right ? -1.0 : -3.0,
                     .x = 0.25 * static_cast<double>(items.size() % 4),
                     .y = 512,
                     .extra = {{"acc_norm", 0.5}}});
  }
  return items;
}

EvaluationRequest Request(const std::vector<std::string>& settings, bool has_kl = true) {
  EvaluationRequest request;
  for (const std::string& name : settings) {
    request.settings.push_back(ParseEncodingSetting(name).value());
  }
  if (has_kl) request.kl = KlOptions{.text = "x", .text_name = "the <text>"};
  return request;
}

PreparedTasks Scripted(ScriptedTask::Script script) {
  PreparedTasks tasks;
  tasks.tasks.push_back(std::make_unique<ScriptedTask>("scripted", std::move(script)));
  tasks.skipped.push_back({"gsm8k", "no <data>"});
  return tasks;
}

Evaluation Evaluated(FakeModel model = {}) {
  auto evaluation = RunEvaluation(Request({"bfloat16", "int8", "fp8", "int4"}),
                                  Scripted({{"bfloat16", Items("++++++++--")},
                                            {"int8", Items("++++++++--")},
                                            {"fp8", Items("+++++++-+-")},
                                            {"int4", Items("----------")}}),
                                  model, nullptr);
  EXPECT_TRUE(evaluation.ok());
  return std::move(evaluation).value();
}

TEST(Evaluation, ComparesEverySettingWithTheBaseline) {
  const Evaluation evaluation = Evaluated();
  ASSERT_EQ(evaluation.settings.size(), 4u);
  EXPECT_FALSE(evaluation.settings[0].divergence);
  EXPECT_EQ(evaluation.settings[3].divergence->mean_kl, 0.07);
  EXPECT_DOUBLE_EQ(evaluation.settings[1].share_of_16_bits, 0.52);
  const std::vector<TaskRun>& runs = evaluation.tasks.at(0).runs;
  ASSERT_EQ(runs.size(), 4u);
  EXPECT_FALSE(runs[0].comparison);
  EXPECT_DOUBLE_EQ(runs[0].score, 0.8);
  EXPECT_DOUBLE_EQ(*runs[0].mean_log_likelihood, -1.4);
  ASSERT_EQ(runs[0].extra.size(), 1u);
  EXPECT_DOUBLE_EQ(runs[0].extra[0].second, 0.5);
  EXPECT_EQ(runs[1].comparison->flipped(), 0u);
  EXPECT_EQ(runs[2].comparison->lost, 1u);
  EXPECT_EQ(runs[2].comparison->gained, 1u);
  EXPECT_EQ(runs[3].comparison->lost, 8u);
  EXPECT_DOUBLE_EQ(runs[3].comparison->log_likelihood->mean, -1.6);
}

TEST(Evaluation, FlagsWhatHurts) {
  const Evaluation evaluation = Evaluated();
  EXPECT_THAT(evaluation.settings[1].flags, testing::IsEmpty());
  EXPECT_THAT(evaluation.settings[2].flags, testing::IsEmpty());
  EXPECT_THAT(evaluation.settings[3].flags,
              testing::ElementsAre(HasSubstr("mean KL 0.07 is above 0.05, the limit at 5 bits"),
                                   HasSubstr("scripted: 8 answers lost and 0 gained")));
  FakeModel broken;
  broken.mean_kl["int8"] = NAN;
  broken.mean_kl["fp8"] = 0.011;
  const Evaluation worse = Evaluated(broken);
  EXPECT_THAT(worse.settings[1].flags, testing::ElementsAre(HasSubstr("nan")));
  EXPECT_THAT(worse.settings[2].flags, testing::ElementsAre(HasSubstr("the limit at 8 bits")));
}

TEST(Evaluation, RecommendsTheLowestKlAtEachSize) {
  const std::string advice = Recommendation(Evaluated());
  EXPECT_THAT(advice, HasSubstr("int8 (mean KL 2.0e-04, 1.92x the tokens of 16 bits); not without "
                                "care int4"));
  EXPECT_THAT(advice, Not(HasSubstr("fp8")));
  FakeModel model;
  const auto without = RunEvaluation(Request({"bfloat16", "int8"}, false), {}, model, nullptr);
  EXPECT_EQ(Recommendation(*without), "");
}

TEST(Evaluation, ErrorsNameSettingAndCheck) {
  FakeModel model;
  const auto unknown = RunEvaluation(Request({"bfloat16", "fp8_e5m2"}), {}, model, nullptr);
  EXPECT_THAT(unknown.error().message, HasSubstr("fp8_e5m2"));
  const auto failed = RunEvaluation(Request({"bfloat16", "int8"}),
                                    Scripted({{"bfloat16", Items("+")}}), model, nullptr);
  EXPECT_EQ(failed.error().message, "scripted with int8: nothing for it");
}

TEST(Evaluation, ProgressRisesToTheEnd) {
  FakeModel model;
  double last = 0;
  const auto show = [&](double fraction, const std::string& what) {
    EXPECT_GE(fraction, last);
    EXPECT_FALSE(what.empty());
    last = fraction;
  };
  EXPECT_TRUE(RunEvaluation(Request({"bfloat16", "int8"}),
                            Scripted({{"bfloat16", Items("+")}, {"int8", Items("+")}}), model, show)
                  .ok());
  EXPECT_EQ(last, 1);
}

TEST(Evaluation, MissingDataIsAnErrorOrSkipped) {
  EvalTaskOptions options;
  options.data_dir = testing::TempDir() + "masu_no_such_folder";
  const auto refused = PrepareTasks({"kl", "arc_easy"}, options, false);
  EXPECT_THAT(refused.error().message, AllOf(HasSubstr("masu_no_such_folder/arc_easy.jsonl"),
                                             HasSubstr("\"gold\""), HasSubstr("--data")));
  const auto skipped = PrepareTasks({"kl", "arc_easy"}, options, true);
  ASSERT_EQ(skipped->skipped.size(), 1u);
  EXPECT_EQ(skipped->skipped[0].name, "arc_easy");
  EXPECT_TRUE(skipped->tasks.empty());
  EXPECT_THAT(PrepareTasks({"arc_eazy"}, options, true).error().message, HasSubstr("arc_easy"));
}

TEST(EvalReport, TextHasScoresFlagsAndAdvice) {
  const std::string text = EvaluationToText(Evaluated(), true);
  for (const char* part :
       {"80.0 % [49.0, 94.3]", "8 (8, 0)", "7.00e-02", "flagged: int4: mean KL",
        "not run: gsm8k: no <data>", "Recommended, lowest KL at its size: int8", "| acc_norm |"}) {
    EXPECT_THAT(text, HasSubstr(part));
  }
  EXPECT_THAT(EvaluationToText(Evaluated(), false), Not(HasSubstr("acc_norm")));
}

TEST(EvalReport, JsonHasWhatTheOthersShow) {
  const auto json = nlohmann::json::parse(EvaluationToJson(Evaluated()));
  EXPECT_EQ(json["baseline"], "bfloat16");
  EXPECT_EQ(json["window"], 32);
  ASSERT_EQ(json["arms"].size(), 3u);
  EXPECT_EQ(json["arms"][2]["mean_kl_limit"], 0.05);
  EXPECT_EQ(json["arms"][2]["flags"].size(), 2u);
  EXPECT_EQ(json["arms"][0]["by_position"].size(), 2u);
  const auto& runs = json["tasks"][0]["runs"];
  ASSERT_EQ(runs.size(), 4u);
  EXPECT_FALSE(runs[0].contains("mcnemar_p"));
  EXPECT_DOUBLE_EQ(runs[3]["flipped_share"], 0.8);
  EXPECT_EQ(runs[3]["flipped"].size(), 8u);
  EXPECT_EQ(runs[2]["flipped"], (std::vector<std::string>{"scripted/7", "scripted/8"}));
  EXPECT_EQ(runs[0]["items"][1]["x"], 0.25);
  EXPECT_EQ(json["skipped"][0]["name"], "gsm8k");
}

size_t Count(const std::string& text, const std::string& part) {
  size_t count = 0;
  for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++count;
  return count;
}

TEST(EvalReport, HtmlIsWholeAndEscaped) {
  const std::string html = EvaluationToHtml(Evaluated());
  for (const char* part :
       {"&lt;script&gt;alert(1)", "&lt;model&gt;", "the &lt;text&gt;", "no &lt;data&gt;",
        "1 &lt; 2 &amp;&amp; &quot;so&quot;", "prefers-color-scheme: dark"}) {
    EXPECT_GE(Count(html, part), 1u) << part;
  }
  // Nothing runs, nothing is loaded from elsewhere, and no number is missing.
  for (const char* part : {"<script", "scripted <b>", " src=", "href=", "url(", "@import", "http",
                           ">nan", "\"nan", "inf\""}) {
    EXPECT_EQ(Count(html, part), 0u) << part;
  }
  // Plots: KL by position, scores, a heat map for each of four settings.
  EXPECT_EQ(Count(html, "<svg"), 6u);
  for (const std::string tag :
       {"svg", "table", "section", "details", "tr", "td", "div", "span", "text"}) {
    EXPECT_EQ(Count(html, "<" + tag + ">") + Count(html, "<" + tag + " "),
              Count(html, "</" + tag + ">"))
        << tag;
  }
}

TEST(EvalReport, FlipsComeBeforeOtherAnswers) {
  Evaluation evaluation = Evaluated();
  TaskRun& fp8 = evaluation.tasks[0].runs[2];
  fp8.items[0].answer = "yes, indeed";
  const auto items = FlippedItems(evaluation.tasks[0].runs[0], fp8, 10);
  ASSERT_EQ(items.size(), 3u);
  EXPECT_EQ(items[0].setting->id, "scripted/7");
  EXPECT_EQ(items[2].setting->id, "scripted/0");
  EXPECT_EQ(FlippedItems(evaluation.tasks[0].runs[0], fp8, 2).size(), 2u);
}

}  // namespace
}  // namespace masu
