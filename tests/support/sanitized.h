#pragma once

namespace masu {

// Bits are compared in the release build, over everything; a sanitizer wants each path once, and is
// ten times slower.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
inline constexpr bool kSanitized = true;
#else
inline constexpr bool kSanitized = false;
#endif

}  // namespace masu
