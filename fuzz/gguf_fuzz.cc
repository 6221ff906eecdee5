// GgufFile::Parse, every getter, ReadModelConfig and CheckTensors on damaged files.
//
//   cmake --preset fuzz && cmake --build --preset fuzz --target gguf_fuzz
//   mkdir -p /tmp/gguf_corpus && build/fuzz/fuzz/gguf_fuzz -max_total_time=180 /tmp/gguf_corpus
//
// No corpus is kept: inputs that are no GGUF files turn into small valid ones, made here.
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/check.h"
#include "checkpoint/ggml_format.h"
#include "checkpoint/gguf.h"
#include "checkpoint/tensor_accounting.h"
#include "fuzz/place_seed.h"
#include "tests/support/gguf_writer.h"

extern "C" size_t LLVMFuzzerMutate(uint8_t* data, size_t size, size_t max_size);

namespace masu {
namespace {

constexpr size_t kSmallestFile = 24;  // the header

void WriteLlamaKeys(GgufWriter& writer, uint32_t hidden) {
  writer.AddString("general.architecture", "llama");
  for (const char* key : {"embedding_length", "feed_forward_length", "context_length"}) {
    writer.AddU32(std::string("llama.") + key, hidden);
  }
  for (const char* key : {"block_count", "attention.head_count", "attention.head_count_kv"}) {
    writer.AddU32(std::string("llama.") + key, 1);
  }
  writer.AddF32("llama.attention.layer_norm_rms_epsilon", 1e-5f);
}

// Below 4 KiB each, the longest input that libFuzzer makes on its own.
ByteVector MakeSeed(bool large) {
  const uint32_t hidden = large ? 32 : 2;
  const GgmlFormat format = large ? GgmlFormat::kQ4_1 : GgmlFormat::kF32;
  GgufWriter writer;
  if (large) writer.SetAlignment(8);
  WriteLlamaKeys(writer, hidden);
  if (large) {
    writer.AddU64("llama.rope.dimension_count", hidden);
    writer.AddString("llama.rope.scaling.type", "none");
    writer.AddF64("llama.rope.freq_base", 1e5);
    writer.AddBool("llama.attention.causal", true);
    writer.AddStrings("tokens", std::vector<std::string>{"a", "", "bc"});
    writer.AddI32s("types", std::vector<int32_t>{1, 3});
    writer.AddF32s("scores", std::vector<float>{0.5f, -1.0f});
  }
  ModelConfig config;
  config.num_layers = config.num_heads = config.num_kv_heads = 1;
  config.hidden_size = config.head_dim = config.intermediate_size = hidden;
  config.vocab_size = 3;
  config.tied_embeddings = large;
  if (large) config.rope_frequency_divisors.assign(hidden / 2, 1.0f);
  for (const auto& [name, shape] : ExpectedTensors(config)) {
    const std::vector<float> values(shape[0] * (shape.size() == 2 ? shape[1] : 1), 1.0f);
    writer.AddTensor(name, shape, shape.size() == 2 ? format : GgmlFormat::kF32, values);
  }
  return writer.Bytes();
}

void AskEverything(const GgufFile& file) {
  for (const std::string& key : file.keys()) {
    MASU_CHECK(file.Has(key));
    (void)file.GetUnsigned(key);
    (void)file.GetFloat(key);
    (void)file.GetBool(key);
    (void)file.GetString(key);
    (void)file.GetStrings(key);
    (void)file.GetIntegers(key);
    (void)file.GetFloats(key);
  }
  for (const GgufTensor& tensor : file.tensors()) {
    MASU_CHECK(file.FindTensor(tensor.name) == &tensor);
    std::vector<float> values(tensor.elements());
    DequantizeRow(FormatOf(tensor.type), tensor.data, values);
    file.Release(tensor);
  }
}

}  // namespace
}  // namespace masu

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto file = masu::GgufFile::Parse(std::as_bytes(std::span(data, size)), "fuzz");
  if (!file.ok()) {
    MASU_CHECK(file.error().message.find('\n') == std::string::npos);
    return 0;
  }
  masu::AskEverything(**file);
  const auto config = masu::ReadModelConfig(**file);
  if (!config.ok()) {
    MASU_CHECK(config.error().message.find('\n') == std::string::npos);
    return 0;
  }
  (void)masu::CheckTensors(**file, *config);
  return 0;
}

extern "C" size_t LLVMFuzzerCustomMutator(uint8_t* data, size_t size, size_t max_size,
                                          unsigned int seed) {
  if (size < masu::kSmallestFile) {
    static const masu::ByteVector seeds[] = {masu::MakeSeed(false), masu::MakeSeed(true)};
    if (const size_t placed = masu::PlaceSeed(seeds[seed % 2], data, max_size); placed > 0) {
      return placed;
    }
  }
  return LLVMFuzzerMutate(data, size, max_size);
}
