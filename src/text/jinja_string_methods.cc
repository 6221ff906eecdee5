#include "text/jinja_string_methods.h"

#include <algorithm>
#include <unordered_map>

#include "text/jinja_filters.h"
#include "text/jinja_interpreter.h"
#include "text/jinja_strings.h"

namespace masu::jinja {
namespace {

using StringMethod = Value (*)(const Text& self, const Arguments& arguments);
using Table = std::unordered_map<std::string_view, StringMethod>;

template <Text (*kFunction)(const Text&)>
Value Simple(const Text& self, const Arguments& arguments) {
  Bind("this method", arguments, {});
  return Value::Of(kFunction(self));
}

template <Side kSide>
Value StripMethod(const Text& self, const Arguments& arguments) {
  const auto bound = Bind("strip", arguments, {"chars"});
  const bool space = bound[0] == nullptr || bound[0]->IsNone();
  return Value::Of(Strip(self, space ? nullptr : &TextOf("strip", *bound[0]), kSide));
}

template <bool kFromRight>
Value SplitMethod(const Text& self, const Arguments& arguments) {
  const auto bound = Bind("split", arguments, {"sep", "maxsplit"});
  const Integer limit = IntegerOr("split", bound[1], -1);
  if (bound[0] == nullptr || bound[0]->IsNone()) {
    return Value::OfList(SplitSpace(self, limit, kFromRight));
  }
  return Value::OfList(Split(self, TextOf("split", *bound[0]).view(), limit, kFromRight));
}

Value SplitLinesMethod(const Text& self, const Arguments& arguments) {
  const auto bound = Bind("splitlines", arguments, {"keepends"});
  std::vector<Value> lines;
  for (Text& line : SplitLines(self, BoolOr(bound[0], false))) {
    lines.push_back(Value::Of(std::move(line)));
  }
  return Value::OfList(std::move(lines));
}

// The part of the string that the optional arguments start and end select, in bytes.
std::pair<size_t, size_t> Window(const Text& self, const Value* start, const Value* end) {
  const auto length = static_cast<Integer>(CountCharacters(self.view()));
  const auto offset = [&](const Value* value, Integer otherwise) {
    Integer index = value == nullptr || value->IsNone() ? otherwise : IntegerOr("find", value, 0);
    if (index < 0) index += length;
    return OffsetOfCharacter(self.view(),
                             static_cast<size_t>(std::clamp<Integer>(index, 0, length)));
  };
  return {offset(start, 0), offset(end, length)};
}

template <bool kAtStart>
Value HasAffix(const Text& self, const Arguments& arguments) {
  const auto bound =
      Bind(kAtStart ? "startswith" : "endswith", arguments, {"affix", "start", "end"}, 1);
  const auto [begin, end] = Window(self, bound[1], bound[2]);
  const std::string_view text = self.view().substr(begin, end > begin ? end - begin : 0);
  std::vector<Value> candidates = {*bound[0]};
  if (bound[0]->IsKind(List::Kind::kTuple)) candidates = bound[0]->list().items;
  for (const Value& candidate : candidates) {
    const std::string_view affix = TextOf("startswith or endswith", candidate).view();
    if (kAtStart ? text.starts_with(affix) : text.ends_with(affix)) return Value::Of(true);
  }
  return Value::Of(false);
}

// The index in characters of the first or last occurrence, or -1.
template <bool kFromRight>
Integer Locate(const Text& self, const Arguments& arguments) {
  const auto bound = Bind("find", arguments, {"sub", "start", "end"}, 1);
  const auto [begin, end] = Window(self, bound[1], bound[2]);
  if (end < begin) return -1;
  const std::string_view text = self.view().substr(begin, end - begin);
  const std::string_view wanted = TextOf("find", *bound[0]).view();
  const size_t at = kFromRight ? text.rfind(wanted) : text.find(wanted);
  if (at == std::string_view::npos) return -1;
  return static_cast<Integer>(CountCharacters(self.view().substr(0, begin + at)));
}

template <bool kFromRight>
Value Find(const Text& self, const Arguments& arguments) {
  return Value::Of(Locate<kFromRight>(self, arguments));
}

template <bool kFromRight>
Value IndexOf(const Text& self, const Arguments& arguments) {
  const Integer at = Locate<kFromRight>(self, arguments);
  if (at < 0) Fail("substring not found");
  return Value::Of(at);
}

Value CountMethod(const Text& self, const Arguments& arguments) {
  const auto bound = Bind("count", arguments, {"sub", "start", "end"}, 1);
  const auto [begin, end] = Window(self, bound[1], bound[2]);
  const Text window = self.Substr(begin, end > begin ? end - begin : 0);
  const Text& wanted = TextOf("count", *bound[0]);
  if (wanted.empty()) return Value::OfSize(CountCharacters(window.view()) + 1);
  return Value::OfSize(Split(window, wanted.view(), -1, false).size() - 1);
}

Value ReplaceMethod(const Text& self, const Arguments& arguments) {
  const auto bound = Bind("replace", arguments, {"old", "new", "count"}, 2);
  return Value::Of(Replace(self, TextOf("replace", *bound[0]), TextOf("replace", *bound[1]),
                           IntegerOr("replace", bound[2], -1)));
}

Value JoinMethod(const Text& self, const Arguments& arguments) {
  const auto bound = Bind("join", arguments, {"iterable"}, 1);
  std::vector<Text> parts;
  for (const Value& item : Iterate(*bound[0])) parts.push_back(TextOf("join", item));
  return Value::Of(Join(self, parts));
}

template <bool kFromRight>
Value Partition(const Text& self, const Arguments& arguments) {
  const auto bound = Bind("partition", arguments, {"sep"}, 1);
  const Text& separator = TextOf("partition", *bound[0]);
  const auto parts = Split(self, separator.view(), 1, kFromRight);
  const Value empty = Value::Of(Text());
  std::vector<Value> out = {parts[0], *bound[0], parts.back()};
  if (parts.size() == 1 && kFromRight) out = {empty, empty, parts[0]};
  if (parts.size() == 1 && !kFromRight) out = {parts[0], empty, empty};
  return Value::OfList(std::move(out), List::Kind::kTuple);
}

template <bool kPrefix>
Value RemoveAffix(const Text& self, const Arguments& arguments) {
  const auto bound = Bind("removeprefix", arguments, {"affix"}, 1);
  const std::string_view affix = TextOf("removeprefix", *bound[0]).view();
  if (kPrefix && self.view().starts_with(affix)) return Value::Of(self.Substr(affix.size()));
  if (!kPrefix && self.view().ends_with(affix)) {
    return Value::Of(self.Substr(0, self.size() - affix.size()));
  }
  return Value::Of(self);
}

template <Side kTextSide>
Value PadMethod(const Text& self, const Arguments& arguments) {
  const auto bound = Bind("this method", arguments, {"width", "fillchar"}, 1);
  const Text fill = bound[1] != nullptr ? TextOf("fillchar", *bound[1]) : Text::Trusted(" ");
  return Value::Of(Pad(self, IntegerOr("width", bound[0], 0), fill, kTextSide));
}

Value ZeroFill(const Text& self, const Arguments& arguments) {
  const auto bound = Bind("zfill", arguments, {"width"}, 1);
  const bool sign = self.view().starts_with('-') || self.view().starts_with('+');
  Text out = self.Substr(0, sign ? 1 : 0);
  const Integer width = IntegerOr("zfill", bound[0], 0) - static_cast<Integer>(out.size());
  out.Append(Pad(self.Substr(out.size()), width, Text::Trusted("0"), Side::kRight));
  return Value::Of(std::move(out));
}

Value FormatMethod(const Text& self, const Arguments& arguments) {
  return Value::Of(FormatBraces(self, arguments));
}

template <bool (*kAccepts)(char32_t)>
Value IsAll(const Text& self, const Arguments&) {
  return Value::Of(AllCharacters(self.view(), kAccepts));
}

Text Casefold(const Text& text) {
  return Replace(ToLower(text), Text::Trusted("\xC3\x9F"), Text::Trusted("ss"), -1);
}

bool IsAlphanumeric(char32_t code) { return IsLetter(code) || IsNumeric(code); }

Table MakeTable() {
  return {
      {"upper", Simple<ToUpper>},
      {"lower", Simple<ToLower>},
      {"casefold", Simple<Casefold>},
      {"title", Simple<Title>},
      {"capitalize", Simple<Capitalize>},
      {"strip", StripMethod<Side::kBoth>},
      {"lstrip", StripMethod<Side::kLeft>},
      {"rstrip", StripMethod<Side::kRight>},
      {"split", SplitMethod<false>},
      {"rsplit", SplitMethod<true>},
      {"splitlines", SplitLinesMethod},
      {"startswith", HasAffix<true>},
      {"endswith", HasAffix<false>},
      {"find", Find<false>},
      {"rfind", Find<true>},
      {"index", IndexOf<false>},
      {"rindex", IndexOf<true>},
      {"count", CountMethod},
      {"replace", ReplaceMethod},
      {"join", JoinMethod},
      {"partition", Partition<false>},
      {"rpartition", Partition<true>},
      {"removeprefix", RemoveAffix<true>},
      {"removesuffix", RemoveAffix<false>},
      {"ljust", PadMethod<Side::kLeft>},
      {"rjust", PadMethod<Side::kRight>},
      {"center", PadMethod<Side::kBoth>},
      {"zfill", ZeroFill},
      {"format", FormatMethod},
      {"isalpha", IsAll<IsLetter>},
      {"isalnum", IsAll<IsAlphanumeric>},
      {"isdigit", IsAll<IsDecimalDigit>},
      {"isdecimal", IsAll<IsDecimalDigit>},
      {"isnumeric", IsAll<IsNumeric>},
      {"isspace", IsAll<IsPythonSpace>},
      {"islower",
       [](const Text& self, const Arguments&) { return Value::Of(IsLowerCase(self.view())); }},
      {"isupper",
       [](const Text& self, const Arguments&) { return Value::Of(IsUpperCase(self.view())); }},
      {"isascii",
       [](const Text& self, const Arguments&) { return Value::Of(IsAsciiText(self.view())); }},
  };
}

constexpr std::string_view kNotBuilt[] = {"encode",       "expandtabs",  "format_map",
                                          "isidentifier", "isprintable", "istitle",
                                          "maketrans",    "swapcase",    "translate"};

}  // namespace

std::optional<Value> FindStringMethod(const Value& object, std::string_view name) {
  static const Table table = MakeTable();
  const auto found = table.find(name);
  if (found != table.end()) {
    return Value::OfFunction(std::string(name), [object, method = found->second](
                                                    Interpreter&, const Arguments& arguments) {
      return method(object.text(), arguments);
    });
  }
  if (std::find(std::begin(kNotBuilt), std::end(kNotBuilt), name) == std::end(kNotBuilt)) {
    return std::nullopt;
  }
  return Value::OfFunction(std::string(name),
                           [text = std::string(name)](Interpreter&, const Arguments&) -> Value {
                             Fail("the string method '{}' is not supported", text);
                           });
}

}  // namespace masu::jinja
