#include "bench/sse_stream.h"

#include <fmt/format.h>
#include <simdjson.h>

#include <algorithm>

namespace masu {
namespace {

constexpr size_t kShownBytes = 200;  // of an error that is no JSON

std::string OneLine(std::string_view text) {
  std::string line(text.substr(0, kShownBytes));
  std::replace_if(
      line.begin(), line.end(), [](char c) { return c == '\n' || c == '\r'; }, ' ');
  return line;
}

// The text of error.message, message, or error, whichever is there.
std::string MessageIn(simdjson::dom::element body) {
  std::string_view text;
  for (const char* pointer : {"/error/message", "/message", "/error"}) {
    if (body.at_pointer(pointer).get(text) == simdjson::SUCCESS) return OneLine(text);
  }
  return OneLine(simdjson::minify(body));
}

}  // namespace

void SseParser::Feed(std::string_view bytes, const std::function<void(std::string_view)>& on_data) {
  for (size_t end = bytes.find('\n'); end != std::string_view::npos; end = bytes.find('\n')) {
    line_ += bytes.substr(0, end);
    bytes.remove_prefix(end + 1);
    if (line_.ends_with('\r')) line_.pop_back();
    if (line_.empty()) {
      if (has_data_) on_data(data_);
      data_.clear();
      has_data_ = false;
    } else if (line_.starts_with("data:")) {
      if (has_data_) data_ += '\n';
      data_ += std::string_view(line_).substr(line_.starts_with("data: ") ? 6 : 5);
      has_data_ = true;
    }
    line_.clear();
  }
  line_ += bytes;
}

struct CompletionStream::Parser {
  simdjson::dom::parser dom;
};

CompletionStream::CompletionStream(size_t index, double start)
    : parser_(std::make_unique<Parser>()) {
  record_.index = index;
  record_.start = start;
}

CompletionStream::~CompletionStream() = default;

void CompletionStream::Feed(std::string_view bytes, double now) {
  events_.Feed(bytes, [this, now](std::string_view data) { OnEvent(data, now); });
}

void CompletionStream::OnEvent(std::string_view data, double now) {
  if (!record_.error.empty()) return;
  if (data == "[DONE]") {
    finished_ = true;
    return;
  }
  simdjson::dom::element chunk;
  if (parser_->dom.parse(data.data(), data.size()).get(chunk) != simdjson::SUCCESS) {
    record_.error = "an event of the stream is no JSON: " + OneLine(data);
    return;
  }
  if (chunk["error"].error() == simdjson::SUCCESS && !chunk["error"].is_null()) {
    record_.error = MessageIn(chunk);
    return;
  }
  uint64_t count = 0;
  if (chunk.at_pointer("/usage/prompt_tokens").get(count) == simdjson::SUCCESS) {
    record_.prompt_tokens = static_cast<uint32_t>(count);
  }
  if (chunk.at_pointer("/usage/completion_tokens").get(count) == simdjson::SUCCESS) {
    record_.output_tokens = static_cast<uint32_t>(count);
  }
  simdjson::dom::element choice;
  if (chunk.at_pointer("/choices/0").get(choice) != simdjson::SUCCESS) return;
  std::string_view text;
  for (const char* pointer : {"/text", "/delta/content", "/delta/reasoning_content"}) {
    if (choice.at_pointer(pointer).get(text) == simdjson::SUCCESS && !text.empty()) break;
  }
  std::string_view word;
  const bool ends = choice["finish_reason"].get(word) == simdjson::SUCCESS;
  const bool is_role = choice.at_pointer("/delta/role").get(word) == simdjson::SUCCESS;
  if (text.empty() && is_role && !ends) return;
  finished_ |= ends;
  record_.latency = now - record_.start;
  if (text.empty() && ends && token_chunks_ > 0) return;
  record_.text += text;
  if (token_chunks_++ == 0) {
    record_.ttft = now - record_.start;
  } else {
    record_.itls.push_back(now - last_token_);
  }
  last_token_ = now;
}

LoadRecord CompletionStream::Finish() {
  if (record_.error.empty() && token_chunks_ == 0) {
    record_.error = "the answer is no stream of completions (server-sent events)";
  } else if (record_.error.empty() && !finished_) {
    record_.error = "the stream ended before the answer was complete";
  }
  record_.success = record_.error.empty();
  return std::move(record_);
}

std::string ErrorMessageOf(std::string_view body) {
  simdjson::dom::parser parser;
  simdjson::dom::element json;
  if (parser.parse(body.data(), body.size()).get(json) == simdjson::SUCCESS) {
    return MessageIn(json);
  }
  return OneLine(body);
}

}  // namespace masu
