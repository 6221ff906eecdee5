// Writes small safetensors files and Hugging Face directories for tests. It checks nothing: tests
// also want bad files.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "checkpoint/model_config.h"
#include "tests/support/gguf_writer.h"

namespace masu {

struct SafetensorsDraft {
  std::string name;
  std::vector<uint64_t> shape;  // fastest dimension last
  std::vector<float> values;
  std::string dtype = "F32";  // or "F16", "BF16"
};

// Header (padded with spaces to a multiple of 8, as writers do) and data of these tensors in order.
ByteVector MakeSafetensors(const std::vector<SafetensorsDraft>& tensors);
// A file of this header and this data, whatever they are.
ByteVector WrapSafetensors(std::string_view header, const ByteVector& data);

// A model in Hugging Face form, to be spoilt: the keys of config.json (values as JSON text) and
// every tensor that the configuration asks for, with values that differ from place to place.
struct HfDraft {
  explicit HfDraft(const std::string& model_type = "llama");

  std::string ConfigJson() const;
  ModelConfig Config() const;  // aborts on a bad one
  SafetensorsDraft& Tensor(std::string_view name);
  void Remove(std::string_view name);
  void Fill();  // makes `tensors` anew from the configuration
  // Writes config.json and model.safetensors into this existing folder.
  void Write(const std::string& folder) const;

  std::map<std::string, std::string> keys;
  std::vector<SafetensorsDraft> tensors;
};

}  // namespace masu
