// The checks that let a model write: a model that is right scores 1, one with the planted fault
// scores less, on every form of prompt.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <set>
#include <sstream>

#include "quality/engine_target.h"
#include "quality/eval_task.h"
#include "quality/filler_text.h"
#include "quality/generation_task.h"
#include "quality/task_copy.h"
#include "quality/task_instruction.h"
#include "quality/task_needle.h"
#include "tests/support/engine_harness.h"
#include "tests/support/fake_eval_target.h"

namespace masu {
namespace {

using testing::HasSubstr;
using testing::Not;

std::vector<EvalItem> RunTask(const std::string& name, EvalTarget& target,
                              const EvalTaskOptions& options = {}) {
  const auto task = MakeEvalTask(name).value();
  const auto prepared = task->Prepare(options);
  EXPECT_TRUE(prepared.ok()) << prepared.error().message;
  auto items = task->Run(target, nullptr);
  EXPECT_TRUE(items.ok()) << items.error().message;
  return items.ok() ? std::move(*items) : std::vector<EvalItem>();
}

std::string RunFault(const std::string& name, EvalTarget& target, const EvalTaskOptions& options) {
  const auto task = MakeEvalTask(name).value();
  if (const auto prepared = task->Prepare(options); !prepared.ok()) return prepared.error().message;
  const auto items = task->Run(target, nullptr);
  return items.ok() ? "" : items.error().message;
}

double MeanScore(const std::vector<EvalItem>& items) {
  double sum = 0;
  for (const EvalItem& item : items) sum += item.score;
  return items.empty() ? -1 : sum / static_cast<double>(items.size());
}

double Extra(const EvalItem& item, const std::string& name) {
  for (const auto& [key, value] : item.extra) {
    if (key == name) return value;
  }
  ADD_FAILURE() << item.id << " has no " << name;
  return -1;
}

// The middle half of a text, forgotten: what a zeroed span of K and V does.
std::string WithoutMiddle(std::string text) {
  std::fill_n(text.begin() + static_cast<ptrdiff_t>(text.size() / 4), text.size() / 2, ' ');
  return text;
}

// Goes on as the text did after the same words earlier: what attention does with a fact.
std::string Recall(const std::string& prompt, const std::string& text) {
  const std::string asked = prompt.substr(prompt.rfind("The "));
  const size_t found = text.find(asked);
  if (found == std::string::npos || found + asked.size() >= prompt.size()) return " unknown";
  return text.substr(found + asked.size(), 60);
}
std::string Attentive(const std::string& prompt) { return Recall(prompt, prompt); }
std::string Forgetful(const std::string& prompt) { return Recall(prompt, WithoutMiddle(prompt)); }

// A byte is a token here, so the lengths are those of short texts.
const EvalTaskOptions kLengths = {.lengths = {1024, 2048, 4096}};

// --- filler ---

TEST(FillerText, IsVariedAndTheSameForASeed) {
  FillerText filler(1), again(1), other(2);
  std::set<std::string> different;
  size_t equal_to_other = 0;
  for (int i = 0; i < 1000; ++i) {
    const std::string sentence = filler.Sentence();
    EXPECT_EQ(sentence, again.Sentence());
    equal_to_other += sentence == other.Sentence() ? 1 : 0;
    EXPECT_TRUE(std::isupper(static_cast<unsigned char>(sentence[0])) != 0 &&
                sentence.back() == '.')
        << sentence;
    different.insert(sentence);
  }
  EXPECT_GT(different.size(), 980u);  // of 144 short forms with two choices a few coincide
  EXPECT_LT(equal_to_other, 5u);
}

TEST(FillerText, KeepsToItsTokens) {
  const FakeTokenizer tokenizer;
  for (const uint64_t tokens : {0u, 30u, 500u, 5000u}) {
    const std::string text = JoinSentences(FillerText(3).Sentences(tokenizer, tokens));
    EXPECT_LE(text.size(), tokens);
    if (tokens >= 500) {
      EXPECT_GT(text.size() + 120, tokens);
    }
  }
}

// --- needle and copy ---

struct LongCase {
  const char* task;
  const char* chat_template;
};
class LongContext : public testing::TestWithParam<LongCase> {};

TEST_P(LongContext, IsAnsweredByAnAttentiveModelAndNotByOneThatForgets) {
  const auto& [task, chat_template] = GetParam();
  FakeEvalTarget attentive(Attentive, chat_template), forgetful(Forgetful, chat_template);
  const auto items = RunTask(task, attentive, kLengths);
  const auto damaged = RunTask(task, forgetful, kLengths);
  EXPECT_EQ(MeanScore(items), 1) << items[0].question << items[0].answer;
  EXPECT_LT(MeanScore(damaged), 0.8);
  EXPECT_GT(MeanScore(damaged), 0.1);
  ASSERT_EQ(items.size(), damaged.size());
  std::set<std::string> ids;
  for (size_t i = 0; i < items.size(); ++i) {
    EXPECT_EQ(items[i].id, damaged[i].id);
    ids.insert(items[i].id);
    ASSERT_TRUE(items[i].x.has_value() && items[i].y.has_value());
    // The prompt fills its length but for less than two sentences, and never more.
    const double room = *items[i].y - static_cast<double>(attentive.prompts()[i].size());
    EXPECT_GE(room, 24) << items[i].id;
    EXPECT_LT(room, 260) << items[i].id;
  }
  EXPECT_EQ(ids.size(), items.size());
}

INSTANTIATE_TEST_SUITE_P(All, LongContext,
                         testing::Values(LongCase{"needle", kFakeChatTemplate},
                                         LongCase{"needle", ""},
                                         LongCase{"copy", kFakeChatTemplate}, LongCase{"copy", ""}),
                         [](const auto& info) {
                           return std::string(info.param.task) +
                                  (*info.param.chat_template ? "_chat" : "_plain");
                         });

TEST(Needle, LiesAtItsDepth) {
  FakeEvalTarget target(Attentive);
  const auto items = RunTask("needle", target, kLengths);
  ASSERT_EQ(items.size(), 15u);
  EXPECT_EQ(items[6].id, "needle/2048/0.25");
  for (size_t i = 0; i < items.size(); ++i) {
    const std::string& prompt = target.prompts()[i];
    const double place = static_cast<double>(prompt.find(" is " + items[i].expected)) /
                         static_cast<double>(prompt.size());
    EXPECT_NEAR(place, *items[i].x, 0.2) << items[i].id;  // a sentence is up to a tenth of 1024
  }
  const auto others = RunTask("needle", target, {.lengths = {1024, 2048, 4096}, .seed = 1});
  EXPECT_NE(others[0].expected, items[0].expected);
  EXPECT_EQ(RunTask("needle", target, {.limit = 3, .lengths = {1024}}).size(), 3u);
}

TEST(Needle, NumbersAreFoundAsAWhole) {
  EXPECT_TRUE(HoldsNumber("It is 48213.", "48213"));
  EXPECT_TRUE(HoldsNumber("48213", "48213"));
  EXPECT_TRUE(HoldsNumber("48,213 or so", "48213"));
  EXPECT_TRUE(HoldsNumber("not 482130 but 48213", "48213"));
  EXPECT_FALSE(HoldsNumber("482130", "48213"));
  EXPECT_FALSE(HoldsNumber("148213", "48213"));
  EXPECT_FALSE(HoldsNumber("4821", "48213"));
  EXPECT_FALSE(HoldsNumber("", "48213"));
}

TEST(Copy, SharesOfCharacters) {
  EXPECT_DOUBLE_EQ(CharactersRight("", ""), 1);
  EXPECT_DOUBLE_EQ(CharactersRight("abcd", "abcd"), 1);
  EXPECT_DOUBLE_EQ(CharactersRight("abxd", "abcd"), 0.75);
  EXPECT_DOUBLE_EQ(CharactersRight("bcd", "abcd"), 0.75);
  EXPECT_DOUBLE_EQ(CharactersRight("kitten", "sitting"), 1 - 3.0 / 7);  // the textbook's distance
  EXPECT_DOUBLE_EQ(CharactersRight("", "abcd"), 0);
  FakeEvalTarget target([](const std::string& prompt) {
    std::string answer = Attentive(prompt);
    answer[1] = '~';
    return answer;
  });
  for (const EvalItem& item : RunTask("copy", target, kLengths)) {
    EXPECT_EQ(item.score, 0);
    EXPECT_NEAR(Extra(item, "characters_right"), 1 - 1 / static_cast<double>(item.expected.size()),
                1e-9)
        << item.answer;
  }
}

TEST(LongContexts, ThatDoNotFitAreRefused) {
  FakeEvalTarget target(Attentive);
  for (const char* task : {"needle", "copy", "instruction"}) {
    EXPECT_THAT(RunFault(task, target, {.lengths = {100}}), HasSubstr("larger --lengths")) << task;
    EXPECT_THAT(RunFault(task, target, {.lengths = {5000}}), HasSubstr("--max-model-len")) << task;
  }
  // The usual lengths as far as the model holds them.
  FakeEvalTarget small(Attentive, kFakeChatTemplate, 1500);
  std::set<double> lengths;
  for (const EvalItem& item : RunTask("needle", small)) lengths.insert(*item.y);
  EXPECT_THAT(lengths, testing::ElementsAre(512, 1024));
}

// --- instruction ---

TEST(Instruction, RulesAreChecked) {
  const std::map<std::string, std::pair<std::vector<std::string>, std::vector<std::string>>> cases =
      {{"done", {{"Honey. DONE", "DONE", "Honey DONE."}, {"Honey.", "", "DONE now", "done"}}},
       {"capitals", {{"HONEY.", "A 1"}, {"Honey", "", "1."}}},
       {"lower_case", {{"honey."}, {"Honey.", "", "1."}}},
       {"date", {{"On 1952-07-14."}, {"On 14 July 1952.", "1952-7-14", ""}}},
       {"reply", {{"REPLY: honey"}, {"Honey", "REPLY:", "reply: honey", "The REPLY: x"}}},
       {"quotes", {{"\"Honey.\""}, {"Honey", "\"Honey", "\"\"", "\""}}},
       {"list", {{"- a\n- b", "- a"}, {"a, b", "- a\nb", "", "* a"}}},
       {"one_word", {{"Honey", "Honey."}, {"They make honey", ""}}}};
  EXPECT_EQ(cases.size(), InstructionRules().size());
  for (const auto& [rule, answers] : cases) {
    for (const std::string& right : answers.first) {
      EXPECT_TRUE(ObeysRule(rule, right + "\n", "1952-07-14")) << rule << ": " << right;
    }
    for (const std::string& wrong : answers.second) {
      EXPECT_FALSE(ObeysRule(rule, wrong, "1952-07-14")) << rule << ": " << wrong;
    }
  }
}

// Obeys the rule if it sees it.
std::string Obedient(const std::string& prompt) {
  if (prompt.find("word DONE") != std::string::npos) return "Honey. DONE";
  if (prompt.find("capital letters") != std::string::npos) return "HONEY";
  if (prompt.find("lower case") != std::string::npos) return "honey";
  if (prompt.find("YYYY") != std::string::npos) {
    return prompt.find("14 July") != std::string::npos ? "On 1952-07-14" : "On 2004-11-30";
  }
  if (prompt.find("REPLY and") != std::string::npos) return "REPLY: honey";
  if (prompt.find("double quotes") != std::string::npos) return "\"Honey\"";
  if (prompt.find("a dash") != std::string::npos) return "- honey\n- wax";
  if (prompt.find("single word") != std::string::npos) return "Honey";
  return "Bees make honey, and fish live in the sea.";
}

TEST(Instruction, IsObeyedOnlyWhereTheFirstLineIsSeen) {
  for (const char* chat_template : {kFakeChatTemplate, ""}) {
    FakeEvalTarget obedient(Obedient, chat_template);
    FakeEvalTarget forgetful(
        [](const std::string& prompt) { return Obedient(prompt.substr(prompt.size() / 2)); },
        chat_template);
    const auto items = RunTask("instruction", obedient, kLengths);
    EXPECT_EQ(items.size(), 3 * InstructionRules().size());
    EXPECT_EQ(MeanScore(items), 1);
    EXPECT_EQ(MeanScore(RunTask("instruction", forgetful, kLengths)), 0);
    // The rule is the first line, the long text lies between it and the question.
    const std::string begin = *chat_template ? "[user]" : "Question: ";
    EXPECT_TRUE(
        obedient.prompts()[0].starts_with(begin + "End every answer with the word DONE.\n"));
    EXPECT_EQ(obedient.prompts()[0].rfind("word DONE"), obedient.prompts()[0].find("word DONE"));
    EXPECT_GT(obedient.prompts()[0].find("What do bees make?"), 850u);
  }
}

// --- json ---

TEST(Json, ScoresValidityFreeAndUnderASchema) {
  FakeEvalTarget object([](const std::string&) { return "```json\n{\"name\": \"x\"}\n```"; });
  const auto items = RunTask("json", object);
  EXPECT_EQ(items.size(), 20u);
  for (const EvalItem& item : items) {
    EXPECT_EQ(Extra(item, "valid"), 1) << item.id;
    EXPECT_EQ(Extra(item, "fenced"), 1) << item.id;
    const bool free = item.id.starts_with("json/free/");
    const bool is_list = item.question.find("array") != std::string::npos;
    EXPECT_EQ(item.score, free && !is_list ? 1 : 0) << item.id << ": " << item.question;
  }
  FakeEvalTarget words([](const std::string&) { return "Here it is: {}"; }, "");
  for (const EvalItem& item : RunTask("json", words)) {
    EXPECT_EQ(item.score + Extra(item, "valid"), 0) << item.id;
  }
  EXPECT_THAT(words.prompts()[0], HasSubstr("Question: Describe a chair"));
}

// Answers that conform to each of the schemas, in their order: every one of them can be satisfied.
TEST(Json, EverySchemaCanBeSatisfied) {
  const std::vector<std::string> answers = {
      R"({"title": "Moby Dick", "author": "Herman Melville", "year": 1851})",
      R"({"name": "Paris", "country": "France", "is_capital": true})",
      R"(["red", "green", "blue", "white"])",
      R"({"items": [{"name": "pizza", "count": 2}, {"name": "lemonade", "count": 1}]})",
      R"({"sentiment": "good"})",
      R"({"sum": 42})",
      R"({"people": ["Anna", "Boris"], "date": "2024-05-12", "hour": 15})",
      R"({"name": "whale", "kind": "mammal", "legs": 0})",
      R"({"numbers": [1, 5, 10]})",
      R"({"french": "maison", "german": "Haus"})"};
  size_t asked = 0;
  FakeEvalTarget target([&](const std::string&) { return answers.at(asked++ / 2); });
  const auto items = RunTask("json", target);
  size_t with_schema = 0;
  for (const EvalItem& item : items) {
    if (!item.id.starts_with("json/schema/")) continue;
    ++with_schema;
    EXPECT_EQ(item.score, 1) << item.id << ": " << item.answer;
  }
  EXPECT_EQ(with_schema, answers.size());
}

// --- repetition ---

TEST(Repetition, CatchesAModelThatLoops) {
  const std::vector<std::string> script = {"The",   " cat", " sat on", " the mat", " and",
                                           " then", " it",  " ran to", " its dog", "."};
  const auto run = [&](std::optional<size_t> loop_to) {
    const TinyChain chain = MakeTinyChain({.script = script, .loop_to = loop_to}).value();
    const TemporaryModel file(chain.gguf);
    EngineConfig config = TinyConfig();
    config.activation_dtype = "float32";
    const auto model = LoadedModel::Load(file.path(), config, nullptr).value();
    const auto target = EngineTarget::Create(model, config, ParseEncodingSetting("auto").value());
    return RunTask("repetition", *target.value(), {.limit = 3});
  };
  const auto sound = run(std::nullopt);
  ASSERT_EQ(sound.size(), 3u);
  EXPECT_EQ(MeanScore(sound), 1);
  EXPECT_EQ(Extra(sound[0], "loop_period"), 0);
  EXPECT_EQ(Extra(sound[0], "distinct_1"), 1);
  const auto looping = run(4);
  EXPECT_EQ(MeanScore(looping), 0);
  EXPECT_EQ(Extra(looping[0], "loop_period"), 6);  // " and" to "."
  EXPECT_LT(Extra(looping[0], "distinct_2"), 0.1);
}

// --- toolcall ---

constexpr const char* kToolTemplate =
    "{% if tools %}[tools]{{ tools | tojson }}\n{% endif %}"
    "{% for message in messages %}[{{ message.role }}]{{ message.content }}\n{% endfor %}";

TEST(Toolcall, ShowsFunctionsAsTheModelKnowsThem) {
  const auto weather = [](const std::string&) {
    return "<tool_call>{\"name\": \"get_weather\", \"arguments\": {\"city\": "
           "\"oslo\"}}</tool_call>";
  };
  for (const char* chat_template : {kToolTemplate, kFakeChatTemplate, ""}) {
    FakeEvalTarget target(weather, chat_template);
    const auto items = RunTask("toolcall", target);
    ASSERT_EQ(items.size(), 20u);
    EXPECT_EQ(items[0].id, "toolcall/own_0");
    EXPECT_EQ(items[0].score, 1);
    EXPECT_EQ(MeanScore(items), 1.0 / 20);
    EXPECT_EQ(Extra(items[1], "functions_right"), 1);  // another city was meant
    EXPECT_EQ(Extra(items[2], "functions_right"), 0);
    const std::string& prompt = target.prompts()[0];
    EXPECT_THAT(prompt, HasSubstr("get_weather"));
    EXPECT_THAT(prompt, HasSubstr("\"object\""));  // JSON schema's word for BFCL's "dict"
    EXPECT_THAT(prompt, Not(HasSubstr("\"dict\"")));
    EXPECT_EQ(prompt.starts_with("[tools]"), chat_template == kToolTemplate);
    EXPECT_EQ(prompt.find("You call functions") == std::string::npos,
              chat_template == kToolTemplate);
  }
}

// A template without a system role gets the functions before the first question.
TEST(Toolcall, WithoutASystemRole) {
  FakeEvalTarget target([](const std::string&) { return ""; },
                        "{% for message in messages %}{% if message.role == 'system' %}"
                        "{{ raise_exception('no system role') }}{% endif %}"
                        "[{{ message.role }}]{{ message.content }}{% endfor %}");
  RunTask("toolcall", target);
  EXPECT_TRUE(target.prompts()[0].starts_with("[user]You call functions"));
  EXPECT_THAT(target.prompts()[0], HasSubstr("What is the weather in Oslo?"));
}

}  // namespace
}  // namespace masu
