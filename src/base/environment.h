// The one place that reads environment variables. Everything else gets values passed in.
//   MASU_ISA        scalar | avx2 | avx512 | avx512vbmi | avx512bf16 | amx: use this instruction
//   set
//                   (refused if the CPU lacks it)
//   MASU_HOME       folder for downloaded models, default ~/.cache/masu
//   MASU_API_KEY    a key that clients must send (like --api-key)
//   OPENAI_API_KEY  a key to send to a server that `masu bench serve` measures
//   MASU_LOG_LEVEL  debug | info | warning | error
//   MASU_TEST_DATA  folder with golden data for tests, default ../shared
#pragma once

#include <optional>
#include <string>

namespace masu {

struct Environment {
  std::optional<std::string> isa;
  std::string home;
  std::optional<std::string> api_key;
  std::optional<std::string> openai_api_key;
  std::optional<std::string> log_level;
  std::string test_data;

  static Environment Read();
};

}  // namespace masu
