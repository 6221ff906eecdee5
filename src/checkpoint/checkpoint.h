// A checkpoint of either kind, a GGUF file or a Hugging Face directory: its configuration and its
// tensors under one set of names, checked so that what the model computes with is there once, with
// the right shape, and nothing else is. Immutable after Open, so safe to share between threads.
// Views stay valid as long as the Checkpoint lives.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "checkpoint/gguf.h"
#include "checkpoint/kv_scales.h"
#include "checkpoint/model_config.h"
#include "checkpoint/model_directory.h"
#include "quant/ggml_blocks.h"

namespace masu {

struct CheckpointTensor {
  std::string name;         // as in GGUF files: "blk.0.attn_q.weight"
  std::string stored_name;  // as in the file, for errors
  GgmlFormat format = GgmlFormat::kF32;
  std::vector<uint64_t> shape;      // fastest dimension first: a weight is {inputs, outputs}
  std::span<const std::byte> data;  // as many bytes as format and shape need; need not be aligned
  uint64_t elements() const;
};

class Checkpoint {
 public:
  virtual ~Checkpoint() = default;

  // `path` is a .gguf file (of a split model the first part) or a directory with config.json and
  // safetensors files. Errors name the file, the tensor or key at fault, the numbers, and a remedy.
  static Result<std::unique_ptr<Checkpoint>> Open(const std::string& path);

  virtual const std::string& path() const = 0;
  virtual const ModelConfig& config() const = 0;
  // What the model needs, in the order of computation: the embedding, the layers, the final norm,
  // and the head unless the embedding serves as one.
  virtual std::span<const CheckpointTensor> tensors() const = 0;
  const CheckpointTensor* Find(std::string_view name) const;  // nullptr if absent
  // Tells the kernel that the mapped bytes of this tensor are not needed soon (they were repacked).
  virtual void Release(const CheckpointTensor& tensor) const = 0;

  // Names in the file of tensors that are not needed, by the architecture's allow-list.
  virtual std::span<const std::string> ignored() const = 0;
  // What a user should hear once: one line each.
  virtual std::span<const std::string> warnings() const = 0;

  // The scales that the checkpoint brings for an 8-bit KV cache; nullptr if it has none that can be
  // used. Never in part: if one is missing or wrong, all are left out.
  virtual const KvScales* kv_scales() const = 0;
  // One line that says what is missing or wrong, which is also one of the warnings; empty if there
  // are scales, or if neither configuration nor tensors speak of any.
  virtual const std::string& kv_scales_problem() const = 0;

  // Where the text layer finds tokenizer and template: exactly one of the two is not null.
  virtual const GgufFile* gguf() const = 0;
  virtual const ModelDirectory* directory() const = 0;
};

// "F32", "Q4_K": the format's name in files and messages.
std::string_view FormatName(GgmlFormat format);

}  // namespace masu
