#include "checkpoint/generation_config.h"

#include <algorithm>

#include "checkpoint/json_keys.h"
#include "checkpoint/json_text.h"

namespace masu {

Result<std::vector<TokenId>> ReadEosIds(const ModelDirectory& directory) {
  std::vector<TokenId> all;
  for (const char* name : {"generation_config.json", "config.json"}) {
    MASU_ASSIGN_OR_RETURN(const auto text, directory.Read(name));
    if (!text) continue;
    const std::string path = directory.PathOf(name);
    MASU_ASSIGN_OR_RETURN(const auto json, ParseJson(*text, path));
    MASU_ASSIGN_OR_RETURN(const auto ids, JsonKeys(json, path).TokenIds("eos_token_id"));
    for (const TokenId id : ids) {
      if (std::ranges::find(all, id) == all.end()) all.push_back(id);
    }
  }
  return all;
}

}  // namespace masu
