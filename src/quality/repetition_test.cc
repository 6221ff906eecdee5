#include "quality/repetition.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cctype>
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <random>
#include <string>

#include "base/environment.h"
#include "text/open_tokenizer.h"

namespace masu {
namespace {

using Tokens = std::vector<TokenId>;

// Tokens 0, 1, 2, ...: nothing occurs twice.
Tokens Fresh(size_t count, TokenId first = 1000) {
  Tokens tokens(count);
  for (size_t i = 0; i < count; ++i) tokens[i] = first + static_cast<TokenId>(i);
  return tokens;
}
void Append(Tokens* tokens, const Tokens& piece, size_t times) {
  for (size_t i = 0; i < times; ++i) tokens->insert(tokens->end(), piece.begin(), piece.end());
}

// By the definition, every period in turn.
std::optional<Loop> FindLoopNaively(const Tokens& tokens, const LoopLimits& limits) {
  for (size_t p = 1; p < tokens.size(); ++p) {
    size_t covered = p;
    while (covered < tokens.size() &&
           tokens[tokens.size() - 1 - covered] == tokens[tokens.size() - 1 - covered + p]) {
      ++covered;
    }
    const size_t least = p < limits.long_period ? limits.min_repeats : limits.min_long_repeats;
    if (covered >= limits.min_tokens && covered / p >= least) {
      return Loop{static_cast<uint32_t>(p), static_cast<uint32_t>(covered / p)};
    }
  }
  return std::nullopt;
}

TEST(FindLoop, EveryPeriodIsFoundAtItsLimitAndNotBefore) {
  for (uint32_t period = 1; period <= 170; ++period) {
    const Tokens piece = Fresh(period, 1);
    const uint32_t least = period < 32 ? std::max(4u, (64 + period - 1) / period) : 3u;
    Tokens tokens = Fresh(40);
    Append(&tokens, piece, least);
    const auto loop = FindLoop(tokens);
    ASSERT_TRUE(loop.has_value()) << period;
    EXPECT_EQ(loop->period, period);
    EXPECT_GE(loop->repeats, least);
    Tokens shorter = Fresh(40);
    Append(&shorter, piece, least - 1);
    EXPECT_FALSE(FindLoop(shorter).has_value()) << period;
    tokens.push_back(999);  // it went on with something else
    EXPECT_FALSE(FindLoop(tokens).has_value()) << period;
  }
  EXPECT_FALSE(FindLoop({}).has_value());
  EXPECT_FALSE(FindLoop(Fresh(1)).has_value());
}

TEST(FindLoop, IsTheDefinition) {
  std::mt19937 random(1);
  const LoopLimits limits{
      .min_tokens = 8, .min_repeats = 3, .long_period = 5, .min_long_repeats = 2};
  size_t loops = 0;
  for (int round = 0; round < 20000; ++round) {
    Tokens tokens(random() % 40);
    for (TokenId& token : tokens) token = static_cast<TokenId>(random() % 2);
    const auto fast = FindLoop(tokens, limits), naive = FindLoopNaively(tokens, limits);
    ASSERT_EQ(fast.has_value(), naive.has_value());
    if (!fast) continue;
    ++loops;
    ASSERT_EQ(fast->period, naive->period);
    ASSERT_EQ(fast->repeats, naive->repeats);
  }
  EXPECT_GT(loops, 1000u);
  EXPECT_LT(loops, 19000u);
}

TEST(LoopDetector, SeesALoopAtMostOneStrideLateAndRemembersIt) {
  for (const uint32_t period : {1u, 2u, 7u, 31u, 32u, 60u, 170u}) {
    for (const size_t before : {0u, 5u, 700u, 5000u}) {
      LoopDetector detector;
      for (const TokenId token : Fresh(before)) EXPECT_FALSE(detector.Push(token));
      const Tokens piece = Fresh(period, 1);
      size_t pushed = 0;
      while (pushed < 2000 && !detector.Push(piece[pushed % period])) ++pushed;
      const size_t least = std::max<size_t>(64, period * (period < 32 ? 4 : 3));
      EXPECT_GE(pushed + 1, least) << period;
      EXPECT_LE(pushed + 1, least + LoopDetector::kStride) << period << " after " << before;
      ASSERT_TRUE(detector.loop().has_value());
      EXPECT_EQ(detector.loop()->period, period);
      for (const TokenId token : Fresh(600)) EXPECT_TRUE(detector.Push(token));
    }
  }
}

TEST(DistinctNgrams, AreCountedByHand) {
  const Tokens tokens = {1, 2, 1, 2, 1};
  EXPECT_DOUBLE_EQ(DistinctNgrams(tokens, 1), 2.0 / 5);
  EXPECT_DOUBLE_EQ(DistinctNgrams(tokens, 2), 2.0 / 4);
  EXPECT_DOUBLE_EQ(DistinctNgrams(tokens, 3), 2.0 / 3);
  EXPECT_DOUBLE_EQ(DistinctNgrams(Fresh(9), 3), 1);
  EXPECT_DOUBLE_EQ(DistinctNgrams({}, 1), 1);
}

// --- no false alarms ---

// As pre-tokenizers cut: words with the space before them, digits one by one, runs of signs, runs
// of space.
class PieceTokens {
 public:
  Tokens operator()(const std::string& text) {
    Tokens tokens;
    for (size_t begin = 0; begin < text.size();) {
      size_t end = begin;
      if (text[end] == ' ' && end + 1 < text.size() && KindOf(text[end + 1]) != ' ') ++end;
      const char kind = KindOf(text[end]);
      do ++end;
      while (end < text.size() && kind != '0' && KindOf(text[end]) == kind);
      tokens.push_back(
          ids_.emplace(text.substr(begin, end - begin), static_cast<TokenId>(ids_.size()))
              .first->second);
      begin = end;
    }
    return tokens;
  }

 private:
  static char KindOf(char c) {
    const auto byte = static_cast<unsigned char>(c);
    if (std::isdigit(byte) != 0) return '0';
    if (std::isspace(byte) != 0) return ' ';
    return std::isalpha(byte) != 0 || byte >= 128 ? 'a' : '.';
  }
  std::map<std::string, TokenId> ids_;
};

bool Alarms(const Tokens& tokens) {
  LoopDetector detector;
  for (const TokenId token : tokens) detector.Push(token);
  return detector.loop().has_value();
}

// Text that repeats its frame as people and programs write it.
std::map<std::string, std::string> OrdinaryTexts() {
  std::map<std::string, std::string> texts;
  for (int i = 1; i <= 60; ++i) {
    const std::string number = std::to_string(i);
    texts["numbered list"] += number + ". Item\n";
    texts["table"] += "| " + number + " | 0 | 0 | 0 | yes |\n";
    texts["comma separated values"] += number + ",0,0,0,0,0\n";
    texts["log"] += "2024-05-01 12:00:" + number + " INFO worker ready\n";
    texts["calls"] += "  values[" + number + "] = 0;\n";
    texts["counting"] += number + ", ";
    texts["squares"] += number + " * " + number + " = " + std::to_string(i * i) + "\n";
  }
  texts["table head"] =
      "| name | a | b | c | d | e | f |\n|------|---|---|---|---|---|---|\n| x | 1 | 2 | 3 | 4 | 5 "
      "| 6 |\n";
  texts["rulers"] = "Title\n" + std::string(80, '=') + "\n\nText\n" + std::string(200, '-') +
                    "\n\n" + std::string(40, '*') + "\n";
  texts["blank lines"] = "one" + std::string(50, '\n') + "two" + std::string(80, ' ') + "three";
  texts["code"] =
      "int main() {\n  for (int i = 0; i < n; ++i) {\n    if (a[i] > 0) {\n      while (b) {\n"
      "        if (c) {\n          f();\n        }\n      }\n    }\n  }\n}\n";
  texts["matrix"] = "[[1, 0, 0, 0],\n [0, 1, 0, 0],\n [0, 0, 1, 0],\n [0, 0, 0, 1]]\n";
  texts["song"] =
      "Row, row, row your boat,\ngently down the stream.\nMerrily, merrily, merrily, merrily,\n"
      "life is but a dream.\n\nRow, row, row your boat,\ngently down the stream.\nMerrily, "
      "merrily, merrily, merrily,\nlife is but a dream.\n";
  texts["laughter"] = "He said: ha ha ha ha ha ha ha ha ha ha! No no no no, very very very funny.";
  return texts;
}

// The strings of a line of the public data sets, joined.
void CollectText(const nlohmann::json& json, std::string* text) {
  if (json.is_string()) {
    *text += json.get<std::string>() + "\n";
  } else if (json.is_structured()) {
    for (const nlohmann::json& member : json) CollectText(member, text);
  }
}

class FalseAlarms : public testing::Test {
 protected:
  // With the tokenizer of SmolLM2 where it is there, else with pieces.
  void SetUp() override {
    const std::string model = Environment::Read().home + "/models/SmolLM2-135M-Instruct.Q4_1.gguf";
    if (std::filesystem::exists(model)) tokenizer_ = OpenTokenizer(model).value();
  }
  Tokens Encode(const std::string& text) {
    return tokenizer_ ? tokenizer_->Encode(text, {.add_special = false}) : pieces_(text);
  }
  std::unique_ptr<Tokenizer> tokenizer_;
  PieceTokens pieces_;
};

TEST_F(FalseAlarms, NoneOnListsTablesAndCode) {
  for (const auto& [name, text] : OrdinaryTexts()) {
    EXPECT_FALSE(Alarms(pieces_(text))) << name << ", pieces";
    EXPECT_FALSE(Alarms(Encode(text))) << name;
  }
  // The same detector, on what it is for.
  std::string loop = "The weather was fine. ";
  for (int i = 0; i < 20; ++i) loop += "I am not sure what to say about it. ";
  EXPECT_TRUE(Alarms(pieces_(loop)));
  EXPECT_TRUE(Alarms(Encode(loop)));
}

TEST_F(FalseAlarms, NoneOnPublicTexts) {
  const std::string folder = Environment::Read().test_data + "/data/eval/";
  size_t lines = 0;
  for (const char* name : {"lambada_openai", "arc_easy", "arc_challenge", "gsm8k_test"}) {
    std::ifstream file(folder + name + ".jsonl");
    std::string joined;
    for (std::string line; std::getline(file, line) && joined.size() < 400'000; ++lines) {
      CollectText(nlohmann::json::parse(line), &joined);
    }
    EXPECT_FALSE(Alarms(Encode(joined))) << name;
  }
  if (lines == 0) GTEST_SKIP() << "not run: no texts in " << folder;
  EXPECT_GT(lines, 1000u);
}

}  // namespace
}  // namespace masu
