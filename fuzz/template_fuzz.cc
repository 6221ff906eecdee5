// ChatTemplate::Parse and Render on any source and any messages: both end, errors are one line,
// text is valid UTF-8, and nothing that a message says is trusted.
//
//   cmake --preset fuzz && cmake --build --preset fuzz --target template_fuzz
//
// An input is a template, a NUL, and JSON with messages. No corpus is kept: inputs that are too
// short turn into small valid ones, made here.
#include <cstddef>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "base/check.h"
#include "fuzz/place_seed.h"
#include "text/chat_template.h"
#include "text/utf8.h"

extern "C" size_t LLVMFuzzerMutate(uint8_t* data, size_t size, size_t max_size);

namespace masu {
namespace {

// In every message, and in no template unless the fuzzer writes it there.
constexpr std::string_view kUserText = "\xE2\x98\x83";  // U+2603

constexpr std::string_view kSeeds[] = {
    R"({{ bos_token }}{% for m in messages %}{% if m.role == 'user' %}<|u|>{{ m.content|trim }})"
    R"({% elif loop.last %}{{ m['content'][::-1] }}{% else %}{{ loop.index0 ~ m }}{% endif %})"
    R"({% endfor %}{% if add_generation_prompt %}<|a|>{% endif %})",
    R"({%- set ns = namespace(n=0, l=[]) -%}{%- macro show(x, y=1) -%}{{ x|tojson(indent=2) }}{{ y }})"
    R"({%- endmacro -%}{%- for m in messages if m.role is string -%}{%- set ns.n = ns.n + 1 -%})"
    R"({%- if ns.n > 5 %}{% break %}{% endif -%}{{ show(m) }}{%- endfor -%}{{ ns.n // 2 }})",
    R"({% for k, v in messages[0].items() %}{{ k.upper().split('o')|join(', ') }}{{ v is mapping }})"
    R"({{ '%s' % v }}{{ "{} {:>5}".format(k, 1) }}{% endfor %}{{ range(5)|list|sum }})"
    R"({{ messages|map(attribute='role')|unique|sort|join }}{{ strftime_now('%Y') }})",
    R"({% set x %}{{ messages|length }}{% endset %}{% filter upper %}{{ x|replace('1','2')|indent }})"
    R"({% endfilter %}{{ raise_exception('no ' + x) if messages|length > 3 else x|int ** 2 }})",
};
constexpr std::string_view kMessages =
    "[{\"role\":\"system\",\"content\":\"s\xE2\x98\x83\"},{\"role\":\"user\",\"content\":[{"
    "\"type\":\"text\","
    "\"text\":\"\xE2\x98\x83 "
    "1\"}]},{\"role\":\"assistant\",\"content\":null,\"n\":[1,-2.5e3,true]}]";

std::string Seed(unsigned int seed) {
  std::string input(kSeeds[seed % std::size(kSeeds)]);
  return input.append(1, '\0').append(kMessages);
}

void Render(const ChatTemplate& chat_template, std::string_view json, bool source_has_user_text) {
  const auto messages = nlohmann::ordered_json::parse(json, nullptr, /*allow_exceptions=*/false);
  if (messages.is_discarded()) return;
  ChatTemplateInput input;
  input.messages = &messages;
  input.tools = messages.is_array() ? &messages : nullptr;
  input.bos_token = "<s>";
  input.now = 1'700'000'000;
  const auto segments = chat_template.Render(input);
  if (!segments.ok()) return;
  for (const TextSegment& segment : *segments) {
    const bool user_text = segment.text.find(kUserText) != std::string::npos;
    MASU_CHECK(!(segment.trusted && user_text && !source_has_user_text));
  }
}

}  // namespace
}  // namespace masu

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view all(reinterpret_cast<const char*>(data), size);
  const size_t end = std::min(all.size(), all.find('\0'));
  const std::string_view source = all.substr(0, end);
  const auto chat_template = masu::ChatTemplate::Parse(source);
  if (!chat_template.ok()) return 0;
  // An escape can spell the character, too.
  const bool spelled =
      source.find(masu::kUserText) != source.npos || source.find('\\') != source.npos;
  masu::Render(**chat_template, end < size ? all.substr(end + 1) : masu::kMessages, spelled);
  return 0;
}

extern "C" size_t LLVMFuzzerCustomMutator(uint8_t* data, size_t size, size_t max_size,
                                          unsigned int seed) {
  constexpr size_t kSmallest = 8;
  if (size < kSmallest || seed % 256 == 0) {
    if (const size_t placed = masu::PlaceSeed(masu::Seed(seed >> 8), data, max_size); placed > 0) {
      return placed;
    }
  }
  return LLVMFuzzerMutate(data, size, max_size);
}
