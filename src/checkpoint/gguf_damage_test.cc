// Report B611: a damaged file gives a clear error, whatever is damaged, and never a crash. The same
// mutations run under the sanitizers; fuzz/gguf_fuzz.cc goes on from there.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>

#include "checkpoint/gguf.h"
#include "checkpoint/tensor_accounting.h"
#include "tests/support/gguf_writer.h"
#include "tests/support/tiny_models.h"

namespace masu {
namespace {

using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;

constexpr uint64_t kTop = uint64_t{1} << 63;

ByteVector ValidFile() {
  TinyRandOptions options;
  options.layers = 1;
  options.hidden = 32;
  options.head_dim = 8;
  options.ffn = 32;
  options.vocab = 288;
  options.weights = GgmlFormat::kQ8_0;
  return MakeTinyRand(options).value();
}

template <typename T>
void Put(ByteVector& bytes, size_t at, T value) {
  ASSERT_LE(at + sizeof(value), bytes.size());
  std::memcpy(bytes.data() + at, &value, sizeof(value));
}

template <typename T>
T Get(const ByteVector& bytes, size_t at) {
  T value;
  std::memcpy(&value, bytes.data() + at, sizeof(value));
  return value;
}

// Where the length of this string stands in the file.
size_t FindString(const ByteVector& bytes, std::string_view text) {
  const uint64_t size = text.size();
  std::string pattern(reinterpret_cast<const char*>(&size), sizeof(size));
  pattern += text;
  const std::string_view all(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  const size_t found = all.find(pattern);
  EXPECT_NE(found, std::string_view::npos) << text;
  return found;
}

// Positions of the fields of one tensor's entry.
struct Entry {
  size_t name, num_dimensions, shape, type, offset;
};

Entry FindEntry(const ByteVector& bytes, const std::string& name) {
  Entry entry = {};
  entry.name = FindString(bytes, name);
  entry.num_dimensions = entry.name + 8 + name.size();
  entry.shape = entry.num_dimensions + 4;
  entry.type = entry.shape + 8 * Get<uint32_t>(bytes, entry.num_dimensions);
  entry.offset = entry.type + 4;
  return entry;
}

class Damage : public testing::Test {
 protected:
  // The file must be refused with one line that names the file, and `cause` in it.
  void Expect(const ByteVector& bytes, const std::string& cause) {
    ++mutations_;
    const ByteVector exact(bytes.begin(),
                           bytes.end());  // no spare capacity for a sanitizer to miss
    const auto file = GgufFile::Parse(exact, "bad.gguf");
    ASSERT_FALSE(file.ok()) << "accepted, expected: " << cause;
    EXPECT_THAT(file.error().message, StartsWith("bad.gguf: "));
    EXPECT_THAT(file.error().message, HasSubstr(cause));
    EXPECT_THAT(file.error().message, Not(HasSubstr("\n")));
  }
  template <typename T>
  void ExpectPatched(size_t at, T value, const std::string& cause) {
    ByteVector bytes = valid_;
    Put(bytes, at, value);
    Expect(bytes, cause);
  }
  void TearDown() override { RecordProperty("mutations", mutations_); }

  const ByteVector valid_ = ValidFile();
  const std::unique_ptr<GgufFile> file_ = GgufFile::Parse(valid_, "good.gguf").value();
  int mutations_ = 0;
};

TEST_F(Damage, ValidFileLoads) {
  const auto config = ReadModelConfig(*file_);
  ASSERT_TRUE(config.ok()) << config.error().message;
  EXPECT_TRUE(CheckTensors(*file_, *config).ok());
}

TEST_F(Damage, Truncations) {
  for (int i = 0; i < 100; ++i) {
    const size_t size = valid_.size() * static_cast<size_t>(i) / 100;
    ByteVector cut(valid_.begin(), valid_.begin() + static_cast<ptrdiff_t>(size));
    Expect(cut, size < 4    ? "is not a GGUF file"
                : size < 24 ? "ends inside its header"
                            : "fetch it");
  }
  for (const size_t missing : {1u, 31u, 33u}) {
    ByteVector cut(valid_.begin(), valid_.end() - static_cast<ptrdiff_t>(missing));
    Expect(cut, "tensor 'output.weight': needs bytes");
    Expect(cut, fmt::format("..{} but the file has {}; the file is truncated, fetch it again",
                            valid_.size(), cut.size()));
  }
  EXPECT_EQ(mutations_, 106);
}

TEST_F(Damage, TensorOffsets) {
  for (const GgufTensor& tensor : file_->tensors()) {
    SCOPED_TRACE(tensor.name);
    const size_t at = FindEntry(valid_, tensor.name).offset;
    const std::string subject = "tensor '" + tensor.name + "': ";
    const std::string overflow = subject + "its offset 18446744073709551584 and size ";
    ExpectPatched<uint64_t>(at, UINT64_MAX - 31, overflow);
    ExpectPatched<uint64_t>(at, kTop, subject + "needs bytes 92233720368547");
    ExpectPatched<uint64_t>(at, valid_.size() / 32 * 32, subject + "needs bytes ");
    ExpectPatched<uint64_t>(at, Get<uint64_t>(valid_, at) + 1, subject + "its offset ");
    ExpectPatched<uint64_t>(at, Get<uint64_t>(valid_, at) + 1, "multiple of the alignment 32");
  }
  const Entry q = FindEntry(valid_, "blk.0.attn_q.weight");
  const Entry k = FindEntry(valid_, "blk.0.attn_k.weight");
  ByteVector overlap = valid_;
  Put(overlap, k.offset, Get<uint64_t>(valid_, q.offset));
  Expect(overlap, "overlaps tensor 'blk.0.attn_");
  EXPECT_GT(mutations_, 50);
}

TEST_F(Damage, TensorShapesAndTypes) {
  for (const GgufTensor& tensor : file_->tensors()) {
    SCOPED_TRACE(tensor.name);
    const Entry entry = FindEntry(valid_, tensor.name);
    const std::string subject = "tensor '" + tensor.name + "'";
    for (const uint32_t bad : {0u, 9u, UINT32_MAX}) {
      ExpectPatched<uint32_t>(
          entry.num_dimensions, bad,
          fmt::format("{} has {} dimensions, allowed are 1 to 4", subject, bad));
    }
    ExpectPatched<uint64_t>(entry.shape, 0, subject + ": dimension 0 is zero");
    ExpectPatched<uint64_t>(entry.shape, kTop, subject + ": the size of its shape [9223372036854");
    ExpectPatched<uint64_t>(entry.shape, uint64_t{1} << 40, subject + ": needs bytes ");
    ExpectPatched<uint32_t>(entry.type, 77, subject + " is stored as type 77");
    ExpectPatched<uint32_t>(entry.type, 10, subject + " is stored as Q2_K, masu reads F32");
  }
  const Entry q = FindEntry(valid_, "blk.0.attn_q.weight");
  ExpectPatched<uint64_t>(q.shape, 33,
                          "its rows of 33 values are no multiple of Q8_0's block of 32");
  // 2^32 x 2^32 is 2^64, which wraps to zero.
  ByteVector wraps = valid_;
  Put<uint64_t>(wraps, q.shape, uint64_t{1} << 32);
  Put<uint64_t>(wraps, q.shape + 8, uint64_t{1} << 32);
  Expect(wraps, "the size of its shape [4294967296, 4294967296] overflows 64 bits");
  EXPECT_GT(mutations_, 90);
}

TEST_F(Damage, Header) {
  ExpectPatched<uint8_t>(3, 'X', "is not a GGUF file: it begins with 'GGUX', expected 'GGUF'");
  for (const uint32_t version : {0u, 1u, 2u, 4u, 1000u}) {
    ExpectPatched<uint32_t>(4, version, fmt::format("is GGUF version {}, masu reads", version));
  }
  ExpectPatched<uint32_t>(4, 0x03000000, "is a big-endian GGUF file");
  for (const uint64_t count : {UINT64_MAX, kTop, uint64_t{1} << 40, uint64_t{1} << 32}) {
    ExpectPatched<uint64_t>(8, count, fmt::format("the header promises {} tensors", count));
    ExpectPatched<uint64_t>(16, count, fmt::format("the header promises {} metadata keys", count));
  }
  // Plausible counts that are wrong: what follows is read as something else.
  for (const int difference : {-1, 1, 2}) {
    ExpectPatched<uint64_t>(16, file_->keys().size() + static_cast<uint64_t>(difference), "");
  }
  ExpectPatched<uint64_t>(8, file_->tensors().size() + 1, "");
}

TEST_F(Damage, StringsAndArrays) {
  for (const std::string& key : file_->keys()) {
    SCOPED_TRACE(key);
    const size_t at = FindString(valid_, key);
    for (const uint64_t length : {UINT64_MAX, kTop, uint64_t{valid_.size()}}) {
      ExpectPatched<uint64_t>(at, length, "runs past the end of the file; the file is truncated");
    }
    ExpectPatched<uint64_t>(at, 0, "is 0 bytes long, allowed are 1 to 65535");
    ExpectPatched<uint32_t>(at + 8 + key.size(), 99,
                            "key '" + key + "' has the unknown value type");
  }
  const size_t value = FindString(valid_, "general.name") + 8 + 12 + 4;
  ExpectPatched<uint64_t>(value, UINT64_MAX, "key 'general.name': its value runs past the");
  const size_t tokens = FindString(valid_, "tokenizer.ggml.tokens") + 8 + 21 + 4;
  ExpectPatched<uint64_t>(tokens + 4, UINT64_MAX,
                          "'tokenizer.ggml.tokens' is an array of 18446744");
  ExpectPatched<uint64_t>(tokens + 12, UINT64_MAX, "key 'tokenizer.ggml.tokens': string 0 of 288");
  EXPECT_GT(mutations_, 100);
}

TEST_F(Damage, Duplicates) {
  const std::string q = "blk.0.attn_q.weight";
  ByteVector bytes = valid_;
  std::memcpy(bytes.data() + FindEntry(valid_, "blk.0.attn_k.weight").name + 8, q.data(), q.size());
  Expect(bytes, "tensor 'blk.0.attn_q.weight' occurs twice");
  const std::string key = "tokenizer.ggml.bos_token_id";
  bytes = valid_;
  std::memcpy(bytes.data() + FindString(valid_, "tokenizer.ggml.eos_token_id") + 8, key.data(),
              key.size());
  Expect(bytes, "key 'tokenizer.ggml.bos_token_id' occurs twice");
}

TEST_F(Damage, Alignment) {
  for (const uint32_t alignment : {0u, 1u, 3u, 4u, 48u, UINT32_MAX}) {
    GgufWriter writer;
    writer.AddU32("general.alignment", alignment);
    writer.AddTensor("a", {4}, GgmlFormat::kF32, std::vector<float>(4));
    Expect(writer.Bytes(),
           fmt::format("key 'general.alignment' is {}, expected a power of two from "
                       "8 to 2147483648",
                       alignment));
  }
}

// Single bytes changed all over the tables: most give an error, some another valid file. Either way
// everything that can be asked of it is asked.
TEST_F(Damage, FlippedBytesNeverCrash) {
  const auto tables = static_cast<size_t>(file_->tensors()[0].data.data() - valid_.data());
  uint64_t state = 611;
  int refused = 0;
  for (int i = 0; i < 3000; ++i) {
    ByteVector bytes = valid_;
    state = state * 6364136223846793005u + 1442695040888963407u;
    bytes[(state >> 33) % tables] ^= static_cast<std::byte>(1u << (i % 8));
    const auto file = GgufFile::Parse(bytes, "bad.gguf");
    const auto config = file.ok() ? ReadModelConfig(**file) : Result<ModelConfig>(file.error());
    const auto check = config.ok() ? CheckTensors(**file, *config) : Result<void>(config.error());
    if (check.ok()) continue;
    ++refused;
    EXPECT_THAT(check.error().message, StartsWith("bad.gguf: "));
    EXPECT_THAT(check.error().message, Not(HasSubstr("\n")));
  }
  EXPECT_GT(refused, 200);
}

}  // namespace
}  // namespace masu
