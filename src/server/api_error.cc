#include "server/api_error.h"

#include <algorithm>

#include "server/http_message.h"

namespace masu {
namespace {

const char* TypeName(ErrorCode code) {
  switch (code) {
    case ErrorCode::kInvalidArgument:
      return "BadRequestError";
    case ErrorCode::kNotFound:
      return "NotFoundError";
    case ErrorCode::kUnavailable:
    case ErrorCode::kResourceExhausted:
      return "ServiceUnavailableError";
    case ErrorCode::kUnimplemented:
      return "NotImplementedError";
    case ErrorCode::kDeadlineExceeded:
      return "TimeoutError";
    case ErrorCode::kDataLoss:
    case ErrorCode::kInternal:
      break;
  }
  return "InternalServerError";
}

Json Body(std::string_view message, std::string_view type, std::string_view param, int status) {
  Json error = {{"message", message}, {"type", type}, {"param", nullptr}, {"code", status}};
  if (!param.empty()) error["param"] = param;
  return {{"error", std::move(error)}};
}

}  // namespace

int HttpStatus(ErrorCode code) {
  switch (code) {
    case ErrorCode::kInvalidArgument:
      return 400;
    case ErrorCode::kNotFound:
      return 404;
    case ErrorCode::kUnavailable:
    case ErrorCode::kResourceExhausted:
      return 503;
    case ErrorCode::kUnimplemented:
      return 501;
    case ErrorCode::kDeadlineExceeded:
      return 504;
    case ErrorCode::kDataLoss:
    case ErrorCode::kInternal:
      break;
  }
  return 500;
}

Json ErrorJson(const Error& error) {
  return Body(error.message, TypeName(error.code), error.param, HttpStatus(error.code));
}

HttpResponse ErrorResponse(const Error& error) {
  HttpResponse response{.status = HttpStatus(error.code), .body = DumpJson(ErrorJson(error))};
  // Where there is no estimate: a second is about what it takes until some request of a busy server
  // has finished.
  if (response.status == 503) {
    response.headers.emplace_back("Retry-After", std::to_string(std::max(1u, error.retry_after)));
  }
  // The OpenAI clients repeat what was answered with 504, but it would be late again.
  if (response.status == 504) response.headers.emplace_back("x-should-retry", "false");
  return response;
}

HttpResponse HttpErrorResponse(int status, std::string_view message) {
  return {.status = status, .body = DumpJson(Body(message, HttpReason(status), "", status))};
}

}  // namespace masu
