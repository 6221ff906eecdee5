#include "text/jinja_value.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "text/utf8.h"

namespace masu::jinja {
namespace {

// Python stops at a thousand; real requests stay below twenty.
constexpr int kMaxNesting = 120;

int NestingOf(const std::vector<Value>& items) {
  int depth = 0;
  for (const Value& item : items) depth = std::max(depth, item.Depth());
  return depth + 1;
}

void CheckNesting(int depth) {
  if (depth > kMaxNesting) Fail("values are nested deeper than {} levels", kMaxNesting);
}

template <typename T>
int Order(const T& a, const T& b) {
  return a < b ? -1 : (b < a ? 1 : 0);
}

int CompareLists(const List& a, const List& b) {
  for (size_t i = 0; i < std::min(a.items.size(), b.items.size()); ++i) {
    if (!Equal(a.items[i], b.items[i])) return Compare(a.items[i], b.items[i]);
  }
  return Order(a.items.size(), b.items.size());
}

bool EqualDicts(const Dict& a, const Dict& b) {
  if (a.items.size() != b.items.size()) return false;
  return std::all_of(a.items.begin(), a.items.end(), [&](const auto& item) {
    const Value* other = b.Find(item.first);
    return other != nullptr && Equal(item.second, *other);
  });
}

}  // namespace

Value Value::OfList(std::vector<Value> items, List::Kind kind) {
  auto list = std::make_shared<List>();
  list->depth = NestingOf(items);
  list->items = std::move(items);
  list->kind = kind;
  CheckNesting(list->depth);
  return Value(State(std::move(list)));
}

Value Value::OfDict(std::shared_ptr<Dict> dict) {
  CheckNesting(dict->depth);
  return Value(State(std::move(dict)));
}

Value Value::OfFunction(std::string name,
                        std::function<Value(Interpreter&, const Arguments&)> call) {
  auto callable = std::make_shared<const Callable>(Callable{std::move(name), std::move(call)});
  return Value(State(std::move(callable)));
}

const Value* Dict::Find(const Value& key) const {
  const auto found = index.find(KeyOf(key));
  return found == index.end() ? nullptr : &items[found->second].second;
}

const Value* Dict::Find(std::string_view key) const {
  const auto found = index.find("s" + std::string(key));
  return found == index.end() ? nullptr : &items[found->second].second;
}

void Dict::Set(Value key, Value value) {
  depth = std::max({depth, value.Depth() + 1, key.Depth() + 1});
  const auto [entry, added] = index.emplace(KeyOf(key), items.size());
  if (added) {
    items.emplace_back(std::move(key), std::move(value));
  } else {
    items[entry->second].second = std::move(value);
  }
}

Value* Namespace::Find(std::string_view name) {
  for (auto& [key, value] : attributes) {
    if (key == name) return &value;
  }
  return nullptr;
}

bool LoopState::Fetch() {
  if (exhausted) return false;
  std::optional<Value> item = source();
  if (!item) {
    exhausted = true;
    return false;
  }
  ahead.push_back(std::move(*item));
  return true;
}

const Value* LoopState::Peek() {
  if (ahead.empty() && !Fetch()) return nullptr;
  return &ahead.front();
}

size_t LoopState::Length() {
  while (Fetch()) {
  }
  return index + 1 + ahead.size();
}

bool LoopState::Advance() {
  if (Peek() == nullptr) return false;
  previous = std::exchange(current, std::move(ahead.front()));
  ahead.pop_front();
  if (std::exchange(started_, true)) ++index;
  return true;
}

Integer Value::integer() const { return IsBool() ? Integer{boolean()} : std::get<Integer>(state_); }

double Value::AsDouble() const { return IsFloat() ? real() : static_cast<double>(integer()); }

int Value::Depth() const {
  if (IsList()) return list().depth;
  if (IsDict()) return dict().depth;
  return 0;
}

bool Value::Truthy() const {
  if (IsUndefined() || IsNone()) return false;
  if (IsIntegral()) return integer() != 0;
  if (IsFloat()) return real() != 0;
  if (IsString()) return !text().empty();
  if (IsList()) return list().kind == List::Kind::kGenerator || !list().items.empty();
  if (IsDict()) return !dict().items.empty();
  return true;
}

std::string_view Value::TypeName() const {
  if (IsUndefined()) return "Undefined";
  if (IsNone()) return "NoneType";
  if (IsBool()) return "bool";
  if (IsInteger()) return "int";
  if (IsFloat()) return "float";
  if (IsString()) return "str";
  if (IsDict()) return "dict";
  if (IsNamespace()) return "Namespace";
  if (IsCallable()) return "function";
  if (IsLoop()) return "LoopContext";
  constexpr std::string_view kNames[] = {"list", "tuple", "dict_items", "generator"};
  return kNames[static_cast<int>(list().kind)];
}

bool Equal(const Value& a, const Value& b) {
  if (a.IsNumber() && b.IsNumber()) {
    if (a.IsFloat() || b.IsFloat()) return a.AsDouble() == b.AsDouble();
    return a.integer() == b.integer();
  }
  if (a.state().index() != b.state().index()) return false;
  if (a.IsUndefined() || a.IsNone()) return true;
  if (a.IsString()) return a.text().str() == b.text().str();
  if (a.IsDict()) return EqualDicts(a.dict(), b.dict());
  if (!a.IsList()) return a.state() == b.state();
  if (a.list().kind != b.list().kind) return false;
  if (a.list().kind == List::Kind::kGenerator) return &a.list() == &b.list();
  return std::equal(a.list().items.begin(), a.list().items.end(), b.list().items.begin(),
                    b.list().items.end(), Equal);
}

int Compare(const Value& a, const Value& b) {
  RequireDefined(a);
  RequireDefined(b);
  if (a.IsNumber() && b.IsNumber()) {
    if (a.IsFloat() || b.IsFloat()) return Order(a.AsDouble(), b.AsDouble());
    return Order(a.integer(), b.integer());
  }
  if (a.IsString() && b.IsString()) return Order(a.text().str(), b.text().str());
  const bool same_sequence = a.IsList() && b.IsList() && a.list().kind == b.list().kind &&
                             (a.IsKind(List::Kind::kList) || a.IsKind(List::Kind::kTuple));
  if (same_sequence) return CompareLists(a.list(), b.list());
  Fail("'<' not supported between instances of '{}' and '{}'", a.TypeName(), b.TypeName());
}

std::string KeyOf(const Value& key) {
  if (key.IsString()) return "s" + key.text().str();
  if (key.IsFloat() && key.real() != std::floor(key.real())) return "f" + FormatFloat(key.real());
  if (key.IsFloat() && std::abs(key.real()) > 1e18) return "f" + FormatFloat(key.real());
  if (key.IsFloat()) return "i" + FormatInteger(static_cast<Integer>(key.real()));
  if (key.IsIntegral()) return "i" + FormatInteger(key.integer());
  if (key.IsNone()) return "n";
  if (key.IsUndefined()) return "u";
  if (key.IsKind(List::Kind::kTuple)) {
    std::string out = "t";
    for (const Value& item : key.list().items) {
      const std::string part = KeyOf(item);
      out += std::to_string(part.size()) + ":" + part;
    }
    return out;
  }
  Fail("unhashable type: '{}'", key.TypeName());
}

void RequireDefined(const Value& value) {
  if (value.IsUndefined()) {
    Fail("{}", value.hint().empty() ? std::string("value is undefined") : value.hint());
  }
}

bool IsIterable(const Value& value) {
  return value.IsUndefined() || value.IsString() || value.IsList() || value.IsDict();
}

std::vector<Value> Iterate(const Value& value) {
  if (value.IsUndefined()) return {};
  if (value.IsList()) {
    List& list = value.list();
    if (list.kind != List::Kind::kGenerator) return list.items;
    if (list.consumed) return {};
    list.consumed = true;
    return list.items;
  }
  std::vector<Value> items;
  if (value.IsDict()) {
    for (const auto& item : value.dict().items) items.push_back(item.first);
    return items;
  }
  if (value.IsString()) {
    const Text& text = value.text();
    for (size_t at = 0; at < text.size();) {
      const size_t length = std::max<size_t>(1, DecodeUtf8(text.view().substr(at)).length);
      items.push_back(Value::Of(text.Substr(at, length)));
      at += length;
    }
    return items;
  }
  Fail("'{}' object is not iterable", value.TypeName());
}

std::optional<size_t> LengthOf(const Value& value) {
  if (value.IsUndefined()) return 0;
  if (value.IsString()) return CountCharacters(value.text().view());
  if (value.IsDict()) return value.dict().items.size();
  if (value.IsLoop()) return value.loop().Length();
  if (value.IsList() && value.list().kind != List::Kind::kGenerator) {
    return value.list().items.size();
  }
  return std::nullopt;
}

}  // namespace masu::jinja
