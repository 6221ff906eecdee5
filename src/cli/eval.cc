#include <cstdio>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>

#include "cli/commands.h"
#include "engine/loaded_model.h"
#include "model/model.h"
#include "quality/divergence.h"

namespace masu {
namespace {

// Plain text, or the "context" (else "text") of each line of a .jsonl file, joined by spaces in
// file order.
Result<std::string> ReadText(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file)
    return MakeError(ErrorCode::kNotFound,
                     "{}: cannot be read; give a text or .jsonl file with --text", path);
  if (!path.ends_with(".jsonl")) return std::string(std::istreambuf_iterator<char>(file), {});
  std::string text;
  uint64_t number = 0;
  for (std::string line; std::getline(file, line);) {
    ++number;
    const auto json = nlohmann::json::parse(line, nullptr, false);
    const char* key = json.is_object() && json.contains("context") ? "context" : "text";
    if (!json.is_object() || !json.contains(key) || !json[key].is_string()) {
      return DataLoss("{} line {}: expected an object with a string \"context\" or \"text\"", path,
                      number);
    }
    text += (text.empty() ? "" : " ") + json[key].get<std::string>();
  }
  return text;
}

Result<ScoringOptions> ParseArm(const std::string& name, uint32_t window) {
  ScoringOptions options;
  options.kv_cache_dtype = name;
  options.max_tokens = window;
  return options;
}

void PrintReport(const EvalKlOptions& options, const LoadedModel& model, uint64_t tokens,
                 const DivergenceReport& report) {
  if (options.json) {
    nlohmann::ordered_json json = {{"model", model.name},
                                   {"baseline", options.baseline},
                                   {"activation_dtype", model.activation_dtype},
                                   {"isa", model.isa},
                                   {"tokens", tokens},
                                   {"window", options.window},
                                   {"baseline_perplexity", report.baseline_perplexity},
                                   {"arms", nlohmann::ordered_json::array()}};
    for (const Divergence& arm : report.arms) {
      json["arms"].push_back({{"kv_cache_dtype", arm.name},
                              {"mean_kl", arm.mean_kl},
                              {"max_kl", arm.max_kl},
                              {"top1_agreement", arm.top1_agreement},
                              {"perplexity", arm.perplexity}});
    }
    std::printf("%s\n", json.dump(2).c_str());
    return;
  }
  std::printf("%s, %lu tokens in windows of %u, against %s KV; activations %s, %s\n",
              model.name.c_str(), static_cast<unsigned long>(tokens), options.window,
              options.baseline.c_str(), model.activation_dtype.c_str(), model.isa.c_str());
  std::printf(
      "| KV cache | mean KL | max KL | top-1 | perplexity (%s: %.4f) |\n|---|---|---|---|---|\n",
      options.baseline.c_str(), report.baseline_perplexity);
  for (const Divergence& arm : report.arms) {
    std::printf("| %s | %.2e | %.2e | %.2f %% | %.4f |\n", arm.name.c_str(), arm.mean_kl,
                arm.max_kl, 100 * arm.top1_agreement, arm.perplexity);
  }
}

}  // namespace

int RunEvalKl(const EvalKlOptions& options) {
  const Result<std::string> text = ReadText(options.text);
  if (!text.ok()) return PrintError(text.error());
  auto model = LoadedModel::Load(options.model, options.engine, nullptr);
  if (!model.ok()) return PrintError(model.error());
  LoadedModel& loaded = *model.value();
  std::vector<TokenId> tokens =
      loaded.tokenizer->Encode(*text, {.add_special = false, .parse_special = false});
  if (tokens.size() > options.tokens) tokens.resize(options.tokens);
  if (tokens.empty()) return PrintError(InvalidArgument("{}: no text", options.text));

  const auto open = [&](const std::string& name) -> Result<std::unique_ptr<ScoringSession>> {
    MASU_ASSIGN_OR_RETURN(const ScoringOptions scoring, ParseArm(name, options.window));
    return ScoringSession::Create(loaded, scoring);
  };
  auto baseline = open(options.baseline);
  if (!baseline.ok()) return PrintError(baseline.error());
  std::vector<std::unique_ptr<ScoringSession>> sessions;
  std::vector<DivergenceArm> arms;
  for (const std::string& name : options.encodings) {
    auto session = open(name);
    if (!session.ok()) return PrintError(session.error());
    sessions.push_back(std::move(session).value());
    arms.push_back({name, sessions.back().get()});
  }
  const DivergenceReport report =
      MeasureDivergence(tokens, options.window, loaded.config.vocab_size, *baseline.value(), arms,
                        [](double f) { ShowProgress(f, "comparing"); });
  PrintReport(options, loaded, tokens.size(), report);
  return 0;
}

}  // namespace masu
