// What report B611 asks of GGUF files, for safetensors: a damaged file gives a clear error,
// whatever is damaged, and never a crash. fuzz/safetensors_fuzz.cc goes on from there.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>

#include "checkpoint/safetensors.h"
#include "tests/support/safetensors_writer.h"

namespace masu {
namespace {

using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;

constexpr const char* kValid =
    R"({"__metadata__":{"format":"pt"},"a":{"dtype":"F32","shape":[2,3],"data_offsets":[0,24]},)"
    R"("b":{"dtype":"BF16","shape":[4],"data_offsets":[24,32]}})";

class SafetensorsDamage : public testing::Test {
 protected:
  static Result<SafetensorsFile> Parse(const ByteVector& bytes) {
    const ByteVector exact(bytes.begin(), bytes.end());  // no spare capacity to hide a read
    return SafetensorsFile::Parse(exact, "bad.safetensors");
  }
  // The file must be refused with one line that names the file, and `cause` in it.
  void ExpectBytes(const ByteVector& bytes, const std::string& cause) {
    ++mutations_;
    const auto file = Parse(bytes);
    ASSERT_FALSE(file.ok()) << "accepted, expected: " << cause;
    EXPECT_THAT(file.error().message, StartsWith("bad.safetensors: "));
    EXPECT_THAT(file.error().message, HasSubstr(cause));
    EXPECT_THAT(file.error().message, Not(HasSubstr("\n")));
  }
  // The valid header with `from` replaced once.
  void Expect(const std::string& from, const std::string& to, const std::string& cause) {
    std::string header = kValid;
    const size_t at = header.find(from);
    ASSERT_NE(at, std::string::npos) << from;
    header.replace(at, from.size(), to);
    SCOPED_TRACE(header);
    ExpectBytes(WrapSafetensors(header, data_), cause);
  }
  void ExpectHeader(const std::string& header, const std::string& cause) {
    SCOPED_TRACE(header);
    ExpectBytes(WrapSafetensors(header, data_), cause);
  }

  const ByteVector data_ = ByteVector(32);
  const ByteVector valid_ = WrapSafetensors(kValid, data_);
  int mutations_ = 0;
};

TEST_F(SafetensorsDamage, ValidFileLoads) {
  const auto file = SafetensorsFile::Parse(valid_, "good.safetensors");
  ASSERT_TRUE(file.ok()) << file.error().message;
  ASSERT_EQ(file->tensors().size(), 2u);
  EXPECT_EQ(file->tensors()[0].name, "a");
  EXPECT_EQ(file->tensors()[0].format, GgmlFormat::kF32);
  EXPECT_EQ(file->tensors()[0].shape, (std::vector<uint64_t>{2, 3}));
  EXPECT_EQ(file->tensors()[1].format, GgmlFormat::kBF16);
  EXPECT_EQ(file->tensors()[1].data.size(), 8u);
}

TEST_F(SafetensorsDamage, EveryTruncation) {
  for (size_t size = 0; size < valid_.size(); ++size) {
    const ByteVector cut(valid_.begin(), valid_.begin() + static_cast<ptrdiff_t>(size));
    const size_t data_start = valid_.size() - data_.size();
    ExpectBytes(cut, size < 8            ? "too few for a safetensors file"
                     : size < data_start ? "runs past the end of the file"
                                         : "the file is truncated, fetch it again");
  }
  ByteVector longer = valid_;
  longer.push_back(std::byte{0});
  ExpectBytes(longer, "tensor 'b' ends at byte 32 of the data but the file has 33");
  EXPECT_GT(mutations_, 180);
}

TEST_F(SafetensorsDamage, HeaderLength) {
  for (const uint64_t length : {UINT64_MAX, uint64_t{1} << 63, uint64_t{100'000'001}}) {
    ByteVector bytes = valid_;
    std::memcpy(bytes.data(), &length, sizeof(length));
    ExpectBytes(bytes, fmt::format("its header would be {} bytes, allowed are 100000000", length));
  }
  for (const uint64_t length : {uint64_t{100'000'000}, uint64_t{valid_.size()}}) {
    ByteVector bytes = valid_;
    std::memcpy(bytes.data(), &length, sizeof(length));
    ExpectBytes(bytes, fmt::format("its header of {} bytes runs past the end", length));
  }
  for (const uint64_t length : {uint64_t{1}, uint64_t{20}, uint64_t{std::strlen(kValid) - 1}}) {
    ByteVector bytes = valid_;
    std::memcpy(bytes.data(), &length, sizeof(length));
    ExpectBytes(bytes, "is not valid JSON at byte");
  }
  ByteVector zero = valid_;
  zero[8 + std::strlen(kValid) - 1] = std::byte{0};
  ExpectBytes(zero, "its header has a zero byte at ");
  ByteVector empty = valid_;
  std::memset(empty.data(), 0, 8);
  ExpectBytes(empty, "its header begins with '', expected '{'");
}

TEST_F(SafetensorsDamage, Grammar) {
  for (const char* header : {"[]", " {}", "7", "\"x\"", "null"}) {
    ExpectHeader(header, "is not a safetensors file: its header begins with");
  }
  ExpectHeader("{", "is not valid JSON at byte");
  ExpectHeader("{}x", "is not valid JSON at byte");
  ExpectHeader("{\"a\": \xff}", "is not valid JSON at byte");
  ExpectHeader(R"({"a": 5})", "its header has a number at 'a'");
  ExpectHeader(R"({"a": [1]})", "its header has a list at 'a'");
  ExpectHeader(R"({"a": null})", "its header has null at 'a'");
  ExpectHeader(R"({"a": true})", "its header has true or false at 'a'");
  ExpectHeader(R"({"a": "x"})", "its header has a string at 'a'");
  ExpectHeader(R"({"a": {"b": {}}})", "tensor 'a' has the unknown field 'b'");
  ExpectHeader(R"({"__metadata__": {"a": {}}})", "an object at 'a'");
  ExpectHeader(R"({"__metadata__": {"a": 1}})", "a number at 'a'");
  ExpectHeader(R"({"__metadata__": {}, "__metadata__": {}})", "'__metadata__' occurs twice");
  std::string deep = R"({"a": )";
  for (int i = 0; i < 100000; ++i) deep += "[";
  ExpectHeader(deep, "its header has a list at 'a'");
  std::string deep_shape = R"({"a": {"shape": )";
  for (int i = 0; i < 100000; ++i) deep_shape += "[";
  ExpectHeader(deep_shape, "tensor 'a' has a list at 'shape'");
}

TEST_F(SafetensorsDamage, Fields) {
  Expect(R"("dtype":"F32",)", "", "tensor 'a' has no 'dtype'");
  Expect(R"("shape":[2,3],)", "", "tensor 'a' has no 'shape'");
  Expect(R"(,"data_offsets":[0,24])", "", "tensor 'a' has no 'data_offsets'");
  Expect(R"("dtype":"F32",)", R"("dtype":"F32","dtype":"F32",)", "tensor 'a' has two 'dtype'");
  Expect(R"("shape":[2,3],)", R"("shape":[2,3],"shape":[2,3],)", "tensor 'a' has two 'shape'");
  Expect(R"("dtype":"F32")", R"("dtype":32)", "tensor 'a' has a number at 'dtype'");
  Expect(R"("dtype":"F32")", R"("dtype":["F32"])", "tensor 'a' has a list at 'dtype'");
  Expect(R"("shape":[2,3])", R"("shape":"6")", "tensor 'a' has a string at 'shape'");
  Expect(R"("shape":[2,3])", R"("shape":6)", "tensor 'a' has a number at 'shape'");
  Expect(R"("shape":[2,3])", R"("shape":[2,"3"])", "tensor 'a' has a string at 'shape'");
  Expect(R"("shape":[2,3])", R"("shape":[1,1,1,1,1,1,1,2,3])",
         "tensor 'a' has more than 8 values in 'shape'");
  Expect("[0,24]", "[0]", "tensor 'a' has 1 data_offsets, expected 2");
  Expect("[0,24]", "[0,12,24]", "tensor 'a' has 3 data_offsets, expected 2");
  Expect("[0,24]", "[0,24,{}]", "tensor 'a' has an object at 'data_offsets'");
  for (const char* number : {"-1", "-9223372036854775808"}) {
    Expect("[2,3]", fmt::format("[{},3]", number), "expected no negative numbers");
    Expect("[0,24]", fmt::format("[{},24]", number), "expected no negative numbers");
  }
  for (const char* number : {"2.0", "1e3", "18446744073709551616"}) {
    Expect("[2,3]", fmt::format("[{},3]", number), "expected integers below 2^64");
    Expect("[0,24]", fmt::format("[0,{}]", number), "expected integers below 2^64");
  }
}

TEST_F(SafetensorsDamage, Types) {
  for (const char* type : {"I8", "U8", "I16", "I32", "I64", "F64", "BOOL", "F8_E4M3", "F8_E5M2",
                           "F8_E8M0", "U32", "f32", "", "F4"}) {
    Expect(R"("F32")", fmt::format(R"("{}")", type),
           fmt::format("tensor 'a' is stored as '{}', masu reads BF16, F16 and F32", type));
  }
  Expect(R"("F32")", R"("F16")", "0..24 do not hold the 12 bytes that F16 [2, 3] needs");
  Expect(R"("F32")", R"("BF16")", "0..24 do not hold the 12 bytes that BF16 [2, 3] needs");
}

TEST_F(SafetensorsDamage, Shapes) {
  for (const char* shape : {"", "2", "3,3", "2,3,2", "0", "2,0", "24"}) {
    Expect("[2,3]", fmt::format("[{}]", shape), "tensor 'a': data_offsets 0..24 do not hold the ");
  }
  // Products that wrap to what the offsets hold, or to zero, or hide behind a zero.
  for (const char* shape :
       {"4294967296,4294967296", "9223372036854775808,2", "18446744073709551615",
        "4611686018427387904", "0,18446744073709551615", "3074457345618258604,3,2"}) {
    Expect("[2,3]", fmt::format("[{}]", shape), "overflows 64 bits");
  }
}

TEST_F(SafetensorsDamage, Offsets) {
  Expect("[0,24]", "[24,0]", "tensor 'a': data_offsets 24..0 do not hold the 24 bytes");
  Expect("[0,24]", "[0,25]", "tensor 'a': data_offsets 0..25 do not hold the 24 bytes");
  Expect("[0,24]", "[18446744073709551615,23]", "do not hold the 24 bytes");
  Expect("[0,24]", "[18446744073709551592,18446744073709551615]", "do not hold the 24 bytes");
  Expect("[0,24]", "[18446744073709551591,18446744073709551615]",
         "tensor 'a': needs bytes 18446744073709551591..18446744073709551615 of the data but");
  Expect("[0,24]", "[16,40]", "tensor 'a': needs bytes 16..40 of the data but the file has 32");
  Expect("[24,32]", "[23,31]",
         "tensor 'b' begins at byte 23 of the data, but tensor 'a' ends at "
         "24: they overlap");
  Expect("[0,24]", "[8,32]", "tensor 'a' begins at byte 8 of the data, but the start ends at 0");
  ByteVector gap = WrapSafetensors(R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},)"
                                   R"("b":{"dtype":"F32","shape":[1],"data_offsets":[8,12]}})",
                                   ByteVector(12));
  ExpectBytes(gap, "tensor 'b' begins at byte 8 of the data, but tensor 'a' ends at 4: there is a");
  ExpectHeader("{}", "the start ends at byte 0 of the data but the file has 32");
  Expect(R"("b":)", R"("a":)", "tensor 'a' occurs twice");
}

TEST_F(SafetensorsDamage, OtherFilesAreNamed) {
  const std::string pointer = "version https://git-lfs.github.com/spec/v1\noid sha256:00\n";
  ByteVector bytes(pointer.size());
  std::memcpy(bytes.data(), pointer.data(), pointer.size());
  ExpectBytes(bytes, "is a Git LFS pointer, not the model itself; run 'git lfs pull'");
}

// Single bits of the header and its length: an error, or another valid file.
TEST_F(SafetensorsDamage, FlippedBitsNeverCrash) {
  int refused = 0;
  for (size_t i = 0; i < (valid_.size() - data_.size()) * 8; ++i) {
    ByteVector bytes = valid_;
    bytes[i / 8] ^= static_cast<std::byte>(1u << (i % 8));
    const auto file = Parse(bytes);
    if (file.ok()) continue;
    ++refused;
    EXPECT_THAT(file.error().message, StartsWith("bad.safetensors: "));
    EXPECT_THAT(file.error().message, Not(HasSubstr("\n")));
  }
  EXPECT_GT(refused, 800);
}

}  // namespace
}  // namespace masu
