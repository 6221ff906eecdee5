// Values of the template language with Python's semantics. Containers are shared and immutable
// (templates run in jinja2's immutable sandbox), except namespaces. Not thread-safe: one render
// owns its values.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <variant>
#include <vector>

#include "text/jinja_error.h"
#include "text/jinja_text.h"

namespace masu::jinja {

class Value;
class Interpreter;

// Wide enough for every 64-bit integer that JSON brings; what does not fit is an error, not a wrap.
using Integer = __int128;

// `hint` is the message for uses that Python refuses.
struct Undefined {
  std::string hint;
  bool operator==(const Undefined&) const = default;
};
struct None {
  bool operator==(const None&) const = default;
};

struct List {
  enum class Kind { kList, kTuple, kView, kGenerator };
  std::vector<Value> items;
  Kind kind = Kind::kList;
  bool consumed = false;  // a generator can be walked once
  int depth = 1;          // nesting; bounded, so that recursion over values is
};

struct Dict {
  std::vector<std::pair<Value, Value>> items;     // in order of insertion
  std::unordered_map<std::string, size_t> index;  // by KeyOf
  int depth = 1;
  const Value* Find(const Value& key) const;
  const Value* Find(std::string_view key) const;
  void Set(Value key, Value value);
};

struct Namespace {
  std::vector<std::pair<std::string, Value>> attributes;
  Value* Find(std::string_view name);
};

struct Arguments {
  std::vector<Value> positional;
  std::vector<std::pair<std::string, Value>> named;
};

// A macro, a global function, a method bound to its object, or caller().
struct Callable {
  std::string name;
  std::function<Value(Interpreter&, const Arguments&)> call;
};

struct LoopState;

class Value {
 public:
  using State =
      std::variant<Undefined, None, bool, Integer, double, std::shared_ptr<const Text>,
                   std::shared_ptr<List>, std::shared_ptr<Dict>, std::shared_ptr<Namespace>,
                   std::shared_ptr<const Callable>, std::shared_ptr<LoopState>>;
  Value() : state_(Undefined{}) {}
  explicit Value(State state) : state_(std::move(state)) {}
  static Value OfUndefined(std::string hint) { return Value(State(Undefined{std::move(hint)})); }
  static Value OfNone() { return Value(State(None{})); }
  static Value Of(bool value) { return Value(State(value)); }
  static Value Of(Integer value) { return Value(State(value)); }
  static Value Of(double value) { return Value(State(value)); }
  static Value Of(Text text) { return Value(State(std::make_shared<const Text>(std::move(text)))); }
  static Value OfSize(size_t value) { return Of(static_cast<Integer>(value)); }
  static Value OfTrusted(std::string text) { return Of(Text::Trusted(std::move(text))); }
  static Value OfList(std::vector<Value> items, List::Kind kind = List::Kind::kList);
  static Value OfDict(std::shared_ptr<Dict> dict);
  static Value OfFunction(std::string name,
                          std::function<Value(Interpreter&, const Arguments&)> call);

  bool IsUndefined() const { return Holds<Undefined>(); }
  bool IsNone() const { return Holds<None>(); }
  bool IsBool() const { return Holds<bool>(); }
  bool IsInteger() const { return Holds<Integer>(); }
  bool IsFloat() const { return Holds<double>(); }
  bool IsNumber() const { return IsBool() || IsInteger() || IsFloat(); }
  bool IsString() const { return Holds<std::shared_ptr<const Text>>(); }
  bool IsList() const { return Holds<std::shared_ptr<List>>(); }
  bool IsDict() const { return Holds<std::shared_ptr<Dict>>(); }
  bool IsNamespace() const { return Holds<std::shared_ptr<Namespace>>(); }
  bool IsCallable() const { return Holds<std::shared_ptr<const Callable>>(); }
  bool IsLoop() const { return Holds<std::shared_ptr<LoopState>>(); }

  // The kind must have been checked.
  bool boolean() const { return std::get<bool>(state_); }
  double real() const { return std::get<double>(state_); }
  const Text& text() const { return *std::get<std::shared_ptr<const Text>>(state_); }
  List& list() const { return *std::get<std::shared_ptr<List>>(state_); }
  Dict& dict() const { return *std::get<std::shared_ptr<Dict>>(state_); }
  Namespace& names() const { return *std::get<std::shared_ptr<Namespace>>(state_); }
  const Callable& callable() const { return *std::get<std::shared_ptr<const Callable>>(state_); }
  LoopState& loop() const { return *std::get<std::shared_ptr<LoopState>>(state_); }
  const std::string& hint() const { return std::get<Undefined>(state_).hint; }

  bool IsKind(List::Kind kind) const { return IsList() && list().kind == kind; }
  bool IsIntegral() const { return IsBool() || IsInteger(); }
  Integer integer() const;  // of a bool or an integer
  double AsDouble() const;  // of any number

  bool Truthy() const;
  std::string_view TypeName() const;  // as Python names the type
  int Depth() const;
  const State& state() const { return state_; }

 private:
  template <typename T>
  bool Holds() const {
    return std::holds_alternative<T>(state_);
  }
  State state_;
};

// The `loop` variable. Items come one by one, since a condition of the loop may depend on what its
// body did.
struct LoopState {
  std::function<std::optional<Value>()> source;
  size_t index = 0;
  int depth = 0;
  Value previous;
  Value current;
  std::deque<Value> ahead;  // fetched already, in order
  bool exhausted = false;

  // The item after the current one; nullptr at the end.
  const Value* Peek();
  // Of the whole loop: fetches all items.
  size_t Length();
  // Makes the next item current; false at the end.
  bool Advance();

 private:
  bool Fetch();
  bool started_ = false;
};

bool Equal(const Value& a, const Value& b);
// Negative, zero or positive; types without an order are an error.
int Compare(const Value& a, const Value& b);
// A string that is equal for equal keys; a key that Python cannot hash is an error.
std::string KeyOf(const Value& key);

// What `for` walks over: characters, items, keys. `what` is an error for what cannot be walked.
std::vector<Value> Iterate(const Value& value);
// Whether iteration works at all (the `iterable` test).
bool IsIterable(const Value& value);
// Python's len(); nullopt if the type has none.
std::optional<size_t> LengthOf(const Value& value);

// str() and repr(). Strings keep their provenance.
Text ToText(const Value& value);
Text Repr(const Value& value);
std::string FormatFloat(double value);
std::string FormatInteger(Integer value);

// Raises the error of an undefined value if `value` is one.
void RequireDefined(const Value& value);

}  // namespace masu::jinja
