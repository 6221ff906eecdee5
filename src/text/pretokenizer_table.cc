// The pre-tokenizers that GGUF files name. The patterns are the data that the models were trained
// with.
#include <fmt/ranges.h>

#include <utility>

#include "text/pretokenizer.h"

namespace masu {
namespace {

constexpr const char* kLlama3 =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3})"
    R"(| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr const char* kQwen2 = R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N})"
                               R"(| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr const char* kQwen35 =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N})"
    R"(| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr const char* kTekken =
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+)"
    R"(|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*)"
    R"(|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr const char* kDeepSeekV3 =
    R"([!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+)"
    R"(|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*)"
    R"(|\s*[\r\n]+|\s+(?!\S)|\s+)";
// The cased letters of DeepSeek-LLM. Escapes stand where Unicode normalisation of this file would
// turn the end of a range into another character.
constexpr const char* kDeepSeekLetters =
    R"(\s?[A-Za-zµÀ-ÖØ-öø-ƺƼ-ƿǄ-ʓʕ-ʯͰ-ͳͶͷͻ-ͽͿΆΈ-ΊΌΎ-ΡΣ-ϵϷ-ҁҊ-ԯԱ-ՖႠ-ჅᎠ-Ᏽᏸ-ᏽᲐ-ᲺᲽ-Ჿᴀ-ᴫᵫ-ᵷᵹ-ᶚ)"
    R"(Ḁ-ἕἘ-Ἕἠ-ὅὈ-Ὅὐ-ὗὙὛὝὟ-\x{1F7D}ᾀ-ᾴᾶ-ᾼ\x{1FBE}ῂ-ῄῆ-ῌῐ-\x{1FD3}ῖ-\x{1FDB}ῠ-Ῥῲ-ῴῶ-ῼ)"
    R"(ℂℇℊ-ℓℕℙ-ℝℤ\x{2126}ℨ\x{212A}-ℭℯ-ℴℹℼ-ℿⅅ-ⅉⅎↃↄⰀ-ⱻⱾ-ⳤⳫ-ⳮⳲⳳꙀ-ꙭꚀ-ꚛꜢ-ꝯꝱ-ꞇꞋ-ꞎꭰ-ꮿﬀ-ﬆﬓ-ﬗ)"
    R"(Ａ-Ｚａ-ｚ𐐀-𐑏𐒰-𐓓𐓘-𐓻𐲀-𐲲𐳀-𐳲𑢠-𑣟𞤀-𞥃]+)";
constexpr const char* kDeepSeekPunctuation = R"(\s?[!-/:-~！-／：-～‘-‟\x{3000}-。]+)";
constexpr const char* kDeepSeekCjk = R"([一-龥ࠀ-一가-\x{D7FF}]+)";

std::vector<std::pair<std::string_view, PreTokenizerSpec>> Table() {
  const PreTokenizerSpec llama3 = {{kLlama3}, true, true, false};
  const PreTokenizerSpec glm = {{kLlama3}, true, false, false};
  const PreTokenizerSpec qwen2 = {{kQwen2}, false, false, true};
  return {
      {"deepseek-coder", {{R"([\r\n])", R"(\s?\p{L}+)", R"(\s?\p{P}+)", kDeepSeekCjk, R"(\p{N})"}}},
      {"deepseek-llm",
       {{R"([\r\n])", kDeepSeekLetters, kDeepSeekPunctuation, R"(\s+$)", kDeepSeekCjk,
         R"(\p{N})"}}},
      {"deepseek-r1-qwen", qwen2},
      {"deepseek-v3",
       {{R"(\p{N}{1,3})", "[一-龥぀-ゟ゠-ヿ]+", kDeepSeekV3}, false, true, false}},
      {"glm4", glm},
      {"glm5", glm},
      {"gpt-2", {{std::string(kGpt2Words)}}},
      {"llama-bpe", llama3},
      {"llama3", llama3},
      {"qwen2", qwen2},
      {"qwen35", {{kQwen35}, false, false, true}},
      {"smollm", {{R"(\p{N})", std::string(kGpt2Words)}}},
      {"tekken", {{kTekken}, true, true, false}},
  };
}

}  // namespace

Result<PreTokenizerSpec> FindPreTokenizer(std::string_view name) {
  std::vector<std::string_view> known;
  for (auto& [entry, spec] : Table()) {
    if (entry == name) return std::move(spec);
    known.push_back(entry);
  }
  return MakeError(ErrorCode::kUnimplemented,
                   "tokenizer.ggml.pre = \"{}\" is not supported; known: {}", name,
                   fmt::join(known, ", "));
}

}  // namespace masu
