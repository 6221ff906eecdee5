#include "quality/task_lambada.h"

#include "quality/eval_data.h"
#include "quality/prompt_tokens.h"

namespace masu {
namespace {

struct Passage {
  std::string context;
  std::string word;
};

class LambadaTask final : public EvalTask {
 public:
  std::string name() const override { return "lambada"; }
  std::string description() const override {
    return "the last word of a passage of a novel: is it the model's first choice";
  }

  Result<void> Prepare(const EvalTaskOptions& options) override {
    const DataFile file{options.data_dir + "/lambada_openai.jsonl",
                        R"({"context": "passage", "continuation": "last word"})"};
    MASU_ASSIGN_OR_RETURN(const std::vector<DataLine> lines, ReadDataFile(file, options.limit));
    passages_.clear();
    for (const DataLine& line : lines) {
      Passage passage;
      MASU_ASSIGN_OR_RETURN(passage.context, line.String("context"));
      MASU_ASSIGN_OR_RETURN(passage.word, line.String("continuation"));
      passages_.push_back(std::move(passage));
    }
    return {};
  }

  // As lm_eval/tasks/lambada/lambada_openai.yaml: acc is whether greedy decoding gives the word.
  Result<std::vector<EvalItem>> Run(EvalTarget& target,
                                    const EvalTarget::Progress& progress) override {
    std::vector<ScoreQuery> queries;
    for (const Passage& passage : passages_) {
      queries.push_back(EncodePair(target.tokenizer(), passage.context, " " + passage.word,
                                   target.max_model_len()));
    }
    MASU_ASSIGN_OR_RETURN(const std::vector<ScoreResult> results, target.Score(queries, progress));
    std::vector<EvalItem> items;
    for (size_t i = 0; i < passages_.size(); ++i) {
      items.push_back({.id = fmt::format("lambada/{}", i),
                       .question = TextTail(passages_[i].context, 400),
                       .expected = passages_[i].word,
                       .answer = results[i].greedy ? passages_[i].word : "(another word)",
                       .score = results[i].greedy ? 1.0 : 0.0,
                       .log_likelihood = results[i].log_likelihood});
    }
    return items;
  }

 private:
  std::vector<Passage> passages_;
};

}  // namespace

std::unique_ptr<EvalTask> MakeLambadaTask() { return std::make_unique<LambadaTask>(); }

}  // namespace masu
