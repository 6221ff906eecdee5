// A weight in panel order (kernels.h says how). Packing permutes the checkpoint's bytes; nothing is
// rounded.
#pragma once

#include "backend/cpu/kernels.h"
#include "ops/linear.h"
#include "tensor/buffer.h"

namespace masu {

class ThreadPool;

class PanelWeight final : public PackedWeight {
 public:
  // What Pack takes of memory: whole panels, in whole pages of the machine.
  static uint64_t PackedBytes(GgmlFormat format, uint64_t outputs, uint64_t inputs);
  static Result<std::unique_ptr<PackedWeight>> Pack(const WeightSource& source, ThreadPool& pool);
  // A weight that Pack made.
  static const PanelWeight& Of(const PackedWeight* weight) {
    return *static_cast<const PanelWeight*>(weight);
  }

  GgmlFormat format() const override { return format_; }
  uint32_t outputs() const override { return outputs_; }
  uint32_t inputs() const override { return inputs_; }
  size_t bytes() const override { return data_.size(); }

  cpu::Format kernel_format() const { return static_cast<cpu::Format>(format_); }
  uint32_t groups() const { return (inputs_ + cpu::kGroup - 1) / cpu::kGroup; }
  uint32_t panels() const { return (outputs_ + cpu::kPanel - 1) / cpu::kPanel; }
  const uint8_t* data() const { return data_.as<uint8_t>(); }
  // One output's weights as floats: a row of the embedding. out is [inputs].
  void DecodeRow(uint32_t output, float* out) const;

 private:
  GgmlFormat format_ = GgmlFormat::kF32;
  uint32_t outputs_ = 0;
  uint32_t inputs_ = 0;
  Buffer data_;
};

}  // namespace masu
