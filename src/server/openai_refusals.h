// What we know and do not do: a clear 400 instead of an answer that ignores the wish.
#pragma once

#include "base/result.h"
#include "server/json_fields.h"

namespace masu {

// The first field of `body` that asks for something that is not built; ok if there is none. The
// list is in openai_refusals.cc, next to the reason that the client gets.
Result<void> RefuseUnsupported(const Json& body, bool chat);

}  // namespace masu
