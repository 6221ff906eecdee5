#include "quality/tool_call_check.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "quality/tool_cases.h"

namespace masu {
namespace {

using Json = nlohmann::json;
using testing::HasSubstr;

TEST(ParseToolCalls, FindsCallsInWhateverForm) {
  for (const char* text : {
           R"({"name": "f", "arguments": {"a": 1}})",
           R"({"name": "f", "parameters": {"a": 1}})",
           R"({"name": "f", "arguments": "{\"a\": 1}"})",
           R"([{"name": "f", "arguments": {"a": 1}}])",
           R"({"type": "function", "function": {"name": "f", "arguments": {"a": 1}}})",
           R"({"f": {"a": 1}})",
           R"(<tool_call>{"name": "f", "arguments": {"a": 1}}</tool_call>)",
           R"([TOOL_CALLS] [{"name": "f", "arguments": {"a": 1}}])",
           "I call {it} [now]:\n```json\n{\"name\": \"f\", \"arguments\": {\"a\": 1}}\n```\nDone.",
           R"({ {"name": "f", "arguments": {"a": 1}})",
       }) {
    const auto calls = ParseToolCalls(text);
    ASSERT_EQ(calls.size(), 1u) << text;
    EXPECT_EQ(calls[0].name, "f") << text;
    EXPECT_EQ(calls[0].arguments, Json({{"a", 1}})) << text;
  }
  const auto two = ParseToolCalls(
      R"(<tool_call>{"name": "f", "arguments": {}}</tool_call> {"name": "g", "arguments": {}})");
  ASSERT_EQ(two.size(), 2u);
  EXPECT_EQ(two[1].name, "g");
  for (const char* text : {"", "f(a=1)", "{\"name\": \"f\"}", "{\"name\": \"f\", \"arguments\": 3}",
                           "{\"a\": 1}", "{\"name\": \"f\", \"arguments\": {\"a\": 1}", "[1, 2]"}) {
    EXPECT_TRUE(ParseToolCalls(text).empty()) << text;
  }
}

const Json& Functions() {
  static const Json functions = Json::parse(R"([
    {"name": "area", "parameters": {"type": "dict", "properties": {
        "base": {"type": "integer"}, "height": {"type": "float"}, "unit": {"type": "string"},
        "exact": {"type": "boolean"}, "points": {"type": "array", "items": {"type": "integer"}},
        "where": {"type": "dict"}}, "required": ["base", "height"]}},
    {"name": "ping", "parameters": {"type": "dict", "properties": {}}}])");
  return functions;
}

std::string Fault(const std::string& truth, const std::string& answer) {
  return ToolCallFault(Functions(), Json::parse(truth), ParseToolCalls(answer));
}

constexpr const char* kArea =
    R"([{"area": {"base": [10], "height": [2.5, 3], "unit": ["Square cm", ""]}}])";

TEST(ToolCallFault, TakesWhatTheLeaderboardTakes) {
  for (const char* answer : {
           R"({"name": "area", "arguments": {"base": 10, "height": 2.5}})",
           R"({"name": "area", "arguments": {"base": 10, "height": 3}})",
           R"({"name": "area", "arguments": {"base": 10, "height": 3.0}})",
           R"({"name": "area", "arguments": {"unit": "square-CM", "base": 10, "height": 3}})",
       }) {
    EXPECT_EQ(Fault(kArea, answer), "") << answer;
  }
  EXPECT_EQ(Fault(R"([{"ping": {}}])", R"({"name": "ping", "arguments": {}})"), "");
  EXPECT_EQ(Fault(R"([{"area": {"base": [1], "height": [1], "points": [[1, 2]]}}])",
                  R"({"name": "area", "arguments": {"base": 1, "height": 1, "points": [1, 2]}})"),
            "");
  EXPECT_EQ(Fault(R"([{"area": {"base": [1], "height": [1],
                       "where": [{"city": ["New York", "NYC"], "zip": ["1", ""]}]}}])",
                  R"({"name": "area", "arguments": {"base": 1, "height": 1,
                      "where": {"city": "new york"}}})"),
            "");
  // A variable where the function says integer.
  EXPECT_EQ(Fault(R"([{"area": {"base": ["width"], "height": [1]}}])",
                  R"({"name": "area", "arguments": {"base": "width", "height": 1}})"),
            "");
  // Several calls, in any order.
  EXPECT_EQ(Fault(R"([{"ping": {}}, {"area": {"base": [1], "height": [1]}}])",
                  R"([{"name": "area", "arguments": {"base": 1, "height": 1}},
                      {"name": "ping", "arguments": {}}])"),
            "");
}

TEST(ToolCallFault, RefusesWhatTheLeaderboardRefuses) {
  const auto area = [](const std::string& arguments) {
    return Fault(kArea, R"({"name": "area", "arguments": )" + arguments + "}");
  };
  EXPECT_EQ(Fault(kArea, "The area is 25."), "no call");
  EXPECT_THAT(Fault(kArea, R"({"name": "ping", "arguments": {}})"), HasSubstr("no call of area"));
  EXPECT_THAT(area(R"({"base": 10})"), HasSubstr("lacks height"));
  EXPECT_THAT(area(R"({"base": 10, "height": 3, "depth": 1})"), HasSubstr("no parameter depth"));
  // Known to the function, not wanted here.
  EXPECT_THAT(area(R"({"base": 10, "height": 3, "exact": true})"), HasSubstr("exact"));
  EXPECT_THAT(area(R"({"base": 11, "height": 3})"), HasSubstr("base of area is 11"));
  EXPECT_THAT(area(R"({"base": "10", "height": 3})"), HasSubstr("no integer"));
  EXPECT_THAT(area(R"({"base": 10.0, "height": 3})"), HasSubstr("no integer"));
  EXPECT_THAT(area(R"({"base": true, "height": 3})"), HasSubstr("no integer"));
  EXPECT_THAT(area(R"({"base": 10, "height": 3, "unit": "inch"})"), HasSubstr("unit"));
  EXPECT_THAT(area(R"({"base": 10, "height": 3, "unit": 1})"), HasSubstr("no string"));
  const std::string call = R"({"name": "area", "arguments": {"base": 10, "height": 3}})";
  EXPECT_THAT(Fault(kArea, "[" + call + "," + call + "]"), HasSubstr("2 calls, wanted 1"));
  EXPECT_NE(Fault(R"([{"ping": {}}, {"ping": {}}])",
                  R"([{"name": "ping", "arguments": {}}, {"name": "area", "arguments": {}}])"),
            "");
  EXPECT_NE(Fault(R"([{"area": {"base": [1], "height": [1], "points": [[1, 2]]}}])",
                  R"({"name": "area", "arguments": {"base": 1, "height": 1, "points": [2, 1]}})"),
            "");
  // A parameter that may not be left out, though the function does not require it.
  EXPECT_THAT(Fault(R"([{"area": {"base": [1], "height": [1], "unit": ["cm"]}}])",
                    R"({"name": "area", "arguments": {"base": 1, "height": 1}})"),
              HasSubstr("lacks unit"));
}

// The first allowed value of each parameter is a right answer, and another function is not.
TEST(ToolCases, OfOurOwnCanBeAnswered) {
  const auto cases = BuiltInToolCases();
  EXPECT_EQ(cases.size(), 20u);
  for (const ToolCase& own : cases) {
    std::vector<ToolCall> calls;
    for (const Json& entry : own.ground_truth) {
      ToolCall call{entry.begin().key(), Json::object()};
      for (const auto& [name, allowed] : entry.begin()->items()) {
        Json value = allowed[0];
        if (value == "") continue;
        if (value.is_object()) {
          for (Json& member : value) member = Json(member[0]);
        }
        call.arguments[name] = value;
      }
      calls.push_back(std::move(call));
    }
    EXPECT_EQ(ToolCallFault(own.functions, own.ground_truth, calls), "") << own.id;
    calls[0].name += "x";
    EXPECT_NE(ToolCallFault(own.functions, own.ground_truth, calls), "") << own.id;
  }
}

class ToolFiles : public testing::Test {
 protected:
  void SetUp() override {
    std::filesystem::remove_all(folder_);
    std::filesystem::create_directories(folder_ + "/possible_answer");
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }
  void Write(const std::string& name, const std::string& text) const {
    std::ofstream(folder_ + "/" + name) << text;
  }
  std::string Refusal() const {
    const auto cases = ReadToolCases(folder_, std::nullopt);
    return cases.ok() ? "" : cases.error().message;
  }
  std::string folder_ = testing::TempDir() + "masu-bfcl";
};

constexpr const char* kQuestion =
    R"("question": [[{"role": "user", "content": "Ping!"}]], "function": [{"name": "ping", "parameters": {"type": "dict", "properties": {}, "required": []}}])";

TEST_F(ToolFiles, AreReadWithTheirAnswersBesideThem) {
  EXPECT_TRUE(ReadToolCases(folder_, std::nullopt)->empty());
  Write("BFCL_v3_simple.json", std::string(R"({"id": "simple_0", )") + kQuestion + "}\n" +
                                   R"({"id": "simple_1", )" + kQuestion + "}\n");
  Write("possible_answer/BFCL_v3_simple.json",
        R"({"id": "simple_1", "ground_truth": [{"ping": {"n": [1]}}]})"
        "\n"
        R"({"id": "simple_0", "ground_truth": [{"ping": {}}]})"
        "\n");
  Write("BFCL_v3_own.json",
        std::string(R"({"id": "own", "ground_truth": [{"ping": {}}], )") + kQuestion + "}\n");
  Write("arc_easy.jsonl", "not ours");
  const auto cases = ReadToolCases(folder_, std::nullopt);
  ASSERT_TRUE(cases.ok()) << cases.error().message;
  ASSERT_EQ(cases->size(), 3u);
  EXPECT_EQ((*cases)[0].id, "own");
  EXPECT_EQ((*cases)[1].id, "simple_0");
  EXPECT_EQ((*cases)[1].messages[0]["content"], "Ping!");
  EXPECT_EQ((*cases)[1].ground_truth, Json::parse(R"([{"ping": {}}])"));
  EXPECT_EQ((*cases)[2].ground_truth, Json::parse(R"([{"ping": {"n": [1]}}])"));
  EXPECT_EQ(ReadToolCases(folder_, 2)->size(), 2u);
}

TEST_F(ToolFiles, FaultsAreNamedByLine) {
  const std::string good =
      std::string(R"({"id": "a", "ground_truth": [{"ping": {}}], )") + kQuestion + "}\n";
  for (
      const auto& [line, names] : std::vector<std::pair<std::string, std::string>>{
          {std::string(R"({"id": "b", )") + kQuestion + "}", "ground_truth"},
          {R"({"id": "b", "question": "Ping!"})", "question"},
          {R"({"id": "b", "question": [[{"role": "user", "content": "x"}], [{"role": "user", "content": "y"}]]})",
           "several turns"},
          {R"({"id": "b", "question": [[{"role": "user", "content": "x"}]], "function": [{}]})",
           "function"},
          {std::string(R"({"id": "b", "ground_truth": [{"ping": {"n": 1}}], )") + kQuestion + "}",
           "ground_truth"},
          {"{", "JSON"}}) {
    Write("BFCL_v3_x.json", good + line + "\n");
    EXPECT_THAT(Refusal(), HasSubstr("BFCL_v3_x.json line 2")) << line;
    EXPECT_THAT(Refusal(), HasSubstr(names)) << line;
  }
}

}  // namespace
}  // namespace masu
