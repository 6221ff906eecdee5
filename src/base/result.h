// Result<T>: a value or an Error, for everything that a request, a file or the machine can get
// wrong. Stands in for std::expected (C++23).
#pragma once

#include <fmt/format.h>

#include <string>
#include <utility>
#include <variant>

#include "base/check.h"

namespace masu {

enum class ErrorCode {
  kInvalidArgument,    // the caller asked for something that can never work (HTTP 400)
  kNotFound,           // a model, file or id that does not exist (404)
  kUnavailable,        // not now: queue full, still loading, shutting down (503)
  kDeadlineExceeded,   // it took longer than it was allowed to (504)
  kResourceExhausted,  // memory that the plan needs is not there
  kDataLoss,           // a file that is damaged or lies about itself
  kUnimplemented,      // known, and not built (501)
  kInternal,           // our own fault, contained (500)
};

struct Error {
  ErrorCode code = ErrorCode::kInternal;
  std::string message;       // one line: cause and remedy
  std::string param;         // the request field at fault, empty if none
  uint32_t retry_after = 0;  // kUnavailable: seconds until another try may succeed; 0: unknown
};

template <typename... Args>
Error MakeError(ErrorCode code, fmt::format_string<Args...> format, Args&&... args) {
  return Error{code, fmt::format(format, std::forward<Args>(args)...), {}};
}

template <typename... Args>
Error InvalidArgument(fmt::format_string<Args...> format, Args&&... args) {
  return Error{ErrorCode::kInvalidArgument, fmt::format(format, std::forward<Args>(args)...), {}};
}

template <typename... Args>
Error DataLoss(fmt::format_string<Args...> format, Args&&... args) {
  return Error{ErrorCode::kDataLoss, fmt::format(format, std::forward<Args>(args)...), {}};
}

// Holds a T or an Error. Reading the wrong one is a fault of ours and aborts.
template <typename T>
class [[nodiscard]] Result {
 public:
  Result(T value)
      : state_(std::in_place_index<0>, std::move(value)) {}  // NOLINT: implicit by design
  Result(Error error) : state_(std::in_place_index<1>, std::move(error)) {}  // NOLINT

  bool ok() const { return state_.index() == 0; }
  explicit operator bool() const { return ok(); }

  T& value() & { return Checked(), std::get<0>(state_); }
  const T& value() const& { return Checked(), std::get<0>(state_); }
  T&& value() && { return Checked(), std::get<0>(std::move(state_)); }
  T& operator*() & { return value(); }
  const T& operator*() const& { return value(); }
  T* operator->() { return &value(); }
  const T* operator->() const { return &value(); }

  const Error& error() const {
    MASU_CHECK(!ok());
    return std::get<1>(state_);
  }

 private:
  void Checked() const {
    if (!ok()) internal::CheckFailed(__FILE__, __LINE__, std::get<1>(state_).message);
  }
  std::variant<T, Error> state_;
};

// The outcome of something that returns nothing.
template <>
class [[nodiscard]] Result<void> {
 public:
  Result() = default;
  Result(Error error) : error_(std::move(error)), ok_(false) {}  // NOLINT: implicit by design

  bool ok() const { return ok_; }
  explicit operator bool() const { return ok_; }
  const Error& error() const {
    MASU_CHECK(!ok_);
    return error_;
  }

 private:
  Error error_;
  bool ok_ = true;
};

}  // namespace masu

// MASU_TRY(expression): returns the error of a Result<void> from the enclosing function.
#define MASU_TRY(expression)                                                   \
  do {                                                                         \
    if (auto masu_try = (expression); !masu_try.ok()) return masu_try.error(); \
  } while (false)

#define MASU_CONCAT_INNER(a, b) a##b
#define MASU_CONCAT(a, b) MASU_CONCAT_INNER(a, b)
// MASU_ASSIGN_OR_RETURN(auto x, Function()): x is the value, or the enclosing function returns the
// error.
#define MASU_ASSIGN_OR_RETURN(declaration, expression) \
  MASU_ASSIGN_OR_RETURN_IMPL(MASU_CONCAT(masu_result_, __LINE__), declaration, expression)
#define MASU_ASSIGN_OR_RETURN_IMPL(name, declaration, expression) \
  auto name = (expression);                                       \
  if (!name.ok()) return name.error();                            \
  declaration = std::move(name).value()
