#include "checkpoint/gguf.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdio>
#include <filesystem>
#include <limits>

#include "tests/support/gguf_writer.h"

namespace masu {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

std::string ErrorOf(const ByteVector& bytes) {
  const auto file = GgufFile::Parse(bytes, "tiny.gguf");
  return file.ok() ? "no error" : file.error().message;
}

template <typename T>
std::string Message(const Result<T>& result) {
  return result.ok() ? "no error" : result.error().message;
}

TEST(Gguf, ConvertsMetadataAsDocumented) {
  GgufWriter writer;
  writer.AddU32("u32", 7);
  writer.AddI32("negative", -7);
  writer.AddU64("large", std::numeric_limits<uint64_t>::max());
  writer.AddF32("f32", 0.5f);
  writer.AddF64("f64", 1e300);
  writer.AddBool("bool", true);
  writer.AddString("string", "two\nlines");
  writer.AddStrings("strings", std::vector<std::string>{"a", "", "ccc"});
  writer.AddI32s("i32s", std::vector<int32_t>{1, -2});
  writer.AddF32s("f32s", std::vector<float>{1.5f});
  const ByteVector bytes = writer.Bytes();
  const auto file = GgufFile::Parse(bytes, "tiny.gguf").value();

  EXPECT_THAT(file->keys(), ElementsAre("u32", "negative", "large", "f32", "f64", "bool", "string",
                                        "strings", "i32s", "f32s"));
  EXPECT_TRUE(file->Has("u32"));
  EXPECT_FALSE(file->Has("u33"));
  EXPECT_EQ(file->GetUnsigned("absent").value(), std::nullopt);
  EXPECT_EQ(file->GetUnsigned("u32").value(), 7u);
  EXPECT_EQ(file->GetUnsigned("bool").value(), 1u);
  EXPECT_EQ(file->GetUnsigned("large").value(), std::numeric_limits<uint64_t>::max());
  EXPECT_EQ(file->GetFloat("f32").value(), 0.5);
  EXPECT_EQ(file->GetFloat("f64").value(), 1e300);
  EXPECT_EQ(file->GetFloat("negative").value(), -7.0);
  EXPECT_EQ(file->GetBool("bool").value(), true);
  EXPECT_EQ(file->GetString("string").value(), "two\nlines");
  EXPECT_THAT(*file->GetStrings("strings").value(), ElementsAre("a", "", "ccc"));
  EXPECT_THAT(*file->GetIntegers("i32s").value(), ElementsAre(1, -2));
  EXPECT_THAT(*file->GetFloats("i32s").value(), ElementsAre(1.0f, -2.0f));
  EXPECT_THAT(*file->GetFloats("f32s").value(), ElementsAre(1.5f));

  EXPECT_EQ(Message(file->GetUnsigned("f32")),
            "tiny.gguf: key 'f32' holds f32, expected an unsigned integer");
  EXPECT_THAT(Message(file->GetUnsigned("negative")), HasSubstr("key 'negative' is -7"));
  EXPECT_THAT(Message(file->GetUnsigned("i32s")), HasSubstr("holds an array of i32"));
  EXPECT_THAT(Message(file->GetFloat("bool")), HasSubstr("holds bool, expected a number"));
  EXPECT_THAT(Message(file->GetBool("u32")), HasSubstr("holds u32, expected a bool"));
  EXPECT_THAT(Message(file->GetString("strings")), HasSubstr("holds an array of string"));
  EXPECT_THAT(Message(file->GetStrings("string")), HasSubstr("expected an array of strings"));
  EXPECT_THAT(Message(file->GetIntegers("strings")), HasSubstr("holds an array of string"));
  EXPECT_THAT(Message(file->GetIntegers("f32s")), HasSubstr("holds an array of f32"));
  EXPECT_THAT(Message(file->GetFloats("u32")), HasSubstr("expected an array of numbers"));
}

TEST(Gguf, HandsOutTensorsWithExactlyTheirBytes) {
  for (const uint32_t alignment : {8u, 32u, 4096u}) {
    GgufWriter writer;
    writer.SetAlignment(alignment);
    writer.AddTensor("a", {32, 3}, GgmlFormat::kQ4_0, std::vector<float>(96, 1.0f));
    writer.AddTensor("b", {5, 1, 1, 2}, GgmlFormat::kF32, std::vector<float>(10, 2.0f));
    const ByteVector bytes = writer.Bytes();
    const auto file = GgufFile::Parse(bytes, "tiny.gguf").value();
    ASSERT_EQ(file->tensors().size(), 2u);
    const GgufTensor* a = file->FindTensor("a");
    ASSERT_NE(a, nullptr);
    EXPECT_EQ(a->type, GgmlType::kQ4_0);
    EXPECT_EQ(a->data.size(), 3u * 18);
    EXPECT_EQ(a->elements(), 96u);
    EXPECT_EQ((a->data.data() - bytes.data()) % alignment, 0);
    const GgufTensor* b = file->FindTensor("b");
    EXPECT_THAT(b->shape, ElementsAre(5, 1, 1, 2));
    EXPECT_EQ(b->data.data() + b->data.size(), bytes.data() + bytes.size());
    EXPECT_EQ(file->FindTensor("c"), nullptr);
    file->Release(*a);  // nothing is mapped: does nothing
  }
}

TEST(Gguf, OpensAFileAndNamesWhatCannotBeOpened) {
  const std::string folder = testing::TempDir();
  const std::string path = folder + "/masu_gguf_test.gguf";
  GgufWriter writer;
  writer.AddTensor("a", {4}, GgmlFormat::kF32, std::vector<float>{1, 2, 3, 4});
  ASSERT_TRUE(WriteFile(path, writer.Bytes()).ok());
  EXPECT_EQ(GgufFile::Open(path).value()->tensors().size(), 1u);
  ASSERT_TRUE(WriteFile(path, {}).ok());
  EXPECT_EQ(Message(GgufFile::Open(path)), path + ": the file is empty; fetch it again");
  std::filesystem::remove(path);
  const auto absent = GgufFile::Open(path);
  EXPECT_EQ(absent.error().code, ErrorCode::kNotFound);
  EXPECT_EQ(absent.error().message, path + ": cannot open the file: No such file or directory");
  EXPECT_THAT(Message(GgufFile::Open(folder)), HasSubstr("is not a regular file"));
}

TEST(Gguf, RefusesOtherFilesByName) {
  const auto text = [](std::string_view content) {
    const auto raw = std::as_bytes(std::span(content.data(), content.size()));
    return ErrorOf(ByteVector(raw.begin(), raw.end()));
  };
  EXPECT_EQ(text("PK\x03\x04zip"),
            "tiny.gguf: is not a GGUF file: it begins with 'PK\\x03\\x04', expected 'GGUF'");
  EXPECT_THAT(text("version https://git-lfs.github.com/spec/v1"), HasSubstr("git lfs pull"));
  EXPECT_THAT(text("GGUF"), HasSubstr("ends inside its header (4 bytes)"));
  EXPECT_THAT(text(""), HasSubstr("is not a GGUF file"));
}

TEST(Gguf, RefusesMetadataThatTheFormatForbids) {
  const auto raw = [](uint32_t type, std::vector<uint8_t> value) {
    GgufWriter writer;
    writer.AddRaw("k", type, std::as_bytes(std::span(value)));
    writer.AddString("padding", "so that the counts in the header are plausible");
    return ErrorOf(writer.Bytes());
  };
  EXPECT_THAT(raw(13, {0}), HasSubstr("key 'k' has the unknown value type 13"));
  EXPECT_THAT(raw(7, {2}), HasSubstr("key 'k' is a bool with the value 2"));
  EXPECT_THAT(raw(9, {9, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0}),
              HasSubstr("key 'k' is an array of arrays"));
  EXPECT_THAT(raw(9, {99, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0}),
              HasSubstr("key 'k' is an array of the unknown value type 99"));
  EXPECT_THAT(raw(9, {4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0x40}),
              HasSubstr("key 'k' is an array of 4611686018427387904 u32 values but the file has"));
}

TEST(Gguf, NamesFromTheFileCannotBreakTheLine) {
  GgufWriter writer;
  writer.AddU32("evil\n\x1b[31m", 1);
  writer.AddU32("evil\n\x1b[31m", 1);
  EXPECT_THAT(ErrorOf(writer.Bytes()), HasSubstr("key 'evil\\x0a\\x1b[31m' occurs twice"));
}

TEST(Gguf, NamesTypes) {
  EXPECT_EQ(GgmlTypeName(3), "Q4_1");
  EXPECT_EQ(GgmlTypeName(14), "Q6_K");
  EXPECT_EQ(GgmlTypeName(77), "type 77");
}

}  // namespace
}  // namespace masu
