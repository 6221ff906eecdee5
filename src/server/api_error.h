// Errors as the OpenAI API writes them: {"error":{"message","type","param","code"}}.
#pragma once

#include <string>
#include <string_view>

#include "base/result.h"
#include "server/http.h"
#include "server/json_fields.h"

namespace masu {

int HttpStatus(ErrorCode code);
// The object with the key "error", also sent inside a stream.
Json ErrorJson(const Error& error);
// 503 carries Retry-After (seconds); 504, which a client should not repeat, x-should-retry.
HttpResponse ErrorResponse(const Error& error);
// For conditions of HTTP itself (404, 405, 413); `type` is the reason phrase.
HttpResponse HttpErrorResponse(int status, std::string_view message);

}  // namespace masu
