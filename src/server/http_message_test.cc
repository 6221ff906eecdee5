#include "server/http_message.h"

#include <gtest/gtest.h>

#include "server/auth.h"

namespace masu {
namespace {

TEST(HttpMessage, Targets) {
  EXPECT_EQ(ParseTarget("/v1/models/a%20b?x=1")->path, "/v1/models/a b");
  EXPECT_EQ(ParseTarget("/v1/models/a%20b?x=1")->query, "x=1");
  for (const char* bad : {"", "v1", "http://h/p", "/%", "/%1", "/%zz", "/%00"}) {
    EXPECT_FALSE(ParseTarget(bad)) << bad;
  }
}

TEST(HttpMessage, HeaderValuesCannotEndTheHeader) {
  const std::string text = SerializeResponse(
      {.status = 200, .body = "x", .headers = {{"A", "b\r\nEvil: yes"}}}, MessageFraming{});
  EXPECT_EQ(text.find("\r\nEvil"), std::string::npos);
  EXPECT_TRUE(text.ends_with("\r\n\r\nx"));
}

TEST(HttpMessage, Chunks) {
  EXPECT_EQ(ChunkOf("0123456789abcdef"), "10\r\n0123456789abcdef\r\n");
  EXPECT_EQ(ChunkOf(""), "");
}

TEST(ApiKeys, AcceptsOnlyItsKeysAndTellsThemApart) {
  const ApiKeys none({});
  EXPECT_EQ(none.OwnerOf(""), "");
  EXPECT_NE(none.OwnerOf("Bearer a"), none.OwnerOf("Bearer b"));
  const ApiKeys keys({"one", "two", ""});
  ASSERT_TRUE(keys.OwnerOf("Bearer one").has_value());
  EXPECT_EQ(keys.OwnerOf("Bearer one"), keys.OwnerOf("bearer one"));
  EXPECT_NE(keys.OwnerOf("Bearer one"), keys.OwnerOf("bearer two"));
  EXPECT_EQ(keys.OwnerOf("Bearer one")->find("one"), std::string::npos);  // the key is not kept
  for (const char* bad :
       {"", "Bearer", "Bearer ", "Bearer on", "Bearer onee", "Basic one", "one"}) {
    EXPECT_FALSE(keys.OwnerOf(bad).has_value()) << bad;
  }
}

}  // namespace
}  // namespace masu
