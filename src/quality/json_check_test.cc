// Fifty texts that are the JSON that was asked for and fifty that are not.
#include "quality/json_check.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <set>
#include <string>

namespace masu {
namespace {

// One of each kind of thing that schemas ask for.
constexpr const char* kPerson =
    R"({"type": "object", "properties": {"name": {"type": "string", "minLength": 1},
        "age": {"type": "integer", "minimum": 0, "maximum": 150},
        "height": {"type": "number", "exclusiveMinimum": 0}, "member": {"type": "boolean"},
        "colour": {"enum": ["red", "green", null]},
        "date": {"type": "string", "pattern": "^[0-9]{4}-[0-9]{2}-[0-9]{2}$"},
        "tags": {"type": "array", "items": {"type": "string"}, "minItems": 1, "maxItems": 3,
                 "uniqueItems": true},
        "home": {"type": "object", "properties": {"city": {"type": "string"}},
                 "required": ["city"]},
        "id": {"oneOf": [{"type": "integer"}, {"type": "string"}]}, "kind": {"const": "person"}},
        "required": ["name", "age"], "additionalProperties": false})";
constexpr const char* kNumbers =
    R"({"type": "array", "items": {"type": "integer"}, "minItems": 2, "maxItems": 4})";

struct JsonText {
  const char* text;
  const char* schema = nullptr;
};

constexpr JsonText kValid[] = {
    {"{}"},
    {"[]"},
    {"null"},
    {"true"},
    {"0"},
    {"-0"},
    {"-12.5e-3"},
    {"1E+2"},
    {"\"\""},
    {"\"caf\\u00e9\""},
    {"\"\\ud83d\\ude00\""},
    {"\"\xF0\x9F\x98\x80\""},
    {R"("\" \\ \/ \b \f \n \r \t")"},
    {"[1, 2, 3]"},
    {" \n\t[1]\r\n "},
    {"[[[[[[[[[[1]]]]]]]]]]"},
    {R"({"a": 1})"},
    {R"({"a": {"b": {"c": [null, true, false]}}})"},
    {R"({"": ""})"},
    {R"({"a": 1, "A": 2})"},
    {R"({"a": {"x": 1}, "b": {"x": 1}})"},
    {R"({"text": "a, b: c } ] {"})"},
    {R"({"text": "// no comment"})"},
    {R"({"text": "it's 'fine'"})"},
    {R"({"text": "```"})"},
    {"```json\n{\"a\": 1}\n```"},
    {"```\n[1, 2]\n```"},
    {"\n```JSON\n{\"a\": [1,\n 2]}\n```\n\n"},
    {"[123456789012345678901234567890]"},
    {"[0.1, 1.0, 100e-2]"},
    {R"({"name": "Ada", "age": 36})", kPerson},
    {R"({"age": 0, "name": "B"})", kPerson},
    {R"({"name": "Ada", "age": 150, "height": 1.7})", kPerson},
    {R"({"name": "Ada", "age": 36, "height": 2})", kPerson},
    {R"({"name": "Ada", "age": 36, "member": false})", kPerson},
    {R"({"name": "Ada", "age": 36, "colour": "red"})", kPerson},
    {R"({"name": "Ada", "age": 36, "colour": null})", kPerson},
    {R"({"name": "Ada", "age": 36, "date": "1815-12-10"})", kPerson},
    {R"({"name": "Ada", "age": 36, "tags": ["x"]})", kPerson},
    {R"({"name": "Ada", "age": 36, "tags": ["x", "y", "z"]})", kPerson},
    {R"({"name": "Ada", "age": 36, "home": {"city": "London"}})", kPerson},
    {R"({"name": "Ada", "age": 36, "home": {"city": "London", "zip": 1}})", kPerson},
    {R"({"name": "Ada", "age": 36, "id": 7})", kPerson},
    {R"({"name": "Ada", "age": 36, "id": "7"})", kPerson},
    {R"({"name": "Ada", "age": 36, "kind": "person"})", kPerson},
    {"```json\n{\"name\": \"Ada\", \"age\": 36}\n```", kPerson},
    {R"({"name": "\u00c5sa", "age": 36})", kPerson},
    {"[1, 2]", kNumbers},
    {"[1, -2, 3, 4]", kNumbers},
    {"[\n  10,\n  20\n]\n", kNumbers},
};

constexpr JsonText kBroken[] = {
    {""},
    {"   \n"},
    {"{"},
    {"[1, 2"},
    {R"({"a": 1)"},
    {R"({"a": "b)"},
    {R"({"a":)"},
    {R"({"a": 1, "b)"},
    {"[1, 2,]"},
    {R"({"a": 1,})"},
    {"[1,, 2]"},
    {"[,1]"},
    {"{'a': 1}"},
    {"{\"a\": 'b'}"},
    {"{a: 1}"},
    {R"({"a" 1})"},
    {R"({"a": 1 "b": 2})"},
    {R"({"a", "b"})"},
    {R"({"a": 1}})"},
    {R"({{"a": 1}})"},
    {"[1]]"},
    {R"({"a": [1, 2}})"},
    {"NaN"},
    {R"({"a": NaN})"},
    {"[Infinity]"},
    {"[-Infinity]"},
    {R"({"a": undefined})"},
    {R"({"a": True})"},
    {R"({"a": None})"},
    {"[01]"},
    {"[+1]"},
    {"[.5]"},
    {"[1.]"},
    {"[0x10]"},
    {"[1e]"},
    {R"({"a": "\x41"})"},
    {R"({"a": "\u12"})"},
    {R"({"a": "\ud800"})"},
    {"{\"a\": \"line\nbreak\"}"},
    {"{\"a\": 1} // one"},
    {"Here it is: {\"a\": 1}"},
    {"{\"a\": 1}\nI hope this helps."},
    {"{\"a\": 1}{\"b\": 2}"},
    {R"({"a": 1, "a": 2})"},
    {"```json\n{\"a\": 1}"},
    {R"({"name": "Ada"})", kPerson},
    {R"({"name": "Ada", "age": "36"})", kPerson},
    {R"({"name": "Ada", "age": 36, "tags": ["x", "x"]})", kPerson},
    {R"({"name": "Ada", "age": 36, "extra": 1})", kPerson},
    {"[1, 2.5]", kNumbers},
};
static_assert(std::size(kValid) == 50 && std::size(kBroken) == 50);

// More that conforms to no schema: one fault against each of the person's rules.
constexpr const char* kNoPersons[] = {
    "[]",
    "null",
    R"({"age": 36})",
    R"({"name": "", "age": 36})",
    R"({"name": null, "age": 36})",
    R"({"name": "Ada", "age": -1})",
    R"({"name": "Ada", "age": 151})",
    R"({"name": "Ada", "age": 36.5})",
    R"({"name": "Ada", "age": true})",
    R"({"name": "Ada", "age": 36, "height": 0})",
    R"({"name": "Ada", "age": 36, "member": "true"})",
    R"({"name": "Ada", "age": 36, "member": 0})",
    R"({"name": "Ada", "age": 36, "colour": "blue"})",
    R"({"name": "Ada", "age": 36, "date": "10 December 1815"})",
    R"({"name": "Ada", "age": 36, "tags": []})",
    R"({"name": "Ada", "age": 36, "tags": ["a", "b", "c", "d"]})",
    R"({"name": "Ada", "age": 36, "tags": [1]})",
    R"({"name": "Ada", "age": 36, "tags": "x"})",
    R"({"name": "Ada", "age": 36, "home": {}})",
    R"({"name": "Ada", "age": 36, "home": {"city": 1}})",
    R"({"name": "Ada", "age": 36, "id": 1.5})",
    R"({"name": "Ada", "age": 36, "kind": "dog"})",
};

JsonVerdict Check(const JsonText& json) {
  if (json.schema == nullptr) return CheckJson(json.text);
  const auto schema = nlohmann::json::parse(json.schema);
  return CheckJson(json.text, &schema);
}

TEST(CheckJson, TakesFiftyValidTexts) {
  std::set<std::string> different;
  for (const JsonText& json : kValid) {
    const JsonVerdict verdict = Check(json);
    EXPECT_TRUE(verdict.valid && verdict.conforms) << json.text << ": " << verdict.fault;
    EXPECT_EQ(verdict.fault, "") << json.text;
    EXPECT_EQ(verdict.fenced, std::string(json.text).find("```\n") < 9 ||
                                  std::string(json.text).find("```json\n") == 0 ||
                                  std::string(json.text).find("```JSON\n") == 1)
        << json.text;
    different.insert(json.text);
  }
  EXPECT_EQ(different.size(), 50u);
}

TEST(CheckJson, RefusesFiftyBrokenTexts) {
  std::set<std::string> different;
  for (const JsonText& json : kBroken) {
    const JsonVerdict verdict = Check(json);
    EXPECT_FALSE(verdict.conforms) << json.text;
    // What only a schema forbids is valid JSON.
    EXPECT_EQ(verdict.valid, json.schema != nullptr) << json.text;
    EXPECT_NE(verdict.fault, "") << json.text;
    EXPECT_EQ(verdict.fault.find('\n'), std::string::npos) << verdict.fault;
    different.insert(json.text);
  }
  EXPECT_EQ(different.size(), 50u);
}

TEST(CheckJson, FindsEveryFaultAgainstASchema) {
  for (const char* text : kNoPersons) {
    const JsonVerdict verdict = Check({text, kPerson});
    EXPECT_TRUE(verdict.valid) << text;
    EXPECT_FALSE(verdict.conforms) << text;
  }
  EXPECT_NE(Check({R"({"name": "Ada"})", kPerson}).fault.find("age"), std::string::npos);
}

TEST(CheckJson, RefusesHostileTexts) {
  EXPECT_FALSE(CheckJson(std::string(100'000, '[')).valid);
  EXPECT_FALSE(CheckJson(std::string(200, '[') + std::string(200, ']')).valid);
  EXPECT_FALSE(CheckJson(std::string("{}\0{}", 5)).valid);
  EXPECT_FALSE(CheckJson("\"\xff\"").valid);
  EXPECT_FALSE(CheckJson("```").valid);
  EXPECT_FALSE(CheckJson("``````").valid);
}

}  // namespace
}  // namespace masu
