// Ids that do not convert into one another. "None" is std::optional, never -1.
#pragma once

#include <fmt/format.h>

#include <compare>
#include <cstddef>
#include <cstdint>
#include <functional>

namespace masu {

template <typename Tag, typename Value = uint32_t>
class TypedId {
 public:
  using ValueType = Value;
  constexpr TypedId() = default;
  constexpr explicit TypedId(Value value) : value_(value) {}
  constexpr Value value() const { return value_; }
  friend constexpr auto operator<=>(TypedId, TypedId) = default;

 private:
  Value value_ = 0;
};

using PageId = TypedId<struct PageIdTag>;
using SlabId = TypedId<struct SlabIdTag>;
using LayoutId = TypedId<struct LayoutIdTag>;
using SequenceId = TypedId<struct SequenceIdTag, uint64_t>;
using RequestId = TypedId<struct RequestIdTag, uint64_t>;

// A vocabulary index. Plain, since kernels read arrays of it.
using TokenId = int32_t;

}  // namespace masu

template <typename Tag, typename Value>
struct std::hash<masu::TypedId<Tag, Value>> {
  size_t operator()(masu::TypedId<Tag, Value> id) const noexcept {
    return std::hash<Value>()(id.value());
  }
};

template <typename Tag, typename Value>
struct fmt::formatter<masu::TypedId<Tag, Value>> : fmt::formatter<Value> {
  template <typename Context>
  auto format(masu::TypedId<Tag, Value> id, Context& context) const {
    return fmt::formatter<Value>::format(id.value(), context);
  }
};
