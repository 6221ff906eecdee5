#include "quality/task_copy.h"

#include <algorithm>
#include <numeric>

#include "quality/filler_text.h"
#include "quality/generation_task.h"
#include "quality/long_context.h"

namespace masu {
namespace {

// With six records SmolLM2-135M quotes nearly all at 16 bits; with nine it mixes them up, and the
// check would measure the model instead of the cache.
constexpr size_t kRecords = 6;
constexpr uint32_t kAnswerTokens = 64;  // longer than any record, even in bytes

constexpr const char* kKeys[] = {"amber", "birch",  "cedar", "dune",  "ember", "fjord", "grove",
                                 "heron", "iris",   "jade",  "kelp",  "lark",  "maple", "olive",
                                 "pearl", "quartz", "raven", "slate", "tulip", "umber", "willow"};

// Sentences of another kind than the filler's, so that what is to be quoted is not guessed from it.
constexpr const char* kFirst[] = {"Silver", "Crooked", "Patient",   "Hollow",   "Restless",
                                  "Golden", "Gentle",  "Forgotten", "Stubborn", "Frozen"};
constexpr const char* kSecond[] = {"kettles",  "lanterns", "compasses", "feathers", "mirrors",
                                   "orchards", "violins",  "anchors",   "pebbles",  "ladders"};
constexpr const char* kThird[] = {"whisper about", "dream of", "argue with", "sing to",
                                  "borrow from",   "wait for", "laugh at"};
constexpr const char* kFourth[] = {"distant", "hungry",    "purple", "electric",
                                   "wooden",  "invisible", "noisy",  "ancient"};
constexpr const char* kFifth[] = {"winters", "comets",  "pianos",  "tigers",
                                  "clocks",  "islands", "engines", "mountains"};

struct Record {
  std::string kind;  // "number", "id" or "motto"
  std::string key;
  std::string value;
  std::string start() const {  // of the sentence that holds it
    return "The " + kind + " of " + key + " is:" + (kind == "motto" ? " \"" : "");
  }
  std::string text() const {
    return kind == "motto" ? start() + value + "\"" : start() + " " + value;
  }
  std::string question() const { return "What is the " + kind + " of " + key + "?"; }
};

std::vector<Record> DrawRecords(SeededDraw& draw) {
  std::vector<Record> records;
  for (const size_t key : draw.Sample(kRecords, std::size(kKeys))) {
    Record record;
    record.key = kKeys[key];
    switch (records.size() % 3) {
      case 0:
        record.kind = "number";
        record.value = draw.Text(6, "0123456789");
        break;
      case 1:
        record.kind = "id";
        record.value = draw.Text(4, "0123456789abcdef") + "-" + draw.Text(4, "0123456789abcdef");
        break;
      default:
        record.kind = "motto";
        record.value = fmt::format("{} {} {} {} {}.", draw.Pick(kFirst), draw.Pick(kSecond),
                                   draw.Pick(kThird), draw.Pick(kFourth), draw.Pick(kFifth));
    }
    records.push_back(std::move(record));
  }
  return records;
}

// Each record on a line of its own, with an equal part of the filler behind it.
std::string Notes(const std::vector<Record>& records, std::span<const std::string> filler) {
  std::string text;
  for (size_t i = 0; i < kRecords; ++i) {
    const size_t begin = i * filler.size() / kRecords, end = (i + 1) * filler.size() / kRecords;
    text += records[i].text() + "\n" + JoinSentences(filler.subspan(begin, end - begin)) + "\n";
  }
  return text;
}

// A base model sees how to answer from the other record of the same kind.
Conversation Ask(const std::vector<Record>& records, size_t i, const std::string& notes,
                 bool with_example) {
  const std::string begin = "Read the notes and quote them exactly.\n\n" + notes + "\n";
  const Record &asked = records[i], &other = records[(i + 3) % kRecords];
  Conversation conversation{.messages = nlohmann::ordered_json::array(),
                            .answer_start = asked.start()};
  if (with_example) {
    conversation.messages.push_back(ChatMessage("user", begin + other.question()));
    conversation.messages.push_back(ChatMessage("assistant", other.text()));
    conversation.messages.push_back(ChatMessage("user", asked.question()));
  } else {
    conversation.messages.push_back(ChatMessage("user", begin + asked.question()));
  }
  return conversation;
}

void Score(const Record& record, EvalItem& item) {
  item.answer = Trimmed(item.answer);
  // A full stop behind a number is not a misquotation.
  if (record.kind != "motto" && item.answer.ends_with('.')) item.answer.pop_back();
  item.score = item.answer == item.expected ? 1 : 0;
  item.extra = {{"characters_right", CharactersRight(item.answer, item.expected)}};
}

class CopyTask final : public GenerationTask {
 public:
  std::string name() const override { return "copy"; }
  std::string description() const override {
    return "numbers, ids and sentences quoted exactly from a long context";
  }

 private:
  Result<std::vector<GenerationQuestion>> Questions(const EvalTarget& target) const override {
    MASU_ASSIGN_OR_RETURN(const auto lengths, ContextLengths(options(), target));
    std::vector<GenerationQuestion> questions;
    for (const uint32_t length : lengths) MASU_TRY(AddContext(target, length, &questions));
    return questions;
  }

  // The questions about one context, which they have in common to its end.
  Result<void> AddContext(const EvalTarget& target, uint32_t length,
                          std::vector<GenerationQuestion>* questions) const {
    const bool is_base = target.chat_template() == nullptr;
    const uint64_t seed = (uint64_t{options().seed} << 32) + length;
    SeededDraw draw(seed);
    const std::vector<Record> records = DrawRecords(draw);
    uint64_t room = length;
    for (size_t i = 0; i < kRecords; ++i) {
      MASU_ASSIGN_OR_RETURN(
          const uint64_t own,
          FillerRoom(target, length, kAnswerTokens, Ask(records, i, Notes(records, {}), is_base)));
      room = std::min(room, own);
    }
    const std::string notes = Notes(records, FillerText(seed).Sentences(target.tokenizer(), room));
    for (size_t i = 0; i < kRecords; ++i) {
      GenerationQuestion question;
      question.item = {.id = fmt::format("copy/{}/{}/{}", length, records[i].kind, i / 3),
                       .question = records[i].question(),
                       .expected = records[i].value,
                       .x = static_cast<double>(i) / (kRecords - 1),
                       .y = length};
      MASU_ASSIGN_OR_RETURN(question.query.prompt,
                            EncodeConversation(target, Ask(records, i, notes, is_base)));
      question.query.max_tokens = kAnswerTokens;
      question.query.stop = {"\n"};
      if (records[i].kind == "motto") question.query.stop.emplace_back("\"");
      question.score = [record = records[i]](const GenerateResult&, EvalItem& item) {
        Score(record, item);
      };
      questions->push_back(std::move(question));
    }
    return {};
  }
};

}  // namespace

double CharactersRight(std::string_view answer, std::string_view expected) {
  const size_t longer = std::max(answer.size(), expected.size());
  if (longer == 0) return 1;
  // Levenshtein's distance, one row at a time.
  std::vector<size_t> row(expected.size() + 1);
  std::iota(row.begin(), row.end(), size_t{0});
  for (size_t i = 1; i <= answer.size(); ++i) {
    size_t diagonal = row[0];
    row[0] = i;
    for (size_t j = 1; j <= expected.size(); ++j) {
      const size_t replaced = diagonal + (answer[i - 1] == expected[j - 1] ? 0 : 1);
      diagonal = row[j];
      row[j] = std::min({replaced, row[j] + 1, row[j - 1] + 1});
    }
  }
  return 1 - static_cast<double>(row.back()) / static_cast<double>(longer);
}

std::unique_ptr<EvalTask> MakeCopyTask() { return std::make_unique<CopyTask>(); }

}  // namespace masu
