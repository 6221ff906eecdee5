// The tests of the template language ("x is NAME").
#include <algorithm>

#include "text/jinja_filters.h"
#include "text/jinja_operators.h"
#include "text/jinja_strings.h"

namespace masu::jinja {
namespace {

using TestTable = std::unordered_map<std::string_view, Test>;

const Value& Argument(const Arguments& arguments) {
  if (arguments.positional.size() != 1 || !arguments.named.empty()) {
    Fail("this test takes one argument");
  }
  return arguments.positional[0];
}

bool SameAs(const Value& a, const Value& b) {
  return a.state().index() == b.state().index() && Equal(a, b);
}

bool IsSequence(const Value& value) {
  return value.IsUndefined() || value.IsString() || value.IsDict() ||
         value.IsKind(List::Kind::kList) || value.IsKind(List::Kind::kTuple);
}

Integer Remainder(const Value& value, const Value& divisor) {
  const Value result = Arithmetic("%", value, divisor);
  return result.IsIntegral() ? result.integer() : (result.Truthy() ? 1 : 0);
}

template <int kSign, bool kOrEqual>
bool Ordered(const Value& value, const Arguments& arguments) {
  const int order = Compare(value, Argument(arguments));
  return (kOrEqual && order == 0) || (kSign < 0 ? order < 0 : order > 0);
}

void AddTypeTests(TestTable* tests) {
  auto& t = *tests;
  t["boolean"] = [](const Value& v, const Arguments&) { return v.IsBool(); };
  t["callable"] = [](const Value& v, const Arguments&) {
    return v.IsCallable() || v.IsUndefined();
  };
  t["defined"] = [](const Value& v, const Arguments&) { return !v.IsUndefined(); };
  t["undefined"] = [](const Value& v, const Arguments&) { return v.IsUndefined(); };
  t["escaped"] = [](const Value& v, const Arguments&) { return v.IsString() && v.text().markup(); };
  t["false"] = [](const Value& v, const Arguments&) { return v.IsBool() && !v.boolean(); };
  t["true"] = [](const Value& v, const Arguments&) { return v.IsBool() && v.boolean(); };
  t["float"] = [](const Value& v, const Arguments&) { return v.IsFloat(); };
  t["integer"] = [](const Value& v, const Arguments&) { return v.IsInteger(); };
  t["number"] = [](const Value& v, const Arguments&) { return v.IsNumber(); };
  t["iterable"] = [](const Value& v, const Arguments&) { return IsIterable(v); };
  t["mapping"] = [](const Value& v, const Arguments&) { return v.IsDict(); };
  t["none"] = [](const Value& v, const Arguments&) { return v.IsNone(); };
  t["sequence"] = [](const Value& v, const Arguments&) { return IsSequence(v); };
  t["string"] = [](const Value& v, const Arguments&) { return v.IsString(); };
  t["filter"] = [](const Value& v, const Arguments&) {
    return v.IsString() && FilterSupport(v.text().view()) == Support::kKnown;
  };
  t["test"] = [](const Value& v, const Arguments&) {
    return v.IsString() && TestSupport(v.text().view()) == Support::kKnown;
  };
}

void AddValueTests(TestTable* tests) {
  auto& t = *tests;
  t["divisibleby"] = [](const Value& v, const Arguments& a) {
    return Remainder(v, Argument(a)) == 0;
  };
  t["even"] = [](const Value& v, const Arguments&) {
    return Remainder(v, Value::Of(Integer{2})) == 0;
  };
  t["odd"] = [](const Value& v, const Arguments&) {
    return Equal(Arithmetic("%", v, Value::Of(Integer{2})), Value::Of(Integer{1}));
  };
  t["lower"] = [](const Value& v, const Arguments&) { return IsLowerCase(ToText(v).view()); };
  t["upper"] = [](const Value& v, const Arguments&) { return IsUpperCase(ToText(v).view()); };
  t["sameas"] = [](const Value& v, const Arguments& a) { return SameAs(v, Argument(a)); };
  t["in"] = [](const Value& v, const Arguments& a) { return Contains(Argument(a), v); };
  for (const char* name : {"eq", "==", "equalto"}) {
    t[name] = [](const Value& v, const Arguments& a) { return Equal(v, Argument(a)); };
  }
  for (const char* name : {"ne", "!="}) {
    t[name] = [](const Value& v, const Arguments& a) { return !Equal(v, Argument(a)); };
  }
  for (const char* name : {"lt", "<", "lessthan"}) t[name] = Ordered<-1, false>;
  for (const char* name : {"le", "<="}) t[name] = Ordered<-1, true>;
  for (const char* name : {"gt", ">", "greaterthan"}) t[name] = Ordered<1, false>;
  for (const char* name : {"ge", ">="}) t[name] = Ordered<1, true>;
}

const TestTable& Tests() {
  static const TestTable table = [] {
    TestTable tests;
    AddTypeTests(&tests);
    AddValueTests(&tests);
    return tests;
  }();
  return table;
}

}  // namespace

Support TestSupport(std::string_view name) {
  return Tests().contains(name) ? Support::kKnown : Support::kUnknown;
}

bool ApplyTest(std::string_view name, const Value& value, const Arguments& arguments) {
  const auto found = Tests().find(name);
  if (found == Tests().end()) Fail("no test named '{}'", name);
  return found->second(value, arguments);
}

}  // namespace masu::jinja
