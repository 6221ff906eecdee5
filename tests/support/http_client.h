// A small blocking HTTP client on a plain socket, so that tests can also misbehave.
#pragma once

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdlib>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace masu {

struct ClientResponse {
  int status = 0;  // 0: the connection ended before an answer
  std::string head;
  std::string body;
  nlohmann::json json() const { return nlohmann::json::parse(body, nullptr, false); }
  bool HasHeader(std::string_view line) const { return head.find(line) != std::string::npos; }
};

class HttpClient {
 public:
  // `receive_buffer` > 0 makes the kernel hold little for a client that does not read.
  explicit HttpClient(uint16_t port, int receive_buffer = 0) {
    socket_ = ::socket(AF_INET, SOCK_STREAM, 0);
    if (receive_buffer > 0) {
      setsockopt(socket_, SOL_SOCKET, SO_RCVBUF, &receive_buffer, sizeof(receive_buffer));
    }
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(port);
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    connected_ = ::connect(socket_, reinterpret_cast<sockaddr*>(&address), sizeof(address)) == 0;
  }
  ~HttpClient() { Close(); }
  HttpClient(const HttpClient&) = delete;
  HttpClient& operator=(const HttpClient&) = delete;

  bool connected() const { return connected_; }
  void Close() {
    if (socket_ >= 0) ::close(socket_);
    socket_ = -1;
  }
  bool Send(std::string_view data) {
    while (!data.empty()) {
      const ssize_t sent = ::send(socket_, data.data(), data.size(), MSG_NOSIGNAL);
      if (sent <= 0) return false;
      data.remove_prefix(static_cast<size_t>(sent));
    }
    return true;
  }
  static std::string Format(std::string_view method, std::string_view path, std::string_view body,
                            std::string_view more_headers = "") {
    std::string text = std::string(method) + " " + std::string(path) + " HTTP/1.1\r\nHost: t\r\n" +
                       std::string(more_headers);
    if (!body.empty()) {
      text += "Content-Type: application/json\r\nContent-Length: " + std::to_string(body.size()) +
              "\r\n";
    }
    return text + "\r\n" + std::string(body);
  }

  // More bytes into the buffer; false at the end of the connection or after `timeout` ms.
  bool Fill(int timeout = 20000) {
    pollfd poll_fd{socket_, POLLIN, 0};
    if (::poll(&poll_fd, 1, timeout) <= 0) return false;
    char chunk[65536];
    const ssize_t got = ::recv(socket_, chunk, sizeof(chunk), 0);
    if (got <= 0) return false;
    buffer_.append(chunk, static_cast<size_t>(got));
    return true;
  }
  // Until the buffer holds `text`.
  bool WaitFor(std::string_view text, int timeout = 20000) {
    while (buffer_.find(text) == std::string::npos) {
      if (!Fill(timeout)) return false;
    }
    return true;
  }
  const std::string& buffer() const { return buffer_; }

  // The next response, whole, chunked or not. For HEAD the body is empty.
  ClientResponse Receive(bool head_only = false) {
    ClientResponse response;
    if (!WaitFor("\r\n\r\n")) return response;
    const size_t end = buffer_.find("\r\n\r\n") + 4;
    response.head = buffer_.substr(0, end);
    buffer_.erase(0, end);
    response.status = std::atoi(response.head.c_str() + 9);
    if (head_only) return response;
    if (response.HasHeader("Transfer-Encoding: chunked")) {
      ReceiveChunks(&response);
    } else if (const size_t at = response.head.find("Content-Length: "); at != std::string::npos) {
      const size_t length = std::strtoul(response.head.c_str() + at + 16, nullptr, 10);
      while (buffer_.size() < length && Fill()) {
      }
      response.body = buffer_.substr(0, length);
      buffer_.erase(0, length);
    }
    return response;
  }

 private:
  void ReceiveChunks(ClientResponse* response) {
    for (;;) {
      if (!WaitFor("\r\n")) return;
      const size_t line = buffer_.find("\r\n");
      const size_t size = std::strtoul(buffer_.c_str(), nullptr, 16);
      while (buffer_.size() < line + 2 + size + 2) {
        if (!Fill()) return;
      }
      response->body += buffer_.substr(line + 2, size);
      buffer_.erase(0, line + 2 + size + 2);
      if (size == 0) return;
    }
  }

  int socket_ = -1;
  bool connected_ = false;
  std::string buffer_;
};

inline ClientResponse Call(uint16_t port, std::string_view method, std::string_view path,
                           std::string_view body = "", std::string_view more_headers = "") {
  HttpClient client(port);
  client.Send(HttpClient::Format(method, path, body, more_headers));
  return client.Receive(method == "HEAD");
}

// The JSON of all events of a stream; nullopt if it does not end in [DONE] or an event is broken.
inline std::optional<std::vector<nlohmann::json>> ParseEvents(std::string_view body) {
  std::vector<nlohmann::json> events;
  bool done = false;
  while (!body.empty()) {
    const size_t end = body.find("\n\n");
    if (end == std::string_view::npos || done) return std::nullopt;
    const std::string_view event = body.substr(0, end);
    body.remove_prefix(end + 2);
    if (event.starts_with(":")) continue;
    if (!event.starts_with("data: ")) return std::nullopt;
    if (event == "data: [DONE]") {
      done = true;
      continue;
    }
    events.push_back(nlohmann::json::parse(event.substr(6), nullptr, false));
    if (events.back().is_discarded()) return std::nullopt;
  }
  if (!done) return std::nullopt;
  return events;
}

}  // namespace masu
