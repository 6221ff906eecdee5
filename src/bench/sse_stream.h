// Reads the stream of a completion: bytes as they arrive, cut anywhere, into what a request did.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "bench/load_record.h"

namespace masu {

// Server-sent events (WHATWG HTML, section 9.2) as far as OpenAI's API uses them: lines end with LF
// or CRLF, the data lines of an event are joined by LF, comments and other fields are dropped.
class SseParser {
 public:
  // Calls `on_data` with the data of each event that `bytes` complete, in order.
  void Feed(std::string_view bytes, const std::function<void(std::string_view)>& on_data);

 private:
  std::string line_;  // begun, without its end
  std::string data_;
  bool has_data_ = false;
};

// One streamed answer of /v1/completions or /v1/chat/completions. A chunk brings tokens if it has
// text, or neither text nor a role nor an end (a token of no characters of its own). The role chunk
// that opens a chat is no token, and the chunk with finish_reason is none either, but the answer
// lasts until it.
class CompletionStream {
 public:
  // `start` as in LoadRecord.
  CompletionStream(size_t index, double start);
  ~CompletionStream();

  void Feed(std::string_view bytes, double now);
  // The end of the stream. What did not begin or did not end is a failure.
  LoadRecord Finish();

  uint64_t token_chunks() const { return token_chunks_; }

 private:
  void OnEvent(std::string_view data, double now);

  SseParser events_;
  struct Parser;  // keeps simdjson out of this header
  std::unique_ptr<Parser> parser_;
  LoadRecord record_;
  double last_token_ = 0;  // seconds from the begin of the run
  uint64_t token_chunks_ = 0;
  bool finished_ = false;  // a finish_reason or [DONE] came
};

// The message of an error body in OpenAI's form, {"error": {"message": ...}} or {"message": ...};
// else the body's first 200 bytes. One line.
std::string ErrorMessageOf(std::string_view body);

}  // namespace masu
