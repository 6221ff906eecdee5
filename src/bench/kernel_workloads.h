// The operations that `masu bench kernel` measures, each with its data set up so that it runs as it
// does in a step: weights and pages cold, activations warm.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/result.h"
#include "bench/machine.h"
#include "ops/ops.h"

namespace masu {

// Sizes of one layer of a model, and of its vocabulary.
struct BlockShape {
  std::string name;
  uint32_t hidden_size = 0;
  uint32_t intermediate_size = 0;
  uint32_t num_heads = 0;
  uint32_t num_kv_heads = 0;
  uint32_t head_dim = 0;
  uint32_t vocab_size = 49'152;
};
// "smollm2", "1b" (a Llama of 1.1 billion parameters), "8b" (Llama 3.1), or
// HIDDEN/FFN/HEADS/KV_HEADS/HEAD_DIM.
Result<BlockShape> ParseBlockShape(const std::string& text);

// How a layer that is no exception stores K and V, from what --kv-cache-dtype takes.
Result<KvLayerSides> ParseKvSides(const std::string& name);

// One thing to measure.
struct KernelCase {
  std::string op = {};     // of KernelNames()
  std::string part = {};   // what of the layer: "qkv", "decode", ...; empty where there is one only
  std::string dtype = {};  // of weights or of K and V; empty where neither is read
  BlockShape shape = {};
  uint32_t rows = 1;     // tokens
  uint32_t context = 0;  // attention and kv_write: tokens in the cache, these included
};

struct KernelSettings {
  std::vector<std::string> ops;
  std::vector<std::string> formats;
  std::vector<std::string> kv;
  std::vector<BlockShape> shapes;
  std::vector<uint32_t> rows;
  uint32_t context = 0;
  uint32_t block_size = 16;
  bool bf16_activations = false;
  bool int8_activations = false;  // of products with weights in block formats
};
// Every combination that makes sense.
std::vector<KernelCase> ListCases(const KernelSettings& settings);

class KernelWorkload {
 public:
  virtual ~KernelWorkload() = default;
  virtual void Run() = 0;  // one call
  Work work;               // of one call
};

// `last`: that of the case before, or null; its data is taken over where it is the same. Errors: a
// format or encoding that is unknown or does not fit the shape, memory that is not there.
Result<std::unique_ptr<KernelWorkload>> MakeWorkload(Ops& ops, const KernelCase& what,
                                                     const KernelSettings& settings,
                                                     std::unique_ptr<KernelWorkload> last = {});

}  // namespace masu
