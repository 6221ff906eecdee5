// Attributes, items and slices.
#include <algorithm>

#include "text/jinja_operators.h"
#include "text/utf8.h"

namespace masu::jinja {
namespace {

std::string NameOf(const Value& object) {
  return object.IsNone() ? "None" : fmt::format("'{} object'", object.TypeName());
}

Value Missing(const Value& object, std::string_view name) {
  return Value::OfUndefined(fmt::format("{} has no attribute '{}'", NameOf(object), name));
}

Value LoopAttribute(const Value& object, std::string_view name);

std::optional<Value> OwnAttribute(const Value& object, std::string_view name) {
  if (object.IsNamespace()) {
    const Value* value = object.names().Find(name);
    if (value != nullptr) return *value;
  }
  if (object.IsCallable() && name == "name") return Value::OfTrusted(object.callable().name);
  if (object.IsLoop()) return LoopAttribute(object, name);
  return FindMethod(object, name);
}

Value LoopAttribute(const Value& object, std::string_view name) {
  LoopState& loop = object.loop();
  const auto number = [](size_t value) { return Value::OfSize(value); };
  if (name == "index") return number(loop.index + 1);
  if (name == "index0") return number(loop.index);
  if (name == "first") return Value::Of(loop.index == 0);
  if (name == "last") return Value::Of(loop.Peek() == nullptr);
  if (name == "depth") return number(static_cast<size_t>(loop.depth) + 1);
  if (name == "depth0") return number(static_cast<size_t>(loop.depth));
  if (name == "length") return number(loop.Length());
  if (name == "revindex") return number(loop.Length() - loop.index);
  if (name == "revindex0") return number(loop.Length() - loop.index - 1);
  if (name == "previtem") {
    if (loop.index == 0) return Value::OfUndefined("there is no previous item");
    return loop.previous;
  }
  if (name == "nextitem") {
    const Value* next = loop.Peek();
    return next != nullptr ? *next : Value::OfUndefined("there is no next item");
  }
  if (auto method = FindLoopMethod(object, name)) return *method;
  return Value::OfUndefined(fmt::format("'loop' has no attribute '{}'", name));
}

// Where an index points to, if inside.
std::optional<size_t> Position(Integer index, size_t size) {
  if (index < 0) index += static_cast<Integer>(size);
  if (index < 0 || index >= static_cast<Integer>(size)) return std::nullopt;
  return static_cast<size_t>(index);
}

std::optional<Value> ElementOf(const Value& object, Integer index) {
  if (object.IsString()) {
    const Text& text = object.text();
    const auto position = Position(index, CountCharacters(text.view()));
    if (!position) return std::nullopt;
    const size_t begin = OffsetOfCharacter(text.view(), *position);
    return Value::Of(text.Substr(begin, DecodeUtf8(text.view().substr(begin)).length));
  }
  if (!object.IsKind(List::Kind::kList) && !object.IsKind(List::Kind::kTuple)) return std::nullopt;
  const auto position = Position(index, object.list().items.size());
  if (!position) return std::nullopt;
  return object.list().items[*position];
}

struct Range {
  Integer start;
  Integer stop;
  Integer step;
};

std::optional<Integer> SliceIndex(const Value& value) {
  if (value.IsNone()) return std::nullopt;
  RequireDefined(value);
  if (!value.IsIntegral()) Fail("slice indices must be integers or None");
  return value.integer();
}

// Python's slice.indices().
Range ResolveSlice(const Value& start, const Value& stop, const Value& step, size_t size) {
  constexpr Integer kFar = Integer{1} << 62;  // steps beyond any text; keeps sums from overflowing
  const Integer by = std::clamp(SliceIndex(step).value_or(1), -kFar, kFar);
  if (by == 0) Fail("slice step cannot be zero");
  const auto length = static_cast<Integer>(size);
  const Integer lowest = by > 0 ? 0 : -1;
  const Integer highest = by > 0 ? length : length - 1;
  const auto resolve = [&](const Value& value, Integer otherwise) {
    std::optional<Integer> index = SliceIndex(value);
    if (!index) return otherwise;
    if (*index < 0) *index += length;
    return std::clamp(*index, lowest, highest);
  };
  return {resolve(start, by > 0 ? lowest : highest), resolve(stop, by > 0 ? highest : lowest), by};
}

std::vector<size_t> Indices(const Range& range) {
  std::vector<size_t> indices;
  for (Integer i = range.start; range.step > 0 ? i < range.stop : i > range.stop; i += range.step) {
    indices.push_back(static_cast<size_t>(i));
  }
  return indices;
}

Text SliceText(const Text& text, const Value& start, const Value& stop, const Value& step) {
  const Range range = ResolveSlice(start, stop, step, CountCharacters(text.view()));
  Text out;
  if (range.step == 1) {
    if (range.start < range.stop) {
      const size_t begin = OffsetOfCharacter(text.view(), static_cast<size_t>(range.start));
      const size_t length = OffsetOfCharacter(text.view().substr(begin),
                                              static_cast<size_t>(range.stop - range.start));
      out.AppendRange(text, begin, length);
    }
  } else {
    std::vector<size_t> offsets;
    for (size_t at = 0; at < text.size();) {
      offsets.push_back(at);
      at += std::max<size_t>(1, DecodeUtf8(text.view().substr(at)).length);
    }
    offsets.push_back(text.size());
    for (const size_t i : Indices(range)) {
      out.AppendRange(text, offsets[i], offsets[i + 1] - offsets[i]);
    }
  }
  out.set_markup(text.markup());
  return out;
}

}  // namespace

Value GetAttribute(const Value& object, std::string_view name) {
  RequireDefined(object);
  if (auto own = OwnAttribute(object, name)) return *own;
  if (object.IsDict()) {
    const Value* item = object.dict().Find(name);
    if (item != nullptr) return *item;
  }
  return Missing(object, name);
}

Value GetItem(const Value& object, const Value& key) {
  RequireDefined(object);
  if (object.IsDict()) {
    const bool hashable = !key.IsDict() && !key.IsKind(List::Kind::kList);
    const Value* item = hashable ? object.dict().Find(key) : nullptr;
    if (item != nullptr) return *item;
  } else if (key.IsIntegral()) {
    if (auto element = ElementOf(object, key.integer())) return *element;
    return Value::OfUndefined(
        fmt::format("{} has no element {}", NameOf(object), FormatInteger(key.integer())));
  }
  if (!key.IsString()) return Missing(object, ToText(key).view());
  if (auto own = OwnAttribute(object, key.text().view())) return *own;
  return Missing(object, key.text().view());
}

Value Slice(const Value& object, const Value& start, const Value& stop, const Value& step) {
  RequireDefined(object);
  if (object.IsString()) return Value::Of(SliceText(object.text(), start, stop, step));
  if (!object.IsKind(List::Kind::kList) && !object.IsKind(List::Kind::kTuple)) {
    Fail("'{}' object cannot be sliced", object.TypeName());
  }
  const auto& source = object.list().items;
  std::vector<Value> items;
  for (const size_t i : Indices(ResolveSlice(start, stop, step, source.size()))) {
    items.push_back(source[i]);
  }
  return Value::OfList(std::move(items), object.list().kind);
}

}  // namespace masu::jinja
