#include "quality/filler_text.h"

#include <cctype>

namespace masu {
namespace {

constexpr const char* kTimes[] = {
    "in the early morning", "after the long rain", "before the market opened",
    "on a quiet evening",   "late in the autumn",  "during the short break",
    "when the bells rang",  "soon after lunch",    "at the end of the week",
    "early in the spring",  "just before sunset",  "while the kettle boiled"};
constexpr const char* kPeople[] = {
    "the old baker",         "a young teacher", "the tall carpenter", "a tired sailor",
    "the careful gardener",  "my neighbour",    "the village doctor", "a cheerful painter",
    "the patient librarian", "a quiet farmer",  "the new postman",    "an honest merchant"};
constexpr const char* kDeeds[] = {"counted", "repaired", "carried",  "cleaned",
                                  "painted", "sorted",   "borrowed", "described",
                                  "moved",   "admired",  "covered",  "weighed"};
constexpr const char* kThings[] = {
    "the wooden boxes",   "a broken chair",    "three heavy baskets", "the garden tools",
    "some yellow apples", "the dusty shelves", "a stack of letters",  "the copper pots",
    "two woollen coats",  "the fishing nets",  "an empty barrel",     "the painted plates"};
constexpr const char* kPlaces[] = {
    "near the harbour",       "behind the mill",      "in the small square",
    "beside the river",       "under the old bridge", "at the edge of the forest",
    "in front of the school", "on the narrow stairs", "next to the well",
    "across the street",      "in the back room",     "by the open window"};

}  // namespace

std::string FillerText::Sentence() {
  const std::string time = draw_.Pick(kTimes), person = draw_.Pick(kPeople);
  const std::string deed = std::string(draw_.Pick(kDeeds)) + " " + draw_.Pick(kThings);
  const std::string place = draw_.Pick(kPlaces);
  std::string sentence;
  switch (draw_.Below(3)) {
    case 0:
      sentence = time + ", " + person + " " + deed + " " + place + ".";
      break;
    case 1:
      sentence = person + " " + deed + " " + place + ".";
      break;
    default:
      sentence = place + ", " + person + " " + deed + ".";
  }
  sentence[0] = static_cast<char>(std::toupper(static_cast<unsigned char>(sentence[0])));
  return sentence;
}

std::vector<std::string> FillerText::Sentences(const Tokenizer& tokenizer, uint64_t tokens) {
  std::vector<std::string> sentences;
  while (true) {
    std::string next = Sentence();
    const uint64_t size = tokenizer.Encode(" " + next, {.add_special = false}).size();
    if (size > tokens) return sentences;
    tokens -= size;
    sentences.push_back(std::move(next));
  }
}

std::string JoinSentences(std::span<const std::string> sentences) {
  std::string text;
  for (const std::string& sentence : sentences) text += (text.empty() ? "" : " ") + sentence;
  return text;
}

}  // namespace masu
