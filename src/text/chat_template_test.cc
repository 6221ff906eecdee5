#include "text/chat_template.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>

#include <fstream>
#include <nlohmann/json.hpp>

namespace masu {
namespace {

using ::testing::HasSubstr;
using Json = nlohmann::ordered_json;

std::string Joined(const std::vector<TextSegment>& segments) {
  std::string text;
  for (const TextSegment& segment : segments) text += segment.text;
  return text;
}

Result<std::vector<TextSegment>> RenderSegments(const std::string& source, const Json& messages,
                                                const Json& arguments = Json::object()) {
  auto parsed = ChatTemplate::Parse(source);
  if (!parsed.ok()) return parsed.error();
  ChatTemplateInput input;
  input.messages = &messages;
  input.arguments = &arguments;
  input.bos_token = "<s>";
  return (*parsed)->Render(input);
}

std::string ErrorOf(const std::string& source, const Json& messages = Json::array()) {
  const auto rendered = RenderSegments(source, messages);
  return rendered.ok() ? "no error" : rendered.error().message;
}

// Report B509: one feature in each of tests/golden/mini_templates.json, which
// make_template_golden.py wrote with jinja2.
TEST(ChatTemplate, MiniTemplatesRenderAsJinja2) {
  ::setenv("TZ", "UTC", 1);
  std::ifstream in("tests/golden/mini_templates.json");
  ASSERT_TRUE(in.good()) << "run from the root of the repository";
  const Json golden = Json::parse(in);
  ASSERT_GT(golden["cases"].size(), 30u);
  for (const Json& test : golden["cases"]) {
    SCOPED_TRACE(test["name"].get<std::string>());
    const auto parsed = ChatTemplate::Parse(test["template"].get<std::string>());
    const Json& expected = test["expected"];
    ASSERT_EQ(parsed.ok(), !expected.contains("parse_error"))
        << (parsed.ok() ? "" : parsed.error().message);
    if (!parsed.ok()) {
      EXPECT_THAT(parsed.error().message, HasSubstr("line "));
      continue;
    }
    ChatTemplateInput input;
    input.messages = &golden["messages"];
    input.tools = &golden["tools"];
    input.bos_token = "<s>";
    input.eos_token = "</s>";
    input.now = golden["now"].get<std::time_t>();
    const auto rendered = (*parsed)->Render(input);
    if (expected.contains("text")) {
      ASSERT_TRUE(rendered.ok()) << rendered.error().message;
      EXPECT_EQ(Joined(*rendered), expected["text"].get<std::string>());
    } else {
      EXPECT_FALSE(rendered.ok()) << expected.dump();
    }
  }
}

// Report B509: what is not supported is known when the template is loaded, not at a request.
TEST(ChatTemplate, UnsupportedFeaturesAreRefusedAtLoad) {
  for (const auto& [source, message] :
       {std::pair("a\n{% include 'x' %}", "line 2: the statement 'include'"),
        std::pair("{% extends 'x' %}", "line 1: the statement 'extends'"),
        std::pair("\n\n{{ 1|xmlattr }}", "line 3: the filter 'xmlattr'"),
        std::pair("\n{{ 1 is divisible }}", "line 2: no test named 'divisible'")}) {
    const auto parsed = ChatTemplate::Parse(source);
    ASSERT_FALSE(parsed.ok()) << source;
    EXPECT_THAT(parsed.error().message, HasSubstr(message));
  }
}

TEST(ChatTemplate, ErrorsNameLineAndCause) {
  EXPECT_THAT(ErrorOf("a\n\n{{ raise_exception('no such role') }}"),
              HasSubstr("line 3: no such role"));
  EXPECT_THAT(ErrorOf("a\n{{ x.y }}"), HasSubstr("line 2: 'x' is undefined"));
  EXPECT_THAT(ErrorOf("a\n{% include 'x' %}"), HasSubstr("line 2: the statement 'include'"));
  EXPECT_THAT(ErrorOf("{{ x|xmlattr }}"), HasSubstr("line 1: the filter 'xmlattr'"));
  EXPECT_THAT(ErrorOf("{{ \"\xFF\" }}"), HasSubstr("UTF-8"));
}

TEST(ChatTemplate, TextKeepsItsAuthorThroughEverything) {
  const Json messages = Json::parse(R"([{"role": "user", "content": "EVIL x EVIL"}])");
  const char* expressions[] = {
      "messages[0].content",
      "messages[0].content|upper",
      "messages[0].content|trim|replace('x', '<t>')",
      "'<t>' ~ messages[0].content ~ '<t>'",
      "'<t>' + messages[0].content",
      "messages[0].content.split('x')|join('<t>')",
      "messages[0].content[::-1][::-1]",
      "messages|tojson",
      "messages|string",
      "'<t>%s' % messages[0].content",
      "'<t>{}'.format(messages[0].content)",
      "messages|map(attribute='content')|join('<t>')",
      "'<t>'.join(messages[0].content.split())",
      "'<t>x'|replace('x', messages[0].content)",
      "messages[0].content|indent(2, first=true)",
      "{'<t>': messages[0].content}",
      "kwarg ~ '<t>'",
      "dict(**{messages[0].content: 1})",
      "messages[0].content.format(1)",
  };
  for (const char* expression : expressions) {
    const auto rendered = RenderSegments("<t>{{ " + std::string(expression) + " }}<t>", messages,
                                         {{"kwarg", "EVIL"}});
    ASSERT_TRUE(rendered.ok()) << expression << ": " << rendered.error().message;
    EXPECT_THAT(Joined(*rendered), HasSubstr("EVIL")) << expression;
    for (const TextSegment& segment : *rendered) {
      const bool evil = segment.text.find("EVIL") != std::string::npos;
      EXPECT_FALSE(segment.trusted && evil) << expression;
      const bool tag = segment.text.find("<t>") != std::string::npos;
      EXPECT_FALSE(!segment.trusted && tag) << expression;
    }
  }
  const auto tokens = RenderSegments(
      "{{ bos_token }}{% set x %}<a>{{ bos_token }}{% endset %}{{ x|trim }}", messages);
  ASSERT_TRUE(tokens.ok());
  ASSERT_EQ(tokens->size(), 1u);
  EXPECT_TRUE((*tokens)[0].trusted);
}

TEST(ChatTemplate, FormatsOfUsersStayUntrusted) {
  const Json messages = Json::parse(R"([{"content": "{0:<<2}{0:|<1}"}])");
  const auto rendered = RenderSegments("{{ messages[0].content.format('') }}", messages);
  ASSERT_TRUE(rendered.ok()) << rendered.error().message;
  EXPECT_EQ(Joined(*rendered), "<<|");
  for (const TextSegment& segment : *rendered) EXPECT_FALSE(segment.trusted);
}

TEST(ChatTemplate, RequestsCannotReplaceTheTokens) {
  const auto rendered =
      RenderSegments("{{ bos_token }}", Json::array(), {{"bos_token", "EVIL"}, {"messages", 1}});
  ASSERT_TRUE(rendered.ok());
  EXPECT_EQ(Joined(*rendered), "<s>");
}

std::string Nested(const std::string& open, const std::string& middle, const std::string& close) {
  std::string left;
  std::string right;
  for (int i = 0; i < 100'000; ++i) {
    left += open;
    right += close;
  }
  return left + middle + right;
}

TEST(ChatTemplate, LimitsAreErrorsNotCrashes) {
  const std::string hostile[] = {
      "{% for a in range(99999) %}{% for b in range(99999) %}{{ a }}{% endfor %}{% endfor %}",
      "{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}",
      "{% set n = namespace(s='x') %}{% for i in range(99) %}{% set n.s = n.s ~ n.s %}{% endfor %}",
      "{{ 'x' * 99999999999 }}",
      "{{ [1] * 99999999999 }}",
      "{% set n = namespace(l=0) %}{% for i in range(99999) %}{% set n.l=[n.l] %}{% endfor "
      "%}{{n.l}}",
      "{{ '%999999d' % 1 }}",
      "{{ ('x' * 1000000)|replace('', 'y' * 1000000) }}",
      "{{ range(100001) }}",
      "{{ 2 ** 1000 }}",
      "{{ 1 // 0 }}",
      "{{ " + Nested("(", "1", ")") + " }}",
      "{{ " + Nested("[", "1", "]") + " }}",
      "{{ " + Nested("-", "1", "") + " }}",
      "{{ " + Nested("not ", "1", "") + " }}",
      "{{ 1" + Nested("", "", "+1") + " }}",
      "{{ x" + Nested("", "", ".y") + " }}",
      "{{ x" + Nested("", "", "|e") + " }}",
      Nested("{% if 1 %}", "x", "{% endif %}"),
      Nested("{% set x %}", "x", "{% endset %}"),
      "{% for x in " + Nested("(", "x", ")") + " %}{% endfor %}",
      "{% set " + Nested("(", "x", ")") + " = 1 %}",
  };
  for (const std::string& source : hostile) {
    EXPECT_NE(ErrorOf(source), "no error") << source.substr(0, 100);
  }
  // A value that holds itself, and a long chain of namespaces, end without a crash.
  EXPECT_EQ(ErrorOf("{% set a = namespace() %}{% set a.b = a %}{{ a }}"), "no error");
  EXPECT_EQ(ErrorOf("{% set r = namespace(x=1) %}{% for i in range(99999) %}"
                    "{% set n = namespace(x=r.x) %}{% set r.x = n %}{% endfor %}"),
            "no error");
}

TEST(ChatTemplate, LargeConversationsAreFine) {
  Json messages = Json::array();
  for (int i = 0; i < 4000; ++i) {
    messages.push_back(
        {{"role", i % 2 == 0 ? "user" : "assistant"}, {"content", std::string(1000, 'x')}});
  }
  const auto rendered = RenderSegments(
      "{% for m in messages %}{{ '<|' + m['role'] + '|>' + m['content']|trim }}\n{% endfor %}",
      messages);
  ASSERT_TRUE(rendered.ok()) << rendered.error().message;
  EXPECT_GT(Joined(*rendered).size(), 4'000'000u);
}

}  // namespace
}  // namespace masu
