// A model made of a function from prompt to answer, for tests of evaluations. A token is a byte.
#pragma once

#include <algorithm>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "quality/eval_target.h"
#include "tests/support/fake_tokenizer.h"

namespace masu {

inline constexpr const char* kFakeChatTemplate =
    "{% for message in messages %}[{{ message.role }}]{{ message.content }}\n{% endfor %}"
    "[assistant]";

class FakeEvalTarget final : public EvalTarget {
 public:
  using Model = std::function<std::string(const std::string& prompt)>;
  // `chat_template`: its source; empty for a base model.
  explicit FakeEvalTarget(Model model, const std::string& chat_template = kFakeChatTemplate,
                          uint32_t max_model_len = 4096)
      : model_(std::move(model)), max_model_len_(max_model_len) {
    if (!chat_template.empty()) template_ = ChatTemplate::Parse(chat_template).value();
  }

  const Tokenizer& tokenizer() const override { return tokenizer_; }
  const ChatTemplate* chat_template() const override { return template_.get(); }
  uint32_t max_model_len() const override { return max_model_len_; }

  Result<std::vector<ScoreResult>> Score(std::span<const ScoreQuery>, const Progress&) override {
    return MakeError(ErrorCode::kUnimplemented, "a fake model has no likelihoods");
  }
  Result<std::vector<GenerateResult>> Generate(std::span<const GenerateQuery> queries,
                                               const Progress& progress) override {
    std::vector<GenerateResult> results;
    for (const GenerateQuery& query : queries) {
      if (query.prompt.size() + query.max_tokens > max_model_len_) {
        return InvalidArgument("{} tokens do not fit", query.prompt.size() + query.max_tokens);
      }
      prompts_.push_back(tokenizer_.Decode(query.prompt, /*skip_special=*/true));
      std::string text = model_(prompts_.back());
      text.resize(std::min<size_t>(text.size(), query.max_tokens));
      for (const std::string& stop : query.stop)
        text.resize(std::min(text.size(), text.find(stop)));
      results.push_back({.tokens = BytesOf(text), .text = text, .stopped = true});
      if (progress) progress(results.size(), queries.size());
    }
    return results;
  }

  const std::vector<std::string>& prompts() const { return prompts_; }  // all so far, as text

 private:
  Model model_;
  uint32_t max_model_len_;
  FakeTokenizer tokenizer_;
  std::unique_ptr<ChatTemplate> template_;
  std::vector<std::string> prompts_;
};

}  // namespace masu
