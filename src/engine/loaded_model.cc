#include "engine/loaded_model.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

#include <algorithm>
#include <filesystem>
#include <span>

#include "backend/backend.h"
#include "base/log.h"
#include "checkpoint/checkpoint.h"
#include "engine/engine_memory.h"
#include "model/model.h"
#include "plan/activation_model.h"
#include "text/open_chat_template.h"
#include "text/open_tokenizer.h"

namespace masu {
namespace {

// Sets how activations are rounded.
Result<void> SetActivations(const std::string& name, const Checkpoint& checkpoint, const Ops& ops,
                            ModelOptions& options) {
  if (name != "auto" && name != "float32" && name != "bfloat16" && name != "int8") {
    return InvalidArgument("unknown --activation-dtype '{}'; use auto, float32, bfloat16 or int8",
                           name);
  }
  options.bf16_activations = name == "bfloat16" || (name != "float32" && ops.multiplies_bf16());
  options.int8_activations = name == "int8";
  const auto quantized = [](const CheckpointTensor& tensor) {
    return BlockShapeOf(tensor.format).elements > 1;
  };
  if (name == "int8" && std::ranges::none_of(checkpoint.tensors(), quantized)) {
    return InvalidArgument(
        "--activation-dtype int8 is for quantized weights, and {} has none; use auto, or a "
        "checkpoint with Q8_0 or 4-bit weights",
        checkpoint.path());
  }
  return {};
}

std::string ActivationName(const ModelOptions& options) {
  return options.int8_activations ? "int8" : options.bf16_activations ? "bfloat16" : "float32";
}

Result<void> LoadGeneration(const Checkpoint& checkpoint, const std::string& source,
                            LoadedModel& loaded) {
  if (source != "auto" && source != "vllm") {
    return InvalidArgument(
        "unknown --generation-config '{}'; use auto (the checkpoint's generation_config.json) or "
        "vllm (the engine's own defaults)",
        source);
  }
  if (source == "vllm" || checkpoint.directory() == nullptr) return {};
  MASU_ASSIGN_OR_RETURN(loaded.generation, ReadGenerationConfig(*checkpoint.directory()));
  const std::string described = loaded.generation.Describe();
  if (described.empty()) return {};
  LogInfo(
      "{}: default sampling of the checkpoint: {} (requests may ask for other; without it: "
      "--generation-config vllm)",
      loaded.path, described);
  return {};
}

Result<void> LoadKvScales(const Checkpoint& checkpoint, const std::string& path,
                          LoadedModel& loaded) {
  if (path.empty()) {
    if (checkpoint.kv_scales() != nullptr) loaded.kv_scales = *checkpoint.kv_scales();
    loaded.kv_scales_problem = checkpoint.kv_scales_problem();
    return {};
  }
  MASU_ASSIGN_OR_RETURN(loaded.kv_scales, ReadSglangKvScales(path, checkpoint.config()));
  return {};
}

// The ends of every tensor: enough to tell apart checkpoints that differ in their weights, without
// reading them all.
uint64_t Fingerprint(const Checkpoint& checkpoint) {
  constexpr size_t kEnd = 4096;
  uint64_t hash = 0;
  const auto add = [&](const void* data, size_t size) {
    hash = XXH3_64bits_withSeed(data, size, hash);
  };
  for (const CheckpointTensor& tensor : checkpoint.tensors()) {
    const size_t size = tensor.data.size();
    add(tensor.name.data(), tensor.name.size());
    add(&size, sizeof(size));
    add(tensor.data.data(), std::min(size, kEnd));
    add(tensor.data.data() + (size - std::min(size, kEnd)), std::min(size, kEnd));
  }
  return hash;
}

// "a, b and 3 more": scales of queries come in every layer.
std::string ShortList(std::span<const std::string> names) {
  constexpr size_t kMaxListed = 8;
  const size_t listed = std::min(names.size(), kMaxListed);
  std::string text = fmt::format("{}", fmt::join(names.first(listed), ", "));
  if (names.size() > listed) text += fmt::format(" and {} more", names.size() - listed);
  return text;
}

Result<void> LoadTemplate(const Checkpoint& checkpoint, LoadedModel& loaded) {
  auto opened = OpenChatTemplate(checkpoint, "");
  if (opened.ok()) {
    loaded.chat_template = std::move(opened).value();
    return {};
  }
  const Error& error = opened.error();
  if (error.code == ErrorCode::kDataLoss) return error;
  loaded.chat_template_error = error.message;
  if (error.code != ErrorCode::kNotFound) LogWarning("{}: {}", loaded.path, error.message);
  return {};
}

Result<void> LoadText(const Checkpoint& checkpoint, bool needs_tokenizer, LoadedModel& loaded) {
  auto tokenizer = OpenTokenizer(checkpoint);
  if (!tokenizer.ok()) {
    if (needs_tokenizer) return tokenizer.error();
    return {};
  }
  loaded.tokenizer = std::move(tokenizer).value();
  if (loaded.tokenizer->vocab_size() > loaded.config.vocab_size) {
    LogWarning(
        "{}: the tokenizer has {} tokens, the embedding {}; requests with the tokens beyond are "
        "refused",
        loaded.path, loaded.tokenizer->vocab_size(), loaded.config.vocab_size);
  }
  return LoadTemplate(checkpoint, loaded);
}

}  // namespace

std::string ModelName(const std::string& path) {
  // Links are not followed: caches of downloads link to files that are named by their hash.
  std::filesystem::path known = std::filesystem::absolute(path).lexically_normal();
  if (!known.has_filename()) known = known.parent_path();
  return known.extension() == ".gguf" ? known.stem().string() : known.filename().string();
}

LoadedModel::LoadedModel() = default;
LoadedModel::~LoadedModel() = default;

Result<std::shared_ptr<LoadedModel>> LoadedModel::Load(
    const std::string& path, const EngineConfig& config, const Progress& progress,
    bool needs_tokenizer, const PlanReport& plan_report, const WrapOps& wrap) {
  const auto report = [&](double fraction, const char* what) {
    if (progress) progress(fraction, what);
  };
  report(0.0, "opening the checkpoint");
  MASU_ASSIGN_OR_RETURN(const std::unique_ptr<Checkpoint> checkpoint, Checkpoint::Open(path));
  for (const std::string& warning : checkpoint->warnings()) LogWarning("{}", warning);
  if (!checkpoint->ignored().empty()) {
    LogInfo("{}: tensors not needed: {}", path, ShortList(checkpoint->ignored()));
  }
  auto loaded = std::make_shared<LoadedModel>();
  loaded->path = path;
  loaded->name = ModelName(path);
  loaded->config = checkpoint->config();
  loaded->fingerprint = Fingerprint(*checkpoint);
  MASU_TRY(LoadGeneration(*checkpoint, config.generation_config, *loaded));
  MASU_TRY(LoadKvScales(*checkpoint, config.quantization_param_path, *loaded));
  loaded->shape = MakeServedShape(*checkpoint);
  loaded->shape.config.fp8_kv_scales = loaded->kv_scales.has_value();
  if (auto kv = ConfiguredLayouts(loaded->config, config, loaded->scales()); !kv.ok())
    return kv.error();
  if (plan_report) {
    MASU_ASSIGN_OR_RETURN(const EngineMemory memory, PlanEngineMemory(loaded->shape, loaded->config,
                                                                      config, loaded->scales()));
    MASU_TRY(plan_report(memory));
  }
  MASU_ASSIGN_OR_RETURN(
      loaded->ops,
      CreateOps({.backend = config.backend, .isa = config.isa, .num_threads = config.num_threads}));
  if (wrap) loaded->ops = wrap(std::move(loaded->ops));
  loaded->isa = loaded->ops->isa();
  ModelOptions options{.max_rows = config.max_num_batched_tokens,
                       .max_logit_rows = kLogitRows,
                       .max_position = config.max_model_len.value_or(0),
                       .condition_keys = config.kv_conditioning};
  MASU_TRY(SetActivations(config.activation_dtype, *checkpoint, *loaded->ops, options));
  loaded->activation_dtype = ActivationName(options);

  report(0.02, "reading the tokenizer");
  MASU_TRY(LoadText(*checkpoint, needs_tokenizer, *loaded));
  MASU_ASSIGN_OR_RETURN(loaded->model,
                        BuildModel(*checkpoint, *loaded->ops, options, [&](double fraction) {
                          report(0.05 + 0.95 * fraction, "packing weights");
                        }));
  loaded->weight_bytes = loaded->model->weight_bytes();
  report(1.0, "loaded");
  return loaded;
}

}  // namespace masu
