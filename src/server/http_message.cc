#include "server/http_message.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>

namespace masu {
namespace {

bool SameIgnoringCase(std::string_view a, std::string_view b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), [](unsigned char x, unsigned char y) {
    return std::tolower(x) == std::tolower(y);
  });
}

std::optional<int> HexDigit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return std::nullopt;
}

// A header value must not end the header: line ends of foreign text become spaces.
void AppendHeader(std::string& out, std::string_view name, std::string_view value) {
  out.append(name).append(": ");
  for (char c : value) out.push_back(c == '\r' || c == '\n' ? ' ' : c);
  out.append("\r\n");
}

std::string Head(int status, std::string_view content_type, const HttpHeaders& headers,
                 const MessageFraming& framing) {
  std::string out =
      fmt::format("HTTP/1.{} {} {}\r\n", framing.http_1_0 ? 0 : 1, status, HttpReason(status));
  AppendHeader(out, "Server", "masu/" MASU_VERSION);
  if (!content_type.empty()) AppendHeader(out, "Content-Type", content_type);
  for (const auto& [name, value] : headers) AppendHeader(out, name, value);
  if (!framing.keep_alive) {
    AppendHeader(out, "Connection", "close");
  } else if (framing.http_1_0) {
    AppendHeader(out, "Connection", "keep-alive");
  }
  return out;
}

}  // namespace

std::string_view FindHeader(const HttpHeaders& headers, std::string_view name) {
  for (const auto& [key, value] : headers) {
    if (SameIgnoringCase(key, name)) return value;
  }
  return {};
}

const char* HttpReason(int status) {
  switch (status) {
    case 100:
      return "Continue";
    case 200:
      return "OK";
    case 400:
      return "Bad Request";
    case 401:
      return "Unauthorized";
    case 404:
      return "Not Found";
    case 405:
      return "Method Not Allowed";
    case 408:
      return "Request Timeout";
    case 413:
      return "Content Too Large";
    case 429:
      return "Too Many Requests";
    case 431:
      return "Request Header Fields Too Large";
    case 500:
      return "Internal Server Error";
    case 501:
      return "Not Implemented";
    case 503:
      return "Service Unavailable";
    default:
      return "Unknown";
  }
}

std::string SerializeResponse(const HttpResponse& response, const MessageFraming& framing) {
  std::string out = Head(response.status, response.content_type, response.headers, framing);
  AppendHeader(out, "Content-Length", std::to_string(response.body.size()));
  out.append("\r\n");
  if (!framing.head) out.append(response.body);
  return out;
}

std::string SerializeStreamHead(int status, std::string_view content_type,
                                const HttpHeaders& headers, const MessageFraming& framing) {
  std::string out = Head(status, content_type, headers, framing);
  if (!framing.http_1_0) AppendHeader(out, "Transfer-Encoding", "chunked");
  out.append("\r\n");
  return out;
}

std::string ChunkOf(std::string_view data) {
  if (data.empty()) return {};
  return fmt::format("{:x}\r\n{}\r\n", data.size(), data);
}

std::optional<Target> ParseTarget(std::string_view target) {
  if (target.empty() || target.front() != '/') return std::nullopt;
  Target result;
  const size_t fragment = target.find('#');
  if (fragment != std::string_view::npos) target = target.substr(0, fragment);
  const size_t question = target.find('?');
  if (question != std::string_view::npos) {
    result.query = target.substr(question + 1);
    target = target.substr(0, question);
  }
  for (size_t i = 0; i < target.size(); ++i) {
    char c = target[i];
    if (c == '%') {
      if (i + 2 >= target.size()) return std::nullopt;
      const auto high = HexDigit(target[i + 1]), low = HexDigit(target[i + 2]);
      if (!high || !low) return std::nullopt;
      c = static_cast<char>(*high * 16 + *low);
      i += 2;
    }
    if (c == '\0') return std::nullopt;
    result.path.push_back(c);
  }
  return result;
}

}  // namespace masu
