#include "text/open_chat_template.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "tests/support/gguf_writer.h"
#include "text/open_tokenizer.h"

namespace masu {
namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::StartsWith;

class OpenModel : public testing::Test {
 protected:
  void SetUp() override {
    const auto* info = testing::UnitTest::GetInstance()->current_test_info();
    folder_ = fs::path(testing::TempDir()) / (std::string("masu_open_") + info->name());
    fs::remove_all(folder_);
    fs::create_directories(folder_ / "additional_chat_templates");
  }
  void TearDown() override { fs::remove_all(folder_); }

  std::string Path(const std::string& name) const { return (folder_ / name).string(); }
  void Put(const std::string& name, std::string_view text) {
    std::ofstream(Path(name), std::ios::binary) << text;
  }
  // What the template renders, with and without tools, or the error.
  std::string Rendered(const std::string& path, const std::string& name, bool tools) {
    const auto opened = OpenChatTemplate(path, name);
    if (!opened.ok()) return opened.error().message;
    const auto messages = nlohmann::ordered_json::array();
    const auto some_tools = nlohmann::ordered_json::array({"tool"});
    ChatTemplateInput input;
    input.messages = &messages;
    if (tools) input.tools = &some_tools;
    std::string text;
    const auto segments = (*opened)->Render(input);
    for (const TextSegment& segment : segments.value()) text += segment.text;
    return text;
  }
  std::string Rendered(const std::string& name = "", bool tools = false) {
    return Rendered(folder_.string(), name, tools);
  }
  fs::path folder_;
};

// The order of transformers: files of templates, then what a configuration says.
TEST_F(OpenModel, TemplatesOfADirectory) {
  EXPECT_EQ(Rendered(), "the checkpoint has no chat template");
  Put("tokenizer_config.json", R"({"chat_template": "config"})");
  EXPECT_EQ(Rendered(), "config");
  EXPECT_EQ(Rendered("", true), "config");
  Put("chat_template.json", R"({"chat_template": "processor"})");
  EXPECT_EQ(Rendered(), "processor");
  Put("additional_chat_templates/rag.jinja", "rag");
  EXPECT_EQ(Rendered("rag"), "rag");
  EXPECT_EQ(Rendered(), "the checkpoint has no chat template named 'default'; it has: rag");
  Put("chat_template.jinja", "jinja");
  EXPECT_EQ(Rendered(), "jinja");
  EXPECT_EQ(Rendered("default"), "jinja");
  EXPECT_EQ(Rendered("", true), "jinja");
  Put("additional_chat_templates/tool_use.jinja", "tools");
  EXPECT_EQ(Rendered("", true), "tools");
  EXPECT_EQ(Rendered("default", true), "jinja");
  EXPECT_EQ(Rendered("x"),
            "the checkpoint has no chat template named 'x'; it has: default, rag, tool_use");
}

TEST_F(OpenModel, SeveralTemplatesInAConfiguration) {
  Put("tokenizer_config.json",
      R"({"chat_template": [{"name": "default", "template": "plain"},)"
      R"({"name": "tool_use", "template": "tools"}, {"name": "rag", "template": "rag"}]})");
  EXPECT_EQ(Rendered(), "plain");
  EXPECT_EQ(Rendered("", true), "tools");
  EXPECT_EQ(Rendered("rag", true), "rag");
  Put("tokenizer_config.json", R"({"chat_template": [{"name": "rag", "template": "rag"}]})");
  EXPECT_EQ(Rendered(), "the checkpoint has no chat template named 'default'; it has: rag");
}

TEST_F(OpenModel, TemplatesOfAGgufFile) {
  GgufWriter writer;
  writer.AddString("tokenizer.chat_template", "plain");
  writer.AddString("tokenizer.chat_template.tool_use", "tools");
  writer.AddString("tokenizer.chat_templates", "not one");
  ASSERT_TRUE(WriteFile(Path("m.gguf"), writer.Bytes()).ok());
  EXPECT_EQ(Rendered(Path("m.gguf"), "", false), "plain");
  EXPECT_EQ(Rendered(Path("m.gguf"), "", true), "tools");
  EXPECT_THAT(Rendered(Path("m.gguf"), "s", true), HasSubstr("it has: default, tool_use"));
}

TEST_F(OpenModel, DamagedTemplatesAreNamed) {
  const auto code = [&] { return OpenChatTemplate(folder_.string(), "").error().code; };
  Put("tokenizer_config.json", R"({"chat_template": 7})");
  EXPECT_THAT(Rendered(), HasSubstr("tokenizer_config.json: chat_template is not an array"));
  EXPECT_EQ(code(), ErrorCode::kDataLoss);
  Put("tokenizer_config.json", R"({"chat_template": [{"name": "default"}]})");
  EXPECT_THAT(Rendered(), HasSubstr("chat_template[0].template is missing"));
  Put("tokenizer_config.json", "{");
  EXPECT_THAT(Rendered(), HasSubstr("tokenizer_config.json is not valid JSON"));
  Put("chat_template.jinja", "a\n{% nonsense %}");
  EXPECT_THAT(Rendered(), StartsWith("the checkpoint's chat template cannot be used: "));
  EXPECT_THAT(Rendered(), HasSubstr("line 2"));
  EXPECT_NE(code(), ErrorCode::kDataLoss);
}

constexpr const char* kTokenizer = R"({"added_tokens":[{"id":3,"content":"<e>","special":true}],
"model":{"type":"BPE","vocab":{"a":0,"b":1,"c":2},"merges":[]},"decoder":{"type":"ByteLevel"}})";

// Published checkpoints name the end of a turn in one file or the other.
TEST_F(OpenModel, EndsOfADirectory) {
  const auto ends = [&] {
    const auto tokenizer = OpenTokenizer(folder_.string());
    EXPECT_TRUE(tokenizer.ok()) << tokenizer.error().message;
    const auto span = (*tokenizer)->end_of_generation();
    return std::vector<TokenId>(span.begin(), span.end());
  };
  Put("tokenizer.json", kTokenizer);
  EXPECT_THAT(ends(), ElementsAre());
  Put("config.json", R"({"model_type": "unheard of", "eos_token_id": [2, 1]})");
  EXPECT_THAT(ends(), ElementsAre(2, 1));
  Put("generation_config.json", R"({"eos_token_id": 1})");
  EXPECT_THAT(ends(), ElementsAre(1, 2));
  Put("tokenizer_config.json", R"({"eos_token": "<e>"})");
  EXPECT_THAT(ends(), ElementsAre(3, 1, 2));
  Put("generation_config.json", R"({"eos_token_id": "x"})");
  EXPECT_THAT(OpenTokenizer(folder_.string()).error().message,
              HasSubstr("generation_config.json: key 'eos_token_id' is \"x\""));
}

TEST_F(OpenModel, WhatHasNoTokenizer) {
  const auto error = [](const std::string& path) { return OpenTokenizer(path).error().message; };
  EXPECT_EQ(error(folder_.string()),
            folder_.string() +
                ": there is none of tokenizer.json, tokenizer.model and tiktoken.model; fetch it, "
                "too");
  EXPECT_EQ(error(Path("no.json")), Path("no.json") + ": no such file");
  fs::create_directory(Path("d.json"));
  fs::create_directory(Path("tokenizer.json"));
  EXPECT_THAT(error(Path("tokenizer.json")), HasSubstr("there is none of"));
  EXPECT_EQ(error(folder_.string()), Path("tokenizer.json") + ": is a directory; give a file");
}

}  // namespace
}  // namespace masu
