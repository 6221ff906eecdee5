// The tasks with public data, on files of a few lines, put to a target that likes what a test says.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <filesystem>
#include <fstream>

#include "quality/eval_data.h"
#include "quality/eval_task.h"
#include "quality/prompt_tokens.h"
#include "quality/task_gsm8k.h"
#include "quality/task_mmlu.h"
#include "tests/support/fake_tokenizer.h"

namespace masu {
namespace {

using testing::ElementsAre;
using testing::EndsWith;
using testing::HasSubstr;
using testing::StartsWith;

// Likes answers by what the test says of them, and keeps all prompts. Tokens are bytes.
class OpinionatedTarget final : public EvalTarget {
 public:
  const Tokenizer& tokenizer() const override { return tokenizer_; }
  const ChatTemplate* chat_template() const override { return nullptr; }
  uint32_t max_model_len() const override { return model_len; }
  Result<std::vector<ScoreResult>> Score(std::span<const ScoreQuery> queries,
                                         const Progress&) override {
    std::vector<ScoreResult> results;
    for (const ScoreQuery& query : queries) {
      const auto cut = static_cast<ptrdiff_t>(query.first);
      contexts.push_back(Text({query.tokens.begin(), query.tokens.begin() + cut}));
      const std::string answer = Text({query.tokens.begin() + cut, query.tokens.end()});
      const auto found = likes.find(answer);
      results.push_back({.log_likelihood = found == likes.end() ? -100.0 : found->second,
                         .greedy = found != likes.end() && found->second > -1});
    }
    return results;
  }
  Result<std::vector<GenerateResult>> Generate(std::span<const GenerateQuery> queries,
                                               const Progress&) override {
    std::vector<GenerateResult> results;
    for (const GenerateQuery& query : queries) {
      contexts.push_back(Text(query.prompt));
      generate_queries.push_back(query);
      results.push_back({.tokens = {}, .text = says.at(results.size()), .stopped = true});
    }
    return results;
  }

  std::map<std::string, double> likes;
  std::vector<std::string> says;
  std::vector<std::string> contexts;
  std::vector<GenerateQuery> generate_queries;
  uint32_t model_len = 8192;

 private:
  std::string Text(const std::vector<TokenId>& tokens) const {
    return tokenizer_.Decode(tokens, true);
  }
  FakeTokenizer tokenizer_;
};

class PublicTasks : public testing::Test {
 protected:
  PublicTasks()
      : folder_(std::filesystem::path(testing::TempDir()) /
                ("masu_tasks_" + std::to_string(::getpid()))) {
    std::filesystem::create_directories(folder_);
    options_.data_dir = folder_.string();
  }
  ~PublicTasks() override { std::filesystem::remove_all(folder_); }

  void Write(const std::string& name, const std::string& lines) {
    std::ofstream(folder_ / name) << lines;
  }
  Result<std::vector<EvalItem>> RunTask(const std::string& name) {
    MASU_ASSIGN_OR_RETURN(const auto task, MakeEvalTask(name));
    EXPECT_EQ(task->name(), name);
    EXPECT_FALSE(task->description().empty());
    MASU_TRY(task->Prepare(options_));
    return task->Run(target_, nullptr);
  }

  std::filesystem::path folder_;
  EvalTaskOptions options_;
  OpinionatedTarget target_;
};

TEST_F(PublicTasks, ArcTakesTheLikeliestChoice) {
  Write("arc_easy.jsonl", R"({"query": "Question: Why?", "choices": ["a", "long choice"], "gold": 1}
{"query": "Question: Who?", "choices": ["b", "éé", "d"], "gold": 1}
{"query": "Question: Not read", "choices": ["b"], "gold": 0}
)");
  options_.limit = 2;
  // By characters -5/11 is better than -4/1; é counts one, so -7/2 is better than -4/1.
  target_.likes = {{" a", -4}, {" long choice", -5}, {" b", -4}, {" éé", -7}, {" d", -4}};
  const auto items = RunTask("arc_easy");
  ASSERT_TRUE(items.ok()) << items.error().message;
  ASSERT_EQ(items->size(), 2u);
  EXPECT_EQ((*items)[0].id, "arc_easy/0");
  EXPECT_EQ((*items)[0].answer, "a");
  EXPECT_EQ((*items)[0].expected, "long choice");
  EXPECT_EQ((*items)[0].score, 0);
  EXPECT_EQ((*items)[0].log_likelihood, -5);
  EXPECT_EQ((*items)[0].extra.at(0), (std::pair<std::string, double>("acc_norm", 1)));
  EXPECT_EQ((*items)[1].answer, "b");  // the first of equals
  EXPECT_EQ((*items)[1].extra.at(0).second, 1);
  EXPECT_EQ(target_.contexts.at(0), "Question: Why?\nAnswer:");
}

TEST_F(PublicTasks, BadDataIsNamedByFileAndLine) {
  const std::string good = R"({"query": "Question: Why?", "choices": ["a"], "gold": 0})";
  const auto message = [&](const std::string& line) {
    Write("arc_challenge.jsonl", good + "\n\n" + line + "\n");
    const auto items = RunTask("arc_challenge");
    return items.ok() ? "" : items.error().message;
  };
  EXPECT_THAT(message("{"), HasSubstr("arc_challenge.jsonl line 3: expected a JSON object"));
  EXPECT_THAT(message(R"({"query": 1, "choices": ["a"], "gold": 0})"),
              HasSubstr("line 3: expected a string \"query\""));
  EXPECT_THAT(message(R"({"query": "q", "choices": "a", "gold": 0})"), HasSubstr("\"choices\""));
  EXPECT_THAT(message(R"({"query": "q", "choices": ["a", "b"], "gold": 2})"),
              HasSubstr("\"gold\" from 0 to 1"));
  EXPECT_THAT(message(R"({"query": "q", "choices": ["a"], "gold": -1})"), HasSubstr("\"gold\""));
  EXPECT_EQ(message(good), "");
  Write("arc_challenge.jsonl", "\n");
  EXPECT_THAT(RunTask("arc_challenge").error().message, HasSubstr("no questions"));
}

TEST_F(PublicTasks, LambadaWantsTheWordFirst) {
  Write("lambada_openai.jsonl", R"({"context": "He said \"no", "continuation": "signs"}
{"context": "She", "continuation": "ran"}
)");
  target_.likes = {{" signs", -0.5}, {" ran", -3}};
  const auto items = RunTask("lambada");
  ASSERT_TRUE(items.ok());
  EXPECT_EQ((*items)[0].score, 1);
  EXPECT_EQ((*items)[1].score, 0);
  EXPECT_EQ((*items)[1].log_likelihood, -3);
  EXPECT_EQ(target_.contexts.at(0), "He said \"no");
}

TEST_F(PublicTasks, Gsm8kReadsTheNumber) {
  Write("gsm8k_test.jsonl", R"({"question": "How many?", "answer": "2*9=<<2*9=18>>18\n#### 1,018"}
{"question": "And now?", "answer": "#### 7"}
)");
  target_.says = {" So 2 * 509 = 1018. The answer is 1,018.\n\n", " It is 3, no, 7"};
  const auto items = RunTask("gsm8k");
  ASSERT_TRUE(items.ok());
  EXPECT_EQ((*items)[0].expected, "1018");
  EXPECT_EQ((*items)[0].answer, "1018");
  EXPECT_EQ((*items)[0].score, 1);
  EXPECT_EQ((*items)[1].answer, "[invalid]");
  EXPECT_EQ((*items)[1].score, 0);
  EXPECT_EQ((*items)[1].extra.at(0).second, 1);  // flexible
  EXPECT_THAT(target_.contexts.at(0), StartsWith("Q: A shelf holds"));
  EXPECT_THAT(target_.contexts.at(0), EndsWith("The answer is 60.\n\nQ: How many?\nA:"));
  EXPECT_EQ(target_.generate_queries.at(0).max_tokens, 256u);
  EXPECT_THAT(target_.generate_queries.at(0).stop, ElementsAre("Q:", "</s>", "<|im_end|>"));
}

// Python's re on the harness's patterns gave the expectations.
TEST(Gsm8kAnswer, AsTheHarnessFindsIt) {
  const struct {
    const char* text;
    const char* strict;
    const char* flexible;
  } cases[] = {{"The answer is 8.", "8", "8"},
               {"The answer is 18", "1", "18"},  // the pattern's last dot takes a digit
               {"The answer is 8", "[invalid]", "8"},
               {"The answer is -3.5 m. The answer is 4.", "-3.5", "4"},
               {"The answer is 1,200.\n\nmore 5", "1200", "5"},
               {"The answer is $12.", "[invalid]", "12"},
               {"the answer is 3.", "[invalid]", "3"},
               {"nothing", "[invalid]", "[invalid]"},
               {"it costs $3.50, or -2", "[invalid]", "-2"}};
  for (const auto& one : cases) {
    EXPECT_EQ(StrictGsm8kAnswer(one.text), one.strict) << one.text;
    EXPECT_EQ(FlexibleGsm8kAnswer(one.text), one.flexible) << one.text;
  }
}

TEST_F(PublicTasks, MmluAsksForTheLetter) {
  Write(
      "mmlu.jsonl",
      R"({"question": " Which? ", "subject": "high_school_biology", "choices": ["w", "x", "y", "z"], "answer": 2})");
  target_.likes = {{" A", -2}, {" B", -3}, {" C", -1}, {" D", -4}};
  const auto items = RunTask("mmlu");
  ASSERT_TRUE(items.ok()) << items.error().message;
  EXPECT_EQ((*items)[0].answer, "C. y");
  EXPECT_EQ((*items)[0].score, 1);
  const std::string question = "Which?\nA. w\nB. x\nC. y\nD. z\nAnswer:";
  const std::string head =
      "The following are multiple choice questions (with answers) about high school biology.\n\n";
  EXPECT_EQ(target_.contexts.at(0), head + question);

  // Examples of the subject, five at most.
  std::string examples;
  for (const char* subject : {"law", "high_school_biology"}) {
    for (int i = 0; i < 6; ++i) {
      examples += fmt::format(
          R"({{"question": "E{}", "subject": "{}", "choices": ["s", "t"], "answer": 1}})"
          "\n",
          i, subject);
    }
  }
  Write("mmlu_dev.jsonl", examples);
  target_.contexts.clear();
  ASSERT_TRUE(RunTask("mmlu").ok());
  std::string shots;
  for (int i = 0; i < 5; ++i) shots += fmt::format("E{}\nA. s\nB. t\nAnswer: B\n\n", i);
  EXPECT_EQ(target_.contexts.at(0), head + shots + question);
}

TEST_F(PublicTasks, MmluProReadsTheLetterAfterReasoning) {
  Write(
      "mmlu_pro.jsonl",
      R"({"question": "Which?", "options": ["w", "x "], "answer": "B", "answer_index": 1, "category": "law"}
{"question": "Who?", "options": ["w", "x"], "answer_index": 0, "category": "law"}
)");
  target_.says = {" I think the answer is (B). The answer is (A).", " It is A."};
  const auto items = RunTask("mmlu_pro");
  ASSERT_TRUE(items.ok()) << items.error().message;
  EXPECT_EQ((*items)[0].answer, "B. x");
  EXPECT_EQ((*items)[0].score, 1);
  EXPECT_EQ((*items)[1].answer, "[invalid]");
  EXPECT_EQ((*items)[1].score, 0);
  EXPECT_THAT(
      target_.contexts.at(0),
      EndsWith("Question:\nWhich?\nOptions:\nA. w\nB. x\nAnswer: Let's think step by step."));
  EXPECT_THAT(target_.contexts.at(0), HasSubstr("about law. Think step by step"));
  EXPECT_EQ(MmluProAnswer("the answer is J"), "J");
  EXPECT_EQ(MmluProAnswer("the answer is (K)"), "[invalid]");

  Write(
      "mmlu_pro_validation.jsonl",
      R"({"question": "E?", "options": ["s", "t"], "answer_index": 0, "category": "law", "cot_content": "A: Let's think step by step. Because. The answer is (A)."})");
  target_.contexts.clear();
  ASSERT_TRUE(RunTask("mmlu_pro").ok());
  EXPECT_THAT(target_.contexts.at(0),
              HasSubstr("choice.\nQuestion:\nE?\nOptions:\nA. s\nB. t\nAnswer: Let's think step by "
                        "step. Because. The answer is (A).\n\nQuestion:\nWhich?"));
}

TEST(PromptTokens, CutsPairsWhereTheContextEnds) {
  const FakeTokenizer with_bos;
  const FakeTokenizer without({}, /*has_bos=*/false);
  const auto bytes = BytesOf("Q:  yes");
  ScoreQuery query = EncodePair(with_bos, "Q: ", " yes", 100);
  EXPECT_EQ(query.first, 3u);  // BOS, Q, colon; the context's space went to the answer
  EXPECT_EQ(query.tokens.size(), 1 + bytes.size());
  EXPECT_EQ(query.tokens.front(), FakeTokenizer::kBos);
  query = EncodePair(without, "Q: ", " yes", 100);
  EXPECT_EQ(query.first, 2u);
  EXPECT_EQ(query.tokens, bytes);
  // Nothing before the answer: something must predict its first token.
  query = EncodePair(without, "", " yes", 100);
  EXPECT_EQ(query.first, 1u);
  EXPECT_EQ(query.tokens.size(), 5u);
  // The begin is cut, at the worst into the answer.
  query = EncodePair(without, "0123456789", " yes", 6);
  EXPECT_EQ(query.tokens, BytesOf("89 yes"));
  EXPECT_EQ(query.first, 2u);
  query = EncodePair(without, "0123456789", " yes", 3);
  EXPECT_EQ(query.tokens, BytesOf("yes"));
  EXPECT_EQ(query.first, 1u);
}

TEST(PromptTokens, PromptsAreCutToLeaveRoom) {
  OpinionatedTarget target;
  target.model_len = 20;
  GenerateQuery query = MakeGenerateQuery(target, "0123456789", 5, {});
  EXPECT_EQ(query.prompt.size(), 11u);
  EXPECT_EQ(query.max_tokens, 5u);
  query = MakeGenerateQuery(target, "0123456789abcdefgh", 5, {});
  EXPECT_EQ(query.prompt, BytesOf("3456789abcdefgh"));
  EXPECT_EQ(query.max_tokens, 5u);
  query = MakeGenerateQuery(target, "0123456789abcdefgh", 100, {});
  EXPECT_EQ(query.prompt, BytesOf("89abcdefgh"));
  EXPECT_EQ(query.max_tokens, 10u);
}

TEST(TextTail, CutsBetweenCharacters) {
  EXPECT_EQ(TextTail("abc", 3), "abc");
  EXPECT_EQ(TextTail("abcd", 3), "...bcd");
  EXPECT_EQ(TextTail("aé", 1), "...");
}

}  // namespace
}  // namespace masu
