// Text of HTTP/1.1 messages: pure functions, no sockets.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "server/http.h"

namespace masu {

const char* HttpReason(int status);  // "Not Found"; "Unknown" if it is

// What the connection adds to a response.
struct MessageFraming {
  bool keep_alive = true;
  bool http_1_0 = false;  // then Connection: keep-alive has to be said, and chunks are unknown
  bool head = false;      // HEAD: headers of the answer, no body
};

std::string SerializeResponse(const HttpResponse& response, const MessageFraming& framing);
// The head of a stream: chunked, or for HTTP/1.0 ended by closing the connection.
std::string SerializeStreamHead(int status, std::string_view content_type,
                                const HttpHeaders& headers, const MessageFraming& framing);
// One chunk of a chunked body; empty data gives nothing (it would end the body).
std::string ChunkOf(std::string_view data);
inline constexpr std::string_view kLastChunk = "0\r\n\r\n";

// Splits a request target into a percent-decoded path and the raw query. nullopt if the path is
// malformed: a bad escape, an embedded NUL, or not starting with '/'.
struct Target {
  std::string path;
  std::string query;
};
std::optional<Target> ParseTarget(std::string_view target);

}  // namespace masu
