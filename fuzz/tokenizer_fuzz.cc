// Tokenizer::FromHuggingFace on damaged files, and what loads on any text: encoding ends, ids are
// valid, no control token comes of untrusted text, and a stream gives what Decode gives.
//
//   cmake --preset fuzz && cmake --build --preset fuzz --target tokenizer_fuzz
//
// An input is the kind of file (one byte), the file, a byte 0xFF, and the text. No corpus is kept:
// inputs that are too short turn into small valid ones, made here.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "base/check.h"
#include "fuzz/place_seed.h"
#include "text/detokenizer.h"
#include "text/tokenizer.h"
#include "text/utf8.h"

extern "C" size_t LLVMFuzzerMutate(uint8_t* data, size_t size, size_t max_size);

namespace masu {
namespace {

constexpr const char* kByteLevel = R"json({"added_tokens":[
{"id":7,"content":"<s>","single_word":false,"lstrip":false,"rstrip":true,"normalized":false,"special":true},
{"id":8,"content":"ab","single_word":true,"lstrip":true,"rstrip":false,"normalized":true,"special":false}],
"normalizer":{"type":"Sequence","normalizers":[{"type":"NFC"},{"type":"Lowercase"},{"type":"StripAccents"}]},
"pre_tokenizer":{"type":"Sequence","pretokenizers":[{"type":"Digits","individual_digits":true},
{"type":"Split","pattern":{"Regex":"[\\p{L}&&[^\\p{Han}]]+|\\s+(?!\\S)"},"behavior":"MergedWithNext","invert":false},
{"type":"ByteLevel","add_prefix_space":true,"use_regex":true}]},
"post_processor":{"type":"TemplateProcessing","single":[{"SpecialToken":{"id":"<s>","type_id":0}},
{"Sequence":{"id":"A","type_id":0}}],"special_tokens":{"<s>":{"id":"<s>","ids":[7],"tokens":["<s>"]}}},
"decoder":{"type":"ByteLevel"},"model":{"type":"BPE","ignore_merges":true,
"vocab":{"a":0,"b":1,"c":2,"Ġ":3,"ab":4,"Ġa":5,"Ċ":6},"merges":[["a","b"],["Ġ","a"]]}})json";
constexpr const char* kSpm = R"({"added_tokens":[
{"id":0,"content":"<unk>","special":true,"normalized":false},{"id":1,"content":"<s>","special":true,"normalized":true}],
"normalizer":{"type":"Sequence","normalizers":[{"type":"Prepend","prepend":"▁"},
{"type":"Replace","pattern":{"String":" "},"content":"▁"}]},
"decoder":{"type":"Sequence","decoders":[{"type":"Replace","pattern":{"String":"▁"},"content":" "},
{"type":"ByteFallback"},{"type":"Fuse"},{"type":"Strip","content":" ","start":1,"stop":0}]},
"model":{"type":"BPE","unk_token":"<unk>","fuse_unk":true,"byte_fallback":true,
"vocab":{"<unk>":0,"<s>":1,"▁":2,"a":3,"▁a":4,"<0x41>":5},"merges":["▁ a"]}})";
constexpr const char* kUnigram = R"({"normalizer":{"type":"NFKD"},
"pre_tokenizer":{"type":"Metaspace","replacement":"▁","prepend_scheme":"first","split":true},
"decoder":{"type":"Metaspace","replacement":"▁","add_prefix_space":true},
"model":{"type":"Unigram","unk_id":0,"byte_fallback":false,
"vocab":[["<unk>",0],["▁",-1.5],["a",-2],["b",-2.5],["ab",-3],["▁a",-1]]}})";

std::string ProtobufPiece(std::string_view text, float score, char type) {
  std::string piece = {'\x0A', static_cast<char>(text.size())};
  piece += text;
  piece += '\x15';
  piece.append(reinterpret_cast<const char*>(&score), sizeof score);
  piece += {'\x18', type};
  return std::string{'\x0A', static_cast<char>(piece.size())} + piece;
}

std::string SentencePieceModel(char model_type) {
  std::string model = ProtobufPiece("<unk>", 0, 2) + ProtobufPiece("<s>", 0, 3) +
                      ProtobufPiece("a", -1, 1) + ProtobufPiece("\xE2\x96\x81", -2, 1) +
                      ProtobufPiece(
                          "\xE2\x96\x81"
                          "a",
                          -1.5, 1) +
                      ProtobufPiece("sym", -3, 4) + ProtobufPiece("<0x41>", 0, 6);
  return model + std::string{'\x12', '\x05', '\x18', model_type, '\x98', '\x02', '\x01'};
}

std::string Seed(unsigned int seed) {
  const std::string text = "\xFF <s>a ab\tAB 12e\xCC\x81\xE6\x97\xA5\xFF\xC0 sym\n";
  switch (seed % 6) {
    case 0:
      return std::string(1, '\0') + kByteLevel + text;
    case 1:
      return std::string(1, '\0') + kSpm + text;
    case 2:
      return std::string(1, '\0') + kUnigram + text;
    case 3:
      return std::string(1, '\1') + SentencePieceModel(1) + text;
    case 4:
      return std::string(1, '\1') + SentencePieceModel(2) + text;
    default:
      return std::string(1, '\2') + "YQ== 0\nYg== 1\nYWI= 2\nIA== 3\n" + text;
  }
}

HuggingFaceTokenizerFiles MakeFiles(uint8_t kind, std::string file) {
  HuggingFaceTokenizerFiles files;
  if (kind % 3 == 0) files.tokenizer_json = std::move(file);
  if (kind % 3 == 1) files.tokenizer_model = std::move(file);
  if (kind % 3 == 2) {
    files.tiktoken_model = std::move(file);
    files.tokenizer_config_json =
        R"({"auto_map":{"AutoTokenizer":["tokenization_kimi.TikTokenTokenizer",null]}})";
  }
  return files;
}

void Use(const Tokenizer& tokenizer, const std::string& text) {
  for (const bool trusted : {false, true}) {
    const auto ids = tokenizer.Encode(text, {.add_special = trusted, .parse_special = trusted});
    std::string streamed;
    Detokenizer detokenizer(tokenizer, false, TextPosition::kStart);
    for (const TokenId id : ids) {
      MASU_CHECK(tokenizer.IsValid(id));
      streamed += detokenizer.Push(id);
    }
    streamed += detokenizer.Flush();
    MASU_CHECK(ValidUtf8Prefix(streamed) == streamed.size());
    MASU_CHECK(streamed == tokenizer.Decode(ids, false));
  }
  const size_t half = text.size() / 2;
  const TextSegment segments[] = {{text.substr(0, half), true}, {text.substr(half), false}};
  (void)tokenizer.EncodeSegments(segments, true);
}

}  // namespace
}  // namespace masu

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size < 2) return 0;
  const std::string_view all(reinterpret_cast<const char*>(data), size);
  // The last 0xFF with at most 2,000 bytes behind it: files may hold this byte too.
  const size_t mark = std::min(all.rfind('\xFF'), size - 1);
  const std::string text(all.substr(std::max<size_t>(mark, 1)));
  const std::string file(all.substr(1, std::max<size_t>(mark, 1) - 1));
  const auto tokenizer = masu::Tokenizer::FromHuggingFace(masu::MakeFiles(data[0], file));
  if (!tokenizer.ok()) {
    MASU_CHECK(tokenizer.error().message.find('\n') == std::string::npos);
    return 0;
  }
  masu::Use(**tokenizer, text);
  return 0;
}

extern "C" size_t LLVMFuzzerCustomMutator(uint8_t* data, size_t size, size_t max_size,
                                          unsigned int seed) {
  constexpr size_t kSmallest = 20;
  if (size < kSmallest || seed % 256 == 0) {
    if (const size_t placed = masu::PlaceSeed(masu::Seed(seed >> 8), data, max_size); placed > 0) {
      return placed;
    }
  }
  return LLVMFuzzerMutate(data, size, max_size);
}
