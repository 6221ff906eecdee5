// Runs a tokenizer for tests: encode_lines TOKENIZER reads one JSON object per line,
//   {"text": "...", "add_special": bool, "parse_special": bool}     or
//   {"segments": [["...", trusted], ...], "add_special": bool}      or
//   {"ids": [...]}
// and answers {"ids": [...], "decoded": without special tokens, "all": with them,
// "streamed": bool, "parts": [...]}. "streamed" says whether a stream gives the same two texts;
// "parts" are its deltas. Prints {"error": "..."} and ends if the tokenizer does not load.
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>

#include "text/detokenizer.h"
#include "text/open_tokenizer.h"
#include "text/utf8.h"

namespace masu {
namespace {

using Json = nlohmann::ordered_json;

std::vector<TokenId> Ids(const Tokenizer& tokenizer, const Json& request) {
  if (request.contains("ids")) return request.at("ids").get<std::vector<TokenId>>();
  const bool add_special = request.value("add_special", false);
  if (request.contains("text")) {
    return tokenizer.Encode(
        request.at("text").get<std::string>(),
        {.add_special = add_special, .parse_special = request.value("parse_special", false)});
  }
  std::vector<TextSegment> segments;
  for (const Json& segment : request.at("segments")) {
    segments.push_back({segment.at(0).get<std::string>(), segment.at(1).get<bool>()});
  }
  return tokenizer.EncodeSegments(segments, add_special);
}

std::vector<std::string> Stream(const Tokenizer& tokenizer, const std::vector<TokenId>& ids,
                                bool skip_special) {
  Detokenizer detokenizer(tokenizer, skip_special, TextPosition::kStart);
  std::vector<std::string> parts;
  for (const TokenId id : ids) parts.push_back(detokenizer.Push(id));
  parts.push_back(detokenizer.Flush());
  return parts;
}

// What follows a prompt, however long, continues its text.
bool Continues(const Tokenizer& tokenizer, const std::vector<TokenId>& ids) {
  const std::string whole = tokenizer.Decode(ids, true);
  Detokenizer prompt(tokenizer, true, TextPosition::kStart);
  std::string text;
  for (size_t cut = 0; cut < ids.size(); ++cut) {
    text += prompt.Push(ids[cut]);
    if (text.empty()) continue;
    Detokenizer copy = prompt;
    if (!copy.Flush().empty()) continue;  // the prompt ends inside a character
    Detokenizer rest(tokenizer, true, TextPosition::kContinuation);
    std::string joined = text;
    for (size_t i = cut + 1; i < ids.size(); ++i) joined += rest.Push(ids[i]);
    if (joined + rest.Flush() != whole) return false;
    if (cut > 8) break;
  }
  return true;
}

Json Answer(const Tokenizer& tokenizer, const Json& request) {
  const std::vector<TokenId> ids = Ids(tokenizer, request);
  Json answer = {{"ids", ids},
                 {"decoded", tokenizer.Decode(ids, true)},
                 {"all", tokenizer.Decode(ids, false)}};
  bool streamed = Continues(tokenizer, ids);
  for (const bool skip_special : {false, true}) {
    std::string joined;
    for (const std::string& part : Stream(tokenizer, ids, skip_special)) {
      streamed &= ValidUtf8Prefix(part) == part.size();
      joined += part;
    }
    streamed &= joined == answer[skip_special ? "decoded" : "all"];
  }
  answer["streamed"] = streamed;
  if (request.value("parts", false)) answer["parts"] = Stream(tokenizer, ids, true);
  return answer;
}

}  // namespace
}  // namespace masu

int main(int argc, char** argv) {
  if (argc != 2) {
    std::cerr << "usage: encode_lines TOKENIZER" << std::endl;
    return 2;
  }
  const auto tokenizer = masu::OpenTokenizer(argv[1]);
  if (!tokenizer.ok()) {
    std::cout << nlohmann::ordered_json{{"error", tokenizer.error().message}}.dump() << std::endl;
    return 0;
  }
  for (std::string line; std::getline(std::cin, line);) {
    try {
      std::cout << masu::Answer(**tokenizer, nlohmann::ordered_json::parse(line)).dump() << '\n';
    } catch (const std::exception& error) {
      std::cerr << "encode_lines: " << error.what() << std::endl;
      return 1;
    }
  }
  return 0;
}
