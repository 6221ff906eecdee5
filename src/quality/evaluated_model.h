// A loaded model as an evaluation sees it.
#pragma once

#include "engine/loaded_model.h"
#include "quality/evaluation.h"

namespace masu {

class EvaluatedModel final : public EvaluationModel {
 public:
  // `base`: the engine of every setting, but for its encoding.
  EvaluatedModel(std::shared_ptr<LoadedModel> model, EngineConfig base)
      : model_(std::move(model)), base_(std::move(base)) {}

  std::string name() const override { return model_->name; }
  std::string activation_dtype() const override { return model_->activation_dtype; }
  std::string isa() const override { return model_->isa; }
  Result<uint64_t> BytesPerToken(const EncodingSetting& setting) const override;
  Result<std::unique_ptr<EvalTarget>> Open(const EncodingSetting& setting) override;
  Result<DivergenceReport> MeasureKl(const std::vector<EncodingSetting>& settings,
                                     const KlOptions& options, Evaluation::Kl& kl,
                                     const std::function<void(double)>& progress) override;

 private:
  std::shared_ptr<LoadedModel> model_;
  EngineConfig base_;
};

}  // namespace masu
