#include "quality/task_json.h"

#include "quality/conversation.h"
#include "quality/generation_task.h"
#include "quality/json_check.h"

namespace masu {
namespace {

constexpr uint32_t kAnswerTokens = 256;

constexpr const char* kObject = R"({"type": "object"})";
constexpr const char* kList = R"({"type": "array"})";

struct JsonQuestion {
  const char* request;
  const char* schema;
};

constexpr JsonQuestion kFree[] = {
    {"Describe a book with its title, author and year as a JSON object.", kObject},
    {"Describe a city with its name, country and population as a JSON object.", kObject},
    {"Give a list of five fruits as a JSON array of strings.", kList},
    {"Describe a person with name, age and a list of hobbies as a JSON object.", kObject},
    {"Give a list of three cities as a JSON array of objects with name and country.", kList},
    {"Describe a recipe with its name, ingredients and steps as a JSON object.", kObject},
    {"Give the first five square numbers as a JSON array of numbers.", kList},
    {"Describe the weather of a day with temperature, wind and rain as a JSON object.", kObject},
    {"Describe a computer with its parts, each an object with name and price, as a JSON object.",
     kObject},
    {"Give the days of the week as a JSON object from their English names to their numbers.",
     kObject},
};

constexpr JsonQuestion kWithSchema[] = {
    {"Describe the book Moby Dick.",
     R"({"type": "object", "properties": {"title": {"type": "string"}, "author": {"type": "string"}, "year": {"type": "integer"}}, "required": ["title", "author", "year"], "additionalProperties": false})"},
    {"Describe the city Paris.",
     R"({"type": "object", "properties": {"name": {"type": "string"}, "country": {"type": "string"}, "is_capital": {"type": "boolean"}}, "required": ["name", "country", "is_capital"]})"},
    {"Name four colours.",
     R"({"type": "array", "items": {"type": "string"}, "minItems": 4, "maxItems": 4})"},
    {"Order two pizzas and a lemonade.",
     R"({"type": "object", "properties": {"items": {"type": "array", "items": {"type": "object", "properties": {"name": {"type": "string"}, "count": {"type": "integer", "minimum": 1}}, "required": ["name", "count"]}}}, "required": ["items"]})"},
    {"Say whether the review is good or bad: I loved every page of it.",
     R"({"type": "object", "properties": {"sentiment": {"enum": ["good", "bad"]}}, "required": ["sentiment"], "additionalProperties": false})"},
    {"Add 17 and 25.",
     R"({"type": "object", "properties": {"sum": {"type": "integer"}}, "required": ["sum"]})"},
    {"Describe a meeting of Anna and Boris on 12 May 2024 at three o'clock.",
     R"({"type": "object", "properties": {"people": {"type": "array", "items": {"type": "string"}, "minItems": 2}, "date": {"type": "string", "pattern": "^[0-9]{4}-[0-9]{2}-[0-9]{2}$"}, "hour": {"type": "integer", "minimum": 0, "maximum": 23}}, "required": ["people", "date", "hour"]})"},
    {"Describe the animal whale.",
     R"({"type": "object", "properties": {"name": {"type": "string"}, "kind": {"enum": ["mammal", "fish", "bird", "reptile"]}, "legs": {"type": "integer", "minimum": 0}}, "required": ["name", "kind", "legs"]})"},
    {"Give three numbers between 1 and 10.",
     R"({"type": "object", "properties": {"numbers": {"type": "array", "items": {"type": "integer", "minimum": 1, "maximum": 10}, "minItems": 3, "maxItems": 3}}, "required": ["numbers"]})"},
    {"Translate the word house to French and German.",
     R"({"type": "object", "properties": {"french": {"type": "string", "minLength": 1}, "german": {"type": "string", "minLength": 1}}, "required": ["french", "german"], "additionalProperties": false})"},
};

// Shown before each question: small and base models write JSON only after they saw some.
struct JsonExample {
  const char* request;
  const char* schema;  // nullptr: none
  const char* answer;
};
constexpr JsonExample kFreeExamples[] = {
    {"Describe a chair with its material and number of legs as a JSON object.", nullptr,
     R"({"material": "wood", "legs": 4})"},
    {"Give a list of three tools as a JSON array of strings.", nullptr,
     R"(["hammer", "saw", "file"])"},
};
constexpr JsonExample kSchemaExamples[] = {
    {"Describe the animal dog.",
     R"({"type": "object", "properties": {"name": {"type": "string"}, "legs": {"type": "integer"}}, "required": ["name", "legs"]})",
     R"({"name": "dog", "legs": 4})"},
    {"Name two metals.",
     R"({"type": "array", "items": {"type": "string"}, "minItems": 2, "maxItems": 2})",
     R"(["iron", "copper"])"},
};

std::string RequestText(const char* request, const char* schema) {
  std::string text = std::string(request) + " Answer with JSON only.";
  if (schema != nullptr) text += " It must conform to this JSON schema:\n" + std::string(schema);
  return text;
}

class JsonTask final : public GenerationTask {
 public:
  std::string name() const override { return "json"; }
  std::string description() const override { return "valid JSON, free and under a schema"; }

 private:
  Result<std::vector<GenerationQuestion>> Questions(const EvalTarget& target) const override {
    std::vector<GenerationQuestion> questions;
    // In turn, so that the first ones hold both kinds.
    for (size_t i = 0; i < std::size(kFree) + std::size(kWithSchema); ++i) {
      const bool free = i % 2 == 0;
      const JsonQuestion& asked = (free ? kFree : kWithSchema)[i / 2];
      MASU_ASSIGN_OR_RETURN(
          GenerationQuestion question,
          Build(target, fmt::format("json/{}/{}", free ? "free" : "schema", i / 2), asked, free));
      questions.push_back(std::move(question));
    }
    return questions;
  }

  static Result<GenerationQuestion> Build(const EvalTarget& target, std::string id,
                                          const JsonQuestion& asked, bool free) {
    const std::string request = RequestText(asked.request, free ? nullptr : asked.schema);
    Conversation conversation{.messages = nlohmann::ordered_json::array()};
    for (const JsonExample& example : free ? kFreeExamples : kSchemaExamples) {
      conversation.messages.push_back(
          ChatMessage("user", RequestText(example.request, example.schema)));
      conversation.messages.push_back(ChatMessage("assistant", example.answer));
    }
    conversation.messages.push_back(ChatMessage("user", request));
    GenerationQuestion question;
    question.item = {.id = std::move(id),
                     .question = request,
                     .expected = free ? "valid JSON" : "JSON that conforms to the schema"};
    MASU_ASSIGN_OR_RETURN(question.query.prompt, EncodeConversation(target, conversation));
    question.query.max_tokens = kAnswerTokens;
    question.query.stop = AnswerEnds(target);
    question.score = [schema = nlohmann::json::parse(asked.schema)](const GenerateResult& result,
                                                                    EvalItem& item) {
      const JsonVerdict verdict = CheckJson(result.text, &schema);
      item.score = verdict.conforms ? 1 : 0;
      item.extra = {{"valid", verdict.valid ? 1 : 0}, {"fenced", verdict.fenced ? 1 : 0}};
    };
    return question;
  }
};

}  // namespace

std::unique_ptr<EvalTask> MakeJsonTask() { return std::make_unique<JsonTask>(); }

}  // namespace masu
