#include "quality/evaluated_model.h"

#include "quality/engine_target.h"

namespace masu {

Result<uint64_t> EvaluatedModel::BytesPerToken(const EncodingSetting& setting) const {
  MASU_ASSIGN_OR_RETURN(const EngineConfig config, EvalEngineConfig(*model_, base_, setting));
  return EvalBytesPerToken(*model_, config);
}

Result<std::unique_ptr<EvalTarget>> EvaluatedModel::Open(const EncodingSetting& setting) {
  MASU_ASSIGN_OR_RETURN(std::unique_ptr<EngineTarget> target,
                        EngineTarget::Create(model_, base_, setting));
  return std::unique_ptr<EvalTarget>(std::move(target));
}

Result<DivergenceReport> EvaluatedModel::MeasureKl(const std::vector<EncodingSetting>& settings,
                                                   const KlOptions& options, Evaluation::Kl& kl,
                                                   const std::function<void(double)>& progress) {
  std::vector<TokenId> tokens =
      model_->tokenizer->Encode(options.text, {.add_special = false, .parse_special = false});
  if (tokens.size() > options.tokens) tokens.resize(options.tokens);
  if (tokens.empty()) return InvalidArgument("{}: no text", options.text_name);
  std::vector<std::unique_ptr<ScoringSession>> sessions;
  std::vector<DivergenceArm> arms;
  for (const EncodingSetting& setting : settings) {
    MASU_ASSIGN_OR_RETURN(auto session,
                          ScoringSession::Create(*model_, {.kv_cache_dtype = setting.name,
                                                           .block_size = base_.block_size,
                                                           .max_tokens = options.window}));
    sessions.push_back(std::move(session));
    arms.push_back({setting.name, sessions.back().get()});
  }
  DivergenceReport report =
      MeasureDivergence(tokens, options.window, model_->config.vocab_size, *sessions.front(),
                        std::span(arms).subspan(1), progress);
  kl = {.text_name = options.text_name,
        .tokens = tokens.size(),
        .window = options.window,
        .baseline_perplexity = report.baseline_perplexity};
  return report;
}

}  // namespace masu
