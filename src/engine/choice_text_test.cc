#include "engine/choice_text.h"

#include <gtest/gtest.h>

#include "tests/support/fake_tokenizer.h"

namespace masu {
namespace {

const std::vector<std::string> kPieces = {"alpha", " be", "ta ga", "mma del", "ta"};

struct Played {
  std::string text;
  uint32_t tokens = 0;
  std::optional<std::string> stop;
  bool told_engine = false;
};

// Plays the script in updates of `chunk` tokens, then ends by length.
Played Play(const Tokenizer& tokenizer, const std::vector<TokenId>& script, size_t chunk,
            const ChoiceTextOptions& options) {
  ChoiceText choice(tokenizer, options);
  Played played;
  for (size_t i = 0; i < script.size(); i += chunk) {
    ChoiceUpdate update;
    for (size_t k = i; k < std::min(script.size(), i + chunk); ++k) {
      update.tokens.push_back({.token = script[k], .logprob = 0, .rank = 1, .top = {}});
    }
    if (i + chunk >= script.size()) update.finish = FinishReason::kLength;
    const ChoiceDelta delta = choice.Push(std::move(update));
    played.text += delta.text;
    played.told_engine = played.told_engine || delta.stopped_by_string;
  }
  EXPECT_TRUE(choice.finished());
  played.tokens = choice.num_tokens();
  played.stop = choice.stop_string();
  return played;
}

// B401: cut at the earliest index of any stop, whatever the borders of tokens and updates.
TEST(ChoiceText, CutsAtTheEarliestStop) {
  const FakeTokenizer tokenizer(kPieces);
  const std::vector<TokenId> script = {258, 259, 260, 261, 262};
  const std::string full = "alpha beta gamma delta";
  const std::vector<std::vector<std::string>> cases = {
      {"ta"}, {"a ga"}, {"beta"}, {" gamma"}, {"m"}, {"delta", "gam"}, {"zzz"}, {"ta", "beta"}};
  for (const auto& stops : cases) {
    size_t cut = full.size();
    for (const auto& stop : stops) cut = std::min(cut, full.find(stop));
    for (size_t chunk = 1; chunk <= 5; ++chunk) {
      const Played played = Play(tokenizer, script, chunk, {.stop = stops});
      EXPECT_EQ(played.text, full.substr(0, cut)) << stops[0] << " chunk " << chunk;
      EXPECT_EQ(played.stop.has_value(), cut < full.size());
    }
  }
}

TEST(ChoiceText, CountsUpToTheTokenThatCompletedTheStop) {
  const FakeTokenizer tokenizer(kPieces);
  const Played one = Play(tokenizer, {258, 259, 260, 261, 262}, 1, {.stop = {"beta"}});
  EXPECT_EQ(one.tokens, 3u);
  EXPECT_TRUE(one.told_engine);
  const Played all = Play(tokenizer, {258, 259, 260, 261, 262}, 5, {.stop = {"beta"}});
  EXPECT_EQ(all.tokens, 3u);
  EXPECT_FALSE(all.told_engine);  // the engine had ended by itself
}

TEST(ChoiceText, KeepsTheStopIfAsked) {
  const FakeTokenizer tokenizer(kPieces);
  const Played played =
      Play(tokenizer, {258, 259, 260, 261}, 1, {.stop = {"beta"}, .include_stop = true});
  EXPECT_EQ(played.text, "alpha beta");
}

TEST(ChoiceText, LooksForStopsAfterMinTokensOnly) {
  const FakeTokenizer tokenizer(kPieces);
  const Played played =
      Play(tokenizer, {258, 259, 260, 261, 262}, 1, {.stop = {"ta"}, .min_tokens = 3});
  EXPECT_EQ(played.text, "alpha beta gamma del");
}

// B403: bytes of a character come one by one; every delta is whole.
TEST(ChoiceText, NeverEmitsHalfACharacter) {
  const FakeTokenizer tokenizer;
  const std::string text = "日本 한국 \xF0\x9F\x91\xA9\xE2\x80\x8D\xF0\x9F\x91\xA7 e\xCC\x81";
  ChoiceText choice(tokenizer, {});
  std::string out;
  for (const TokenId id : BytesOf(text)) {
    ChoiceUpdate update;
    update.tokens.push_back({.token = id, .logprob = 0, .rank = 1, .top = {}});
    const ChoiceDelta delta = choice.Push(std::move(update));
    EXPECT_EQ(delta.text.find("\xEF\xBF\xBD"), std::string::npos);
    EXPECT_EQ(delta.text_offsets[0], CountCharacters(out));
    out += delta.text;
  }
  EXPECT_EQ(out, text);
}

TEST(ChoiceText, StopTokens) {
  const FakeTokenizer tokenizer;
  const auto end = [&](TokenId stop, const ChoiceTextOptions& options) {
    ChoiceText choice(tokenizer, options);
    ChoiceUpdate update;
    update.tokens.push_back({.token = 'a', .logprob = 0, .rank = 1, .top = {}});
    update.tokens.push_back({.token = stop, .logprob = 0, .rank = 1, .top = {}});
    update.finish = FinishReason::kStop;
    update.stop_token = stop;
    const std::string text = choice.Push(std::move(update)).text;
    EXPECT_EQ(choice.num_tokens(), 2u);
    return text + "/" + (choice.stop_token() ? std::to_string(*choice.stop_token()) : "");
  };
  EXPECT_EQ(end(FakeTokenizer::kEos, {}), "a/");
  EXPECT_EQ(end('b', {.stop_token_ids = {'b'}}), "a/98");
  EXPECT_EQ(end('b', {.include_stop = true, .stop_token_ids = {'b'}}), "ab/98");
}

}  // namespace
}  // namespace masu
