#include "quality/task_custom.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdio>
#include <fstream>

#include "tests/support/fake_eval_target.h"

namespace masu {
namespace {

using testing::HasSubstr;

class Custom : public testing::Test {
 protected:
  void TearDown() override { std::remove(path_.c_str()); }
  Result<std::vector<EvalItem>> Run(const std::string& text, FakeEvalTarget& target,
                                    std::optional<uint32_t> limit = std::nullopt) const {
    std::ofstream(path_) << text;
    const auto task = MakeCustomTask();
    MASU_TRY(task->Prepare({.file = path_, .limit = limit}));
    return task->Run(target, nullptr);
  }
  std::string Refusal(const std::string& text) const {
    FakeEvalTarget target([](const std::string&) { return ""; });
    const auto items = Run(text, target);
    return items.ok() ? "" : items.error().message;
  }
  const std::string path_ = testing::TempDir() + "masu-custom.jsonl";
};

TEST_F(Custom, ComparesAsEachLineSays) {
  FakeEvalTarget target([](const std::string&) { return " The answer is Aspirin 100 mg.\n"; });
  const auto items = Run(
      R"({"prompt": "a", "answer": "aspirin"}
{"prompt": "b", "answer": "ibuprofen"}

{"prompt": "c", "answer": "The answer is Aspirin 100 mg.", "match": "exact"}
{"prompt": "d", "answer": "the answer is aspirin 100 mg.", "match": "exact"}
{"prompt": "e", "answer": "[0-9]+ mg", "match": "regex", "id": "dose"}
{"prompt": "f", "answer": "[0-9]{4} mg", "match": "regex"}
{"prompt": "g"}
{"prompt": "h", "answer": "aspirin", "match": "none"}
{"messages": [{"role": "system", "content": "s"}, {"role": "user", "content": "i"}], "answer": "mg", "match": "contains", "max_tokens": 4}
)",
      target);
  ASSERT_TRUE(items.ok()) << items.error().message;
  std::vector<double> scores;
  for (const EvalItem& item : *items) scores.push_back(item.score);
  EXPECT_THAT(scores, testing::ElementsAre(1, 0, 1, 0, 1, 0, 0, 0, 0));
  EXPECT_EQ((*items)[0].id, "custom/0");
  EXPECT_EQ((*items)[4].id, "custom/dose");
  EXPECT_EQ((*items)[0].question, "a");
  EXPECT_EQ((*items)[6].expected, "");
  EXPECT_EQ((*items)[7].expected, "");
  EXPECT_EQ((*items)[8].answer, " The");
  EXPECT_EQ(target.prompts()[0], "[user]a\n[assistant]");
  EXPECT_EQ(target.prompts()[8], "[system]s\n[user]i\n[assistant]");
}

TEST_F(Custom, OfABaseModel) {
  FakeEvalTarget target([](const std::string&) { return "x"; }, "");
  const auto items =
      Run("{\"prompt\": \"Once\"}\n{\"messages\": [{\"role\": \"user\", \"content\": \"i\"}]}\n",
          target);
  ASSERT_TRUE(items.ok()) << items.error().message;
  EXPECT_EQ(target.prompts()[0], "Once");
  EXPECT_EQ(target.prompts()[1], "Question: i\nAnswer:");
  EXPECT_EQ(Run("{\"prompt\": \"a\"}\n{\"prompt\": \"b\"}\n", target, 1)->size(), 1u);
}

TEST_F(Custom, EveryMalformedLineIsNamedWithARemedy) {
  for (const auto& [line, names] : std::vector<std::pair<std::string, std::string>>{
           {"{", "expected a JSON object"},
           {"[]", "expected a JSON object"},
           {"{}", "one of them"},
           {R"({"prompt": "a", "messages": [{"role": "user", "content": "b"}]})", "one of them"},
           {R"({"prompt": 1})", "expected a string \"prompt\""},
           {R"({"prompt": ""})", "is empty"},
           {R"({"prompt": "a", "answers": "b"})", "\"answers\" is not known"},
           {R"({"prompt": "a", "answer": ["b"]})", "expected a string \"answer\""},
           {R"({"prompt": "a", "answer": ""})", "leave it out"},
           {R"({"prompt": "a", "answer": "b", "match": "fuzzy"})", "use exact, contains, regex"},
           {R"({"prompt": "a", "match": "exact"})", "add one or use none"},
           {R"({"prompt": "a", "answer": "(", "match": "regex"})", "no regular expression"},
           {R"({"prompt": "a", "max_tokens": 0})", "from 1 to 4096"},
           {R"({"prompt": "a", "max_tokens": "9"})", "from 1 to 4096"},
           {R"({"prompt": "a", "id": "0"})", "occurs twice"},
           {R"({"messages": []})", "the last of the user"},
           {R"({"messages": "a"})", "the last of the user"},
           {R"({"messages": [{"role": "assistant", "content": "a"}]})", "the last of the user"},
           {R"({"messages": [{"role": "tool", "content": "a"}]})", "the last of the user"},
           {R"({"messages": [{"role": "user"}]})", "the last of the user"}}) {
    const std::string refusal = Refusal("{\"prompt\": \"good\"}\n\n" + line + "\n");
    EXPECT_THAT(refusal, HasSubstr("masu-custom.jsonl line 3: ")) << line;
    EXPECT_THAT(refusal, HasSubstr(names)) << line;
    EXPECT_EQ(refusal.find('\n'), std::string::npos);
  }
  EXPECT_THAT(Refusal(""), HasSubstr("no questions"));
  const auto task = MakeCustomTask();
  EXPECT_THAT(task->Prepare({}).error().message, HasSubstr("needs a file"));
  EXPECT_THAT(task->Prepare({.file = "/nowhere/at.jsonl"}).error().message,
              HasSubstr("/nowhere/at.jsonl: no such file"));
}

}  // namespace
}  // namespace masu
