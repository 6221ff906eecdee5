// Filters that make text.
#include <algorithm>

#include "text/jinja_filters.h"
#include "text/jinja_interpreter.h"
#include "text/jinja_json.h"
#include "text/jinja_strings.h"

namespace masu::jinja {
namespace {

// A filter of the value's text without arguments.
template <Text (*kFunction)(const Text&)>
Value OnText(Interpreter&, const Value& value, const Arguments& arguments) {
  Bind("this filter", arguments, {});
  return Value::Of(kFunction(ToText(value)));
}

Value String(Interpreter&, const Value& value, const Arguments& arguments) {
  Bind("string", arguments, {});
  return value.IsString() ? value : Value::Of(ToText(value));
}

Value Safe(Interpreter&, const Value& value, const Arguments&) {
  Text text = ToText(value);
  text.set_markup(true);
  return Value::Of(std::move(text));
}

Value Escape(Interpreter&, const Value& value, const Arguments&) {
  const Text text = ToText(value);
  return Value::Of(text.markup() ? text : EscapeHtml(text));
}

Value Trim(Interpreter&, const Value& value, const Arguments& arguments) {
  const auto bound = Bind("trim", arguments, {"chars"});
  const bool space = bound[0] == nullptr || bound[0]->IsNone();
  return Value::Of(Strip(ToText(value), space ? nullptr : &TextOf("trim", *bound[0]), Side::kBoth));
}

// Unlike str.title(), the filter starts a word only after white space, a dash or a bracket.
Value TitleFilter(Interpreter&, const Value& value, const Arguments& arguments) {
  Bind("title", arguments, {});
  const Text text = ToText(value);
  Text out;
  bool starts_word = true;
  for (const Value& item : Iterate(Value::Of(text))) {
    const Text& character = item.text();
    out.Append(starts_word ? ToUpper(character) : ToLower(character));
    starts_word = AllCharacters(character.view(), IsPythonSpace) ||
                  std::string_view("-({[<").find(character.view()) != std::string_view::npos;
  }
  out.set_markup(text.markup());
  return Value::Of(std::move(out));
}

Value ReplaceFilter(Interpreter&, const Value& value, const Arguments& arguments) {
  const auto bound = Bind("replace", arguments, {"old", "new", "count"}, 2);
  const bool all = bound[2] == nullptr || bound[2]->IsNone();
  const Integer limit = all ? Integer{-1} : IntegerOr("replace", bound[2], -1);
  Text text = ToText(value);
  text.set_markup(false);
  return Value::Of(Replace(text, ToText(*bound[0]), ToText(*bound[1]), limit));
}

Value Indent(Interpreter&, const Value& value, const Arguments& arguments) {
  const auto bound = Bind("indent", arguments, {"width", "first", "blank"});
  const Value width = bound[0] != nullptr ? *bound[0] : Value::Of(Integer{4});
  Text step;
  if (width.IsString()) {
    step = width.text();
  } else {
    step = Pad({}, IntegerOr("indent", &width, 4), Text::Trusted(" "), Side::kLeft);
  }
  Text source = TextOf("indent", value);
  const bool trusted = source.AllTrusted();  // who gets the newlines
  source.Append("\n", trusted);
  const bool blank = BoolOr(bound[2], false);
  const std::vector<Text> lines = SplitLines(source, false);
  Text out;
  if (BoolOr(bound[1], false)) out.Append(step);
  for (size_t i = 0; i < lines.size(); ++i) {
    if (i > 0) out.Append("\n", trusted);
    if (i > 0 && (blank || !lines[i].empty())) out.Append(step);
    out.Append(lines[i]);
  }
  return Value::Of(std::move(out));
}

// As the tojson that transformers puts into the environment: Python's json.dumps without escapes
// for HTML.
Value ToJsonFilter(Interpreter&, const Value& value, const Arguments& arguments) {
  const auto bound =
      Bind("tojson", arguments, {"ensure_ascii", "indent", "separators", "sort_keys"});
  JsonStyle style;
  style.ensure_ascii = BoolOr(bound[0], false);
  style.sort_keys = BoolOr(bound[3], false);
  if (bound[1] != nullptr && !bound[1]->IsNone()) {
    style.item_separator = ",";
    if (bound[1]->IsString()) {
      style.indent = bound[1]->text().str();
    } else {
      const Integer width = IntegerOr("tojson", bound[1], 0);
      if (width > 1000) Fail("tojson(): an indent above 1000 is not supported");
      style.indent = std::string(static_cast<size_t>(std::max<Integer>(width, 0)), ' ');
    }
  }
  if (bound[2] != nullptr && !bound[2]->IsNone()) {
    const std::vector<Value> separators = Iterate(*bound[2]);
    if (separators.size() != 2) Fail("tojson(): separators must be two strings");
    style.item_separator = TextOf("tojson", separators[0]).str();
    style.key_separator = TextOf("tojson", separators[1]).str();
  }
  RequireDefined(value);
  return Value::Of(ToJson(value, style, kMaxTextBytes));
}

}  // namespace

void AddTextFilters(FilterTable* table) {
  auto& t = *table;
  t["upper"] = OnText<ToUpper>;
  t["lower"] = OnText<ToLower>;
  t["capitalize"] = OnText<Capitalize>;
  t["title"] = TitleFilter;
  t["string"] = String;
  t["safe"] = Safe;
  t["escape"] = t["e"] = Escape;
  t["trim"] = Trim;
  t["replace"] = ReplaceFilter;
  t["indent"] = Indent;
  t["tojson"] = ToJsonFilter;
}

}  // namespace masu::jinja
