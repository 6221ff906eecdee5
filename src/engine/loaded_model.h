// A model ready to run: weights packed for the backend, tokenizer, chat template.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "base/units.h"
#include "checkpoint/generation_config.h"
#include "checkpoint/kv_scales.h"
#include "checkpoint/model_config.h"
#include "engine/engine_config.h"
#include "plan/model_shape.h"
#include "text/chat_template.h"
#include "text/tokenizer.h"

namespace masu {

class Model;
class Ops;
struct EngineMemory;

// What clients call the model at `path`: the file's name without .gguf, or the directory's name,
// also of "." and "model/". Dots in it are kept: "Llama-3.1-8B".
std::string ModelName(const std::string& path);

class LoadedModel {
 public:
  LoadedModel();
  ~LoadedModel();

  // `progress` gets a fraction from 0 to 1 and what is being done; called on the calling thread.
  using Progress = std::function<void(double fraction, const std::string& what)>;
  // Gets the plan of memory before weights are read, on the calling thread; its error ends the
  // load.
  using PlanReport = std::function<Result<void>(const EngineMemory& memory)>;
  // `path` is one that Checkpoint::Open takes. Uses num_threads, isa, backend, activation_dtype and
  // quantization_param_path of `config`. Without `needs_tokenizer` a checkpoint that has none
  // (golden data for numerics) gives a null tokenizer instead of an error. With `report`, a plan
  // that does not fit this machine is an error before weights are read; without, Engine::Create
  // finds it.
  // `wrap` may put something between the model and the backend: a trace, for instance.
  using WrapOps = std::function<std::unique_ptr<Ops>(std::unique_ptr<Ops> ops)>;
  static Result<std::shared_ptr<LoadedModel>> Load(
      const std::string& path, const EngineConfig& config, const Progress& progress,
      bool needs_tokenizer = true, const PlanReport& report = {}, const WrapOps& wrap = {});

  std::string path;
  std::string name;  // ModelName(path)
  ModelConfig config;
  ModelShape shape;             // for plans of memory
  GenerationConfig generation;  // empty with --generation-config vllm
  // Scales of K and V of quantization_param_path, else of the checkpoint; nullopt: there are none.
  uint64_t fingerprint = 0;  // of names, sizes and ends of all weights
  const KvScales* scales() const { return kv_scales ? &*kv_scales : nullptr; }
  std::optional<KvScales> kv_scales;
  std::string kv_scales_problem;  // of the checkpoint's, one line; empty: none, or not looked at
  std::unique_ptr<Tokenizer> tokenizer;
  std::unique_ptr<ChatTemplate> chat_template;  // nullptr if the checkpoint has none
  std::string chat_template_error;              // why there is none, one line
  std::unique_ptr<Ops> ops;
  std::unique_ptr<Model> model;
  Bytes weight_bytes;            // packed weights in memory
  std::string isa;               // "avx512"
  std::string activation_dtype;  // "bfloat16"
};

}  // namespace masu
