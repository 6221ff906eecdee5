#include "base/environment.h"

#include <cstdlib>

namespace masu {
namespace {

std::optional<std::string> Get(const char* name) {
  const char* value = std::getenv(name);
  if (value == nullptr || *value == '\0') return std::nullopt;
  return std::string(value);
}

}  // namespace

Environment Environment::Read() {
  Environment environment;
  environment.isa = Get("MASU_ISA");
  environment.home = Get("MASU_HOME").value_or(Get("HOME").value_or(".") + "/.cache/masu");
  environment.api_key = Get("MASU_API_KEY");
  environment.openai_api_key = Get("OPENAI_API_KEY");
  environment.log_level = Get("MASU_LOG_LEVEL");
  environment.test_data = Get("MASU_TEST_DATA").value_or("../shared");
  return environment;
}

}  // namespace masu
