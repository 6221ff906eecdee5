#include "server/json_fields.h"

#include <gtest/gtest.h>

namespace masu {
namespace {

std::string ErrorOf(std::string_view text, const JsonLimits& limits = {}) {
  const auto parsed = ParseJsonObject(text, limits);
  return parsed.ok() ? "" : parsed.error().message;
}

TEST(ParseJsonObject, AcceptsObjectsOnly) {
  EXPECT_TRUE(ParseJsonObject(R"({"a": [1, "x\"]}", {}]})").ok());
  EXPECT_NE(ErrorOf("").find("not valid JSON"), std::string::npos);
  EXPECT_NE(ErrorOf("{").find("not valid JSON"), std::string::npos);
  EXPECT_NE(ErrorOf("{\"a\": \"\xff\"}").find("not valid JSON"), std::string::npos);
  EXPECT_NE(ErrorOf("[1]").find("an array"), std::string::npos);
  EXPECT_NE(ErrorOf("{} {}").find("not valid JSON"), std::string::npos);
}

TEST(ParseJsonObject, BoundsDepthValuesAndMembers) {
  const std::string deep = "{\"a\":" + std::string(100'000, '[') + std::string(100'000, ']') + "}";
  EXPECT_NE(ErrorOf(deep).find("128 levels"), std::string::npos);
  EXPECT_NE(ErrorOf(R"({"a":[1,2,3,4]})", {.values = 3}).find("3 values"), std::string::npos);
  EXPECT_NE(ErrorOf(R"({"a":1,"b":2})", {.members = 1}).find("1 members"), std::string::npos);
  // What takes more memory counts for more: 800,000 empty strings would become 64 MB.
  std::string strings = "{\"a\":[\"\"";
  for (int i = 0; i < 1'000'000; ++i) strings += ",\"\"";
  EXPECT_NE(ErrorOf(strings + "]}").find("a string counts as 5"), std::string::npos);
  EXPECT_NE(ErrorOf(R"({"a":[{},{},{}]})", {.values = 20}).find("20 values"), std::string::npos);
  EXPECT_EQ(ErrorOf(R"({"a":[1,2,3]})", {.values = 20}), "");
  // Brackets in strings do not count.
  EXPECT_EQ(ErrorOf("{\"a\":\"" + std::string(1000, '[') + "\\\"[\"}"), "");
}

TEST(FieldReader, NamesTheFieldThatIsWrong) {
  const Json body = {{"temperature", "hot"}, {"n", 1.5},      {"big", 1e300},   {"stop", {1}},
                     {"ids", {1, -1}},       {"whole", 16.0}, {"none", nullptr}};
  const auto check = [&](auto value, const char* name) {
    FieldReader reader(body);
    reader.Read(name, &value);
    return reader.ok() ? std::string() : reader.status().error().param;
  };
  EXPECT_EQ(check(0.0f, "temperature"), "temperature");
  EXPECT_EQ(check(0.0f, "big"), "big");
  EXPECT_EQ(check(uint32_t{0}, "n"), "n");
  EXPECT_EQ(check(uint32_t{0}, "whole"), "");
  EXPECT_EQ(check(uint32_t{0}, "none"), "");
  EXPECT_EQ(check(uint32_t{0}, "absent"), "");
  EXPECT_EQ(check(std::vector<TokenId>(), "ids"), "ids");
  FieldReader ids(body);
  std::vector<TokenId> tokens;
  ids.Read("ids", &tokens);
  EXPECT_EQ(ids.status().error().message, "ids must hold token ids, got -1");
  FieldReader strings(body);
  std::vector<std::string> out;
  strings.ReadStrings("stop", &out);
  EXPECT_EQ(strings.status().error().param, "stop");
}

TEST(DumpJson, ReplacesBrokenText) {
  EXPECT_EQ(DumpJson({{"a", "x\xff"}}), "{\"a\":\"x\xEF\xBF\xBD\"}");
}

}  // namespace
}  // namespace masu
