// CHECK macros for faults of our own: they print both values and abort. Nothing that a request or a
// model file contains may reach one; those return Result<T> (base/result.h).
#pragma once

#include <fmt/format.h>

#include <string>
#include <string_view>

namespace masu::internal {
[[noreturn]] void CheckFailed(const char* file, int line, std::string_view what);
}  // namespace masu::internal

#define MASU_CHECK(condition)                                        \
  do {                                                               \
    if (!(condition)) [[unlikely]] {                                 \
      ::masu::internal::CheckFailed(__FILE__, __LINE__, #condition); \
    }                                                                \
  } while (false)

#define MASU_CHECK_OP(a, op, b)                                                              \
  do {                                                                                       \
    const auto& masu_check_a = (a);                                                          \
    const auto& masu_check_b = (b);                                                          \
    if (!(masu_check_a op masu_check_b)) [[unlikely]] {                                      \
      ::masu::internal::CheckFailed(                                                         \
          __FILE__, __LINE__,                                                                \
          fmt::format("{} {} {} ({} against {})", #a, #op, #b, masu_check_a, masu_check_b)); \
    }                                                                                        \
  } while (false)

#define MASU_CHECK_EQ(a, b) MASU_CHECK_OP(a, ==, b)
#define MASU_CHECK_NE(a, b) MASU_CHECK_OP(a, !=, b)
#define MASU_CHECK_LT(a, b) MASU_CHECK_OP(a, <, b)
#define MASU_CHECK_LE(a, b) MASU_CHECK_OP(a, <=, b)
#define MASU_CHECK_GT(a, b) MASU_CHECK_OP(a, >, b)
#define MASU_CHECK_GE(a, b) MASU_CHECK_OP(a, >=, b)
