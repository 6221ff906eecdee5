// An evaluation's questions to an engine of its own, in one setting of the KV cache. The engine is
// stepped on the calling thread. Not thread-safe; targets of one model must not run at the same
// time.
#pragma once

#include <memory>

#include "engine/engine.h"
#include "engine/loaded_model.h"
#include "quality/encoding_setting.h"
#include "quality/eval_target.h"

namespace masu {

// The engine of a setting: `base` with the setting's encoding, and an arena for the same number of
// tokens whatever the encoding, so that every setting cuts long prompts at the same place. Errors:
// an encoding that is unknown or does not go with the model.
Result<EngineConfig> EvalEngineConfig(const LoadedModel& model, const EngineConfig& base,
                                      const EncodingSetting& setting);

// What a token takes in such an engine's cache: all layers, scales included, beyond the first page.
Result<uint64_t> EvalBytesPerToken(const LoadedModel& model, const EngineConfig& config);

class EngineTarget final : public EvalTarget {
 public:
  // Errors: those of EvalEngineConfig, and an arena that does not fit this machine.
  static Result<std::unique_ptr<EngineTarget>> Create(std::shared_ptr<LoadedModel> model,
                                                      const EngineConfig& base,
                                                      const EncodingSetting& setting);

  const Tokenizer& tokenizer() const override { return *model_->tokenizer; }
  const ChatTemplate* chat_template() const override { return model_->chat_template.get(); }
  uint32_t max_model_len() const override { return engine_->cache_info().max_model_len; }
  Result<std::vector<ScoreResult>> Score(std::span<const ScoreQuery> queries,
                                         const Progress& progress) override;
  Result<std::vector<GenerateResult>> Generate(std::span<const GenerateQuery> queries,
                                               const Progress& progress) override;

  const Engine& engine() const { return *engine_; }

 private:
  EngineTarget(std::shared_ptr<LoadedModel> model, std::unique_ptr<Engine> engine)
      : model_(std::move(model)), engine_(std::move(engine)) {}
  Result<void> CheckFits(size_t index, uint64_t tokens) const;

  std::shared_ptr<LoadedModel> model_;
  std::unique_ptr<Engine> engine_;
};

}  // namespace masu
