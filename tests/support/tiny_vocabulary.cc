#include "tests/support/tiny_vocabulary.h"

#include <algorithm>
#include <nlohmann/json.hpp>

namespace masu {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::string_view kSpecial[] = {"<|endoftext|>", "<|im_start|>", "<|im_end|>",
                                         "<|pad|>",       "<tool_call>",  "</tool_call>"};
constexpr size_t kNumControl = 4;
static_assert(std::size(kSpecial) == kTinyFirstByte);

constexpr std::string_view kChatMl =
    "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\n' + message['content'] "
    "+ '<|im_end|>' + '\n' }}{% endfor %}{% if add_generation_prompt %}{{ "
    "'<|im_start|>assistant\n' }}{% endif %}";

// Code points of this alphabet are below U+0800: one or two bytes of UTF-8.
void AppendCodePoint(uint32_t code, std::string& text) {
  if (code < 0x80) {
    text += static_cast<char>(code);
  } else {
    text += static_cast<char>(0xc0 | (code >> 6));
    text += static_cast<char>(0x80 | (code & 0x3f));
  }
}

bool KeepsItsCodePoint(uint32_t byte) {
  return (byte >= '!' && byte <= '~') || (byte >= 0xa1 && byte <= 0xac) || byte >= 0xae;
}

}  // namespace

const std::vector<std::pair<std::string, std::string>> kTinyMerges = {
    {"h", "e"}, {"l", "l"},    {"he", "ll"},   {"hell", "o"}, {"o", "r"},   {"w", "or"},
    {"l", "d"}, {"wor", "ld"}, {" ", "world"}, {" ", "t"},    {" t", "he"}, {"i", "n"},
    {"a", "n"}, {"an", "d"},   {" ", "and"},   {"e", "r"},    {"u", "s"},   {"us", "er"},
    {" ", "a"}, {"s", "t"},    {" ", "hello"}, {"\n", "\n"},
};

std::string SpellBytes(std::string_view bytes) {
  // Bytes without a printable character of their own are numbered from U+0100, in order.
  std::vector<uint32_t> alphabet(256);
  uint32_t next = 0x100;
  for (uint32_t byte = 0; byte < 256; ++byte) {
    alphabet[byte] = KeepsItsCodePoint(byte) ? byte : next++;
  }
  std::string spelled;
  for (const char c : bytes) AppendCodePoint(alphabet[static_cast<unsigned char>(c)], spelled);
  return spelled;
}

namespace {

// "he ll"
std::vector<std::string> SpelledMerges() {
  std::vector<std::string> merges;
  for (const auto& [left, right] : kTinyMerges) {
    merges.push_back(SpellBytes(left) + " " + SpellBytes(right));
  }
  return merges;
}

}  // namespace

Result<TinyVocabulary> TinyVocabulary::Create(uint32_t size) {
  if (size < static_cast<uint32_t>(kTinyFirstFree)) {
    return InvalidArgument("a tiny vocabulary needs at least {} tokens, not {}", kTinyFirstFree,
                           size);
  }
  TinyVocabulary vocabulary;
  auto& bytes = vocabulary.bytes_;
  bytes.assign(std::begin(kSpecial), std::end(kSpecial));
  for (int byte = 0; byte < 256; ++byte) bytes.emplace_back(1, static_cast<char>(byte));
  for (const auto& [left, right] : kTinyMerges) bytes.push_back(left + right);
  MASU_CHECK_EQ(bytes.size(), static_cast<size_t>(kTinyFirstFree));
  while (bytes.size() < size) bytes.push_back(fmt::format(" w{}", bytes.size()));
  return vocabulary;
}

Result<TokenId> TinyVocabulary::AddPiece(std::string_view piece) {
  if (piece.empty()) return InvalidArgument("a piece of a vocabulary cannot be empty");
  const auto found = std::find(bytes_.begin(), bytes_.end(), piece);
  const auto id = static_cast<TokenId>(found - bytes_.begin());
  if (found != bytes_.end() && (id < kTinyFirstByte || id >= next_free_)) {
    return InvalidArgument("the piece '{}' is the text of a {} token", piece,
                           id < kTinyFirstByte ? "special" : "filler");
  }
  if (found != bytes_.end()) return id;
  if (static_cast<size_t>(next_free_) >= bytes_.size()) {
    return InvalidArgument("a vocabulary of {} tokens has no room for more than {} pieces",
                           bytes_.size(), bytes_.size() - kTinyFirstFree);
  }
  bytes_[static_cast<size_t>(next_free_)] = piece;
  return next_free_++;
}

std::vector<std::string> TinyVocabulary::Spellings() const {
  std::vector<std::string> tokens;
  for (size_t id = 0; id < bytes_.size(); ++id) {
    tokens.push_back(id < std::size(kSpecial) ? bytes_[id] : SpellBytes(bytes_[id]));
  }
  return tokens;
}

void TinyVocabulary::WriteTo(GgufWriter& writer) const {
  constexpr int32_t kNormal = 1, kControl = 3, kUserDefined = 4;
  const std::vector<std::string> tokens = Spellings();
  std::vector<int32_t> types(tokens.size(), kNormal);
  for (size_t id = 0; id < std::size(kSpecial); ++id) {
    types[id] = id < kNumControl ? kControl : kUserDefined;
  }
  const std::vector<std::string> merges = SpelledMerges();
  writer.AddString("tokenizer.ggml.model", "gpt2");
  writer.AddString("tokenizer.ggml.pre", "smollm");
  writer.AddStrings("tokenizer.ggml.tokens", tokens);
  writer.AddI32s("tokenizer.ggml.token_type", types);
  writer.AddStrings("tokenizer.ggml.merges", merges);
  writer.AddU32("tokenizer.ggml.bos_token_id", kTinyImStart);
  writer.AddU32("tokenizer.ggml.eos_token_id", kTinyImEnd);
  writer.AddU32("tokenizer.ggml.unknown_token_id", kTinyEndOfText);
  writer.AddU32("tokenizer.ggml.padding_token_id", kTinyPad);
  writer.AddBool("tokenizer.ggml.add_bos_token", false);
  writer.AddBool("tokenizer.ggml.add_space_prefix", false);
  writer.AddString("tokenizer.chat_template", kChatMl);
}

std::string TinyVocabulary::TokenizerJson() const {
  Json json = {{"version", "1.0"},
               {"truncation", nullptr},
               {"padding", nullptr},
               {"added_tokens", Json::array()}};
  for (size_t id = 0; id < std::size(kSpecial); ++id) {
    json["added_tokens"].push_back({{"id", id},
                                    {"content", kSpecial[id]},
                                    {"single_word", false},
                                    {"lstrip", false},
                                    {"rstrip", false},
                                    {"normalized", false},
                                    {"special", id < kNumControl}});
  }
  // What "smollm" stands for in a GGUF file: digits one by one, then GPT-2's expression.
  const Json byte_level = {{"type", "ByteLevel"},
                           {"add_prefix_space", false},
                           {"trim_offsets", true},
                           {"use_regex", true}};
  json["normalizer"] = nullptr;
  json["pre_tokenizer"] = {
      {"type", "Sequence"},
      {"pretokenizers",
       Json::array({{{"type", "Digits"}, {"individual_digits", true}}, byte_level})}};
  json["post_processor"] = nullptr;
  json["decoder"] = byte_level;
  Json vocab = Json::object();
  const std::vector<std::string> tokens = Spellings();
  for (size_t id = 0; id < tokens.size(); ++id) vocab[tokens[id]] = id;
  json["model"] = {{"type", "BPE"},
                   {"dropout", nullptr},
                   {"unk_token", nullptr},
                   {"continuing_subword_prefix", nullptr},
                   {"end_of_word_suffix", nullptr},
                   {"fuse_unk", false},
                   {"byte_fallback", false},
                   {"vocab", std::move(vocab)},
                   {"merges", SpelledMerges()}};
  return json.dump();
}

std::string TinyVocabulary::TokenizerConfigJson() const {
  return Json{{"tokenizer_class", "PreTrainedTokenizerFast"},
              {"bos_token", kSpecial[kTinyImStart]},
              {"eos_token", kSpecial[kTinyImEnd]},
              {"pad_token", kSpecial[kTinyPad]},
              {"add_bos_token", false},
              {"chat_template", kChatMl}}
      .dump();
}

}  // namespace masu
