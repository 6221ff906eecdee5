// Renders chat templates for tests: one JSON object per line on standard input, one per line out.
//   {"template": source, "messages": [...], "tools": [...] or null, "arguments": {...},
//    "add_generation_prompt": bool, "bos_token": "...", "eos_token": "...", "now": seconds}
// gives {"text": "...", "segments": [[text, trusted], ...]}, or {"parse_error": "..."},
// or {"error": "..."}.
#include <iostream>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>

#include "text/chat_template.h"

namespace masu {
namespace {

using Json = nlohmann::ordered_json;

Json Answer(const Json& request) {
  static std::map<std::string, Result<std::unique_ptr<ChatTemplate>>> parsed;
  const auto source = request.at("template").get<std::string>();
  const auto& chat_template = parsed.try_emplace(source, ChatTemplate::Parse(source)).first->second;
  if (!chat_template.ok()) return {{"parse_error", chat_template.error().message}};
  ChatTemplateInput input;
  const auto pointer = [&](const char* key) {
    return request.contains(key) ? &request.at(key) : nullptr;
  };
  input.messages = pointer("messages");
  input.tools = pointer("tools");
  input.arguments = pointer("arguments");
  input.add_generation_prompt = request.value("add_generation_prompt", true);
  input.bos_token = request.value("bos_token", "");
  input.eos_token = request.value("eos_token", "");
  if (request.contains("now")) input.now = request.at("now").get<std::time_t>();
  const auto segments = (*chat_template)->Render(input);
  if (!segments.ok()) return {{"error", segments.error().message}};
  Json answer = {{"text", ""}, {"segments", Json::array()}};
  std::string text;
  for (const TextSegment& segment : *segments) {
    text += segment.text;
    answer["segments"].push_back({segment.text, segment.trusted});
  }
  answer["text"] = text;
  return answer;
}

}  // namespace
}  // namespace masu

int main() {
  for (std::string line; std::getline(std::cin, line);) {
    try {
      std::cout << masu::Answer(nlohmann::ordered_json::parse(line)).dump() << std::endl;
    } catch (const std::exception& error) {
      std::cerr << "render_template: " << error.what() << std::endl;
      return 1;
    }
  }
  return 0;
}
