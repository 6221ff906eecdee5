#include "bench/sse_stream.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace masu {
namespace {

using ::testing::DoubleEq;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::vector<std::string> EventsOf(const std::vector<std::string>& pieces) {
  std::vector<std::string> events;
  SseParser parser;
  for (const std::string& piece : pieces) {
    parser.Feed(piece, [&events](std::string_view data) { events.emplace_back(data); });
  }
  return events;
}

TEST(SseParser, EventsFromAnyCut) {
  const std::string stream =
      ": keep-alive\n\ndata: {\"a\": 1}\n\nevent: x\ndata:two\r\ndata: lines\r\n\r\nid: 3\n\n"
      "data: [DONE]\n\n";
  const auto expected = ElementsAre("{\"a\": 1}", "two\nlines", "[DONE]");
  EXPECT_THAT(EventsOf({stream}), expected);
  for (size_t cut = 1; cut < stream.size(); ++cut) {
    EXPECT_THAT(EventsOf({stream.substr(0, cut), stream.substr(cut)}), expected) << cut;
  }
  std::vector<std::string> bytes;
  for (const char byte : stream) bytes.emplace_back(1, byte);
  EXPECT_THAT(EventsOf(bytes), expected);
}

TEST(SseParser, AnEventWithoutItsEndIsNone) {
  EXPECT_TRUE(EventsOf({"data: {\"a\": 1}\n"}).empty());
}

std::string Event(const std::string& json) { return "data: " + json + "\n\n"; }

TEST(CompletionStream, TimesAndCounts) {
  CompletionStream stream(4, 10);
  stream.Feed(Event(R"({"choices":[{"text":"a","finish_reason":null}]})"), 10.5);
  stream.Feed(Event(R"({"choices":[{"text":"b","finish_reason":null}]})"), 10.75);
  stream.Feed(Event(R"({"choices":[{"text":"","finish_reason":null}]})"), 11);
  stream.Feed(Event(R"({"choices":[{"text":"","finish_reason":"length"}]})"), 11.5);
  stream.Feed(Event(R"({"choices":[],"usage":{"prompt_tokens":7,"completion_tokens":4}})"), 12);
  stream.Feed(Event("[DONE]"), 13);
  const LoadRecord record = stream.Finish();
  EXPECT_TRUE(record.success);
  EXPECT_EQ(record.index, 4u);
  EXPECT_DOUBLE_EQ(record.ttft, 0.5);
  EXPECT_THAT(record.itls, ElementsAre(DoubleEq(0.25), DoubleEq(0.25)));
  EXPECT_DOUBLE_EQ(record.latency, 1.5);
  EXPECT_EQ(record.prompt_tokens, 7u);
  EXPECT_EQ(record.output_tokens, 4u);
  EXPECT_EQ(record.text, "ab");
}

TEST(CompletionStream, ARoleIsNoToken) {
  CompletionStream stream(0, 0);
  stream.Feed(Event(R"({"choices":[{"delta":{"role":"assistant","content":""}}]})"), 1);
  EXPECT_EQ(stream.token_chunks(), 0u);
  stream.Feed(Event(R"({"choices":[{"delta":{"content":"x"},"finish_reason":"stop"}]})"), 3);
  const LoadRecord record = stream.Finish();
  EXPECT_TRUE(record.success);
  EXPECT_DOUBLE_EQ(record.ttft, 3);
  EXPECT_TRUE(record.itls.empty());
}

TEST(CompletionStream, AnAnswerOfNothingButItsEnd) {
  CompletionStream stream(0, 0);
  stream.Feed(Event(R"({"choices":[{"text":"","finish_reason":"stop"}]})"), 2);
  const LoadRecord record = stream.Finish();
  EXPECT_TRUE(record.success);
  EXPECT_DOUBLE_EQ(record.ttft, 2);
}

TEST(CompletionStream, FailuresSayWhy) {
  CompletionStream error(0, 0);
  error.Feed(Event(R"({"choices":[{"text":"a","finish_reason":null}]})"), 1);
  error.Feed(Event(R"({"error":{"message":"out of\npages","code":500}})") + Event("[DONE]"), 2);
  EXPECT_EQ(error.Finish().error, "out of pages");

  CompletionStream cut(0, 0);
  cut.Feed(Event(R"({"choices":[{"text":"a","finish_reason":null}]})"), 1);
  EXPECT_THAT(cut.Finish().error, HasSubstr("ended before"));

  CompletionStream plain(0, 0);
  plain.Feed(R"({"choices":[{"text":"all at once"}]})", 1);
  const LoadRecord record = plain.Finish();
  EXPECT_FALSE(record.success);
  EXPECT_THAT(record.error, HasSubstr("no stream"));

  CompletionStream broken(0, 0);
  broken.Feed(Event("{oops"), 1);
  EXPECT_THAT(broken.Finish().error, HasSubstr("{oops"));
}

TEST(ErrorMessageOf, TheFormsThatServersUse) {
  EXPECT_EQ(ErrorMessageOf(R"({"error":{"message":"no such model"}})"), "no such model");
  EXPECT_EQ(ErrorMessageOf(R"({"object":"error","message":"flat"})"), "flat");
  EXPECT_EQ(ErrorMessageOf(R"({"error":"Unauthorized"})"), "Unauthorized");
  EXPECT_EQ(ErrorMessageOf(R"({"detail": "x"})"), R"({"detail":"x"})");
  EXPECT_EQ(ErrorMessageOf("<html>\nbad gateway"), "<html> bad gateway");
  EXPECT_EQ(ErrorMessageOf(""), "");
}

}  // namespace
}  // namespace masu
