// The questions of our own for function calls.
#include <algorithm>
#include <iterator>

#include "base/check.h"
#include "quality/tool_cases.h"

namespace masu {
namespace {

struct BuiltInFunction {
  const char* name;
  const char* json;
};

// As BFCL writes them.
constexpr BuiltInFunction kFunctions[] = {
    {"get_weather",
     R"({"name": "get_weather", "description": "The weather in a city now.", "parameters": {"type": "dict", "properties": {"city": {"type": "string", "description": "Name of the city."}, "unit": {"type": "string", "enum": ["celsius", "fahrenheit"], "description": "Unit of the temperature, celsius if left out."}}, "required": ["city"]}})"},
    {"convert_currency",
     R"({"name": "convert_currency", "description": "Converts an amount of money.", "parameters": {"type": "dict", "properties": {"amount": {"type": "float", "description": "How much."}, "source": {"type": "string", "description": "Three letters of the currency to convert from."}, "target": {"type": "string", "description": "Three letters of the currency to convert to."}}, "required": ["amount", "source", "target"]}})"},
    {"triangle_area",
     R"({"name": "triangle_area", "description": "Area of a triangle.", "parameters": {"type": "dict", "properties": {"base": {"type": "integer", "description": "Length of the base."}, "height": {"type": "integer", "description": "Height over the base."}}, "required": ["base", "height"]}})"},
    {"set_alarm",
     R"({"name": "set_alarm", "description": "Sets an alarm.", "parameters": {"type": "dict", "properties": {"hour": {"type": "integer", "description": "0 to 23."}, "minute": {"type": "integer", "description": "0 to 59."}, "label": {"type": "string", "description": "Text to show."}}, "required": ["hour", "minute"]}})"},
    {"send_message",
     R"({"name": "send_message", "description": "Sends a text message to one person.", "parameters": {"type": "dict", "properties": {"recipient": {"type": "string", "description": "Name of the person."}, "text": {"type": "string", "description": "What to send."}}, "required": ["recipient", "text"]}})"},
    {"set_light",
     R"({"name": "set_light", "description": "Turns the light of a room on or off.", "parameters": {"type": "dict", "properties": {"room": {"type": "string", "description": "Name of the room."}, "on": {"type": "boolean", "description": "true for on."}}, "required": ["room", "on"]}})"},
    {"sort_numbers",
     R"({"name": "sort_numbers", "description": "Sorts numbers.", "parameters": {"type": "dict", "properties": {"numbers": {"type": "array", "items": {"type": "integer"}, "description": "What to sort."}, "descending": {"type": "boolean", "description": "Largest first; false if left out."}}, "required": ["numbers"]}})"},
    {"find_train",
     R"({"name": "find_train", "description": "Finds a train between two cities.", "parameters": {"type": "dict", "properties": {"origin": {"type": "string", "description": "City of departure."}, "destination": {"type": "string", "description": "City of arrival."}, "date": {"type": "string", "description": "Day as YYYY-MM-DD."}}, "required": ["origin", "destination", "date"]}})"},
    {"add_contact",
     R"({"name": "add_contact", "description": "Adds somebody to the address book.", "parameters": {"type": "dict", "properties": {"name": {"type": "string", "description": "Full name."}, "address": {"type": "dict", "properties": {"city": {"type": "string"}, "zip": {"type": "string"}}, "description": "City and postal code."}}, "required": ["name", "address"]}})"},
    {"factorial",
     R"({"name": "factorial", "description": "The factorial of a number.", "parameters": {"type": "dict", "properties": {"number": {"type": "integer", "description": "At least 0."}}, "required": ["number"]}})"},
};

struct BuiltInCase {
  const char* question;
  std::vector<const char*> functions;
  const char* ground_truth;
};

const std::vector<BuiltInCase>& OwnCases() {
  static const std::vector<BuiltInCase> cases = {
      {"What is the weather in Oslo?",
       {"get_weather"},
       R"([{"get_weather": {"city": ["Oslo"], "unit": ["celsius", ""]}}])"},
      {"How warm is it in Chicago, in fahrenheit?",
       {"get_weather", "convert_currency"},
       R"([{"get_weather": {"city": ["Chicago"], "unit": ["fahrenheit"]}}])"},
      {"How much is 250 euros (EUR) in Japanese yen (JPY)?",
       {"get_weather", "convert_currency"},
       R"([{"convert_currency": {"amount": [250], "source": ["EUR"], "target": ["JPY"]}}])"},
      {"Convert 19.5 dollars (USD) to Swiss francs (CHF).",
       {"convert_currency"},
       R"([{"convert_currency": {"amount": [19.5], "source": ["USD"], "target": ["CHF"]}}])"},
      {"What is the area of a triangle with a base of 10 and a height of 7?",
       {"triangle_area", "factorial"},
       R"([{"triangle_area": {"base": [10], "height": [7]}}])"},
      {"Compute the area of the triangle whose height is 12 and whose base is 5.",
       {"triangle_area"},
       R"([{"triangle_area": {"base": [5], "height": [12]}}])"},
      {"Set an alarm for 6:45 in the morning.",
       {"set_alarm"},
       R"([{"set_alarm": {"hour": [6], "minute": [45], "label": [""]}}])"},
      {"Set an alarm for 18:30 with the label Dinner.",
       {"send_message", "set_alarm"},
       R"([{"set_alarm": {"hour": [18], "minute": [30], "label": ["Dinner"]}}])"},
      {"Send Maria the message: I am late.",
       {"send_message", "add_contact"},
       R"([{"send_message": {"recipient": ["Maria"], "text": ["I am late"]}}])"},
      {"Text \"Happy birthday\" to Tom.",
       {"send_message"},
       R"([{"send_message": {"recipient": ["Tom"], "text": ["Happy birthday"]}}])"},
      {"Turn on the light in the kitchen.",
       {"set_light"},
       R"([{"set_light": {"room": ["kitchen", "the kitchen"], "on": [true]}}])"},
      {"Please switch the bedroom light off.",
       {"set_alarm", "set_light"},
       R"([{"set_light": {"room": ["bedroom", "the bedroom"], "on": [false]}}])"},
      {"Sort the numbers 8, 3, 15 and 1.",
       {"sort_numbers"},
       R"([{"sort_numbers": {"numbers": [[8, 3, 15, 1]], "descending": [false, ""]}}])"},
      {"Sort 4, 9, 2 with the largest first.",
       {"factorial", "sort_numbers"},
       R"([{"sort_numbers": {"numbers": [[4, 9, 2]], "descending": [true]}}])"},
      {"Find a train from Berlin to Prague on 3 May 2025.",
       {"find_train"},
       R"([{"find_train": {"origin": ["Berlin"], "destination": ["Prague"], "date": ["2025-05-03"]}}])"},
      {"I want to go from Lyon to Paris by train on 2025-12-24.",
       {"get_weather", "find_train", "send_message"},
       R"([{"find_train": {"origin": ["Lyon"], "destination": ["Paris"], "date": ["2025-12-24"]}}])"},
      {"Add Ada Nilsson, who lives in Lund, zip 22100, to my contacts.",
       {"add_contact"},
       R"([{"add_contact": {"name": ["Ada Nilsson"], "address": [{"city": ["Lund"], "zip": ["22100"]}]}}])"},
      {"What is the factorial of 9?",
       {"triangle_area", "factorial"},
       R"([{"factorial": {"number": [9]}}])"},
      {"Compute the factorials of 5 and of 6.",
       {"factorial"},
       R"([{"factorial": {"number": [5]}}, {"factorial": {"number": [6]}}])"},
      {"What is the weather in Rome and in Madrid?",
       {"get_weather", "find_train"},
       R"([{"get_weather": {"city": ["Rome"], "unit": ["celsius", ""]}}, {"get_weather": {"city": ["Madrid"], "unit": ["celsius", ""]}}])"},
  };
  return cases;
}

nlohmann::json FunctionNamed(const std::string& name) {
  const auto* found = std::find_if(std::begin(kFunctions), std::end(kFunctions),
                                   [&](const BuiltInFunction& each) { return name == each.name; });
  MASU_CHECK(found != std::end(kFunctions));
  return nlohmann::json::parse(found->json);
}

}  // namespace

std::vector<ToolCase> BuiltInToolCases() {
  std::vector<ToolCase> cases;
  for (const BuiltInCase& own : OwnCases()) {
    ToolCase built{
        .id = fmt::format("own_{}", cases.size()),
        .messages = nlohmann::json::array({{{"role", "user"}, {"content", own.question}}}),
        .functions = nlohmann::json::array(),
        .ground_truth = nlohmann::json::parse(own.ground_truth)};
    for (const char* name : own.functions) built.functions.push_back(FunctionNamed(name));
    cases.push_back(std::move(built));
  }
  return cases;
}

}  // namespace masu
