#include <cstdio>
#include <iostream>
#include <iterator>
#include <sstream>

#include "cli/commands.h"
#include "text/tokenizer.h"

namespace masu {
namespace {

Result<std::unique_ptr<Tokenizer>> Open(const std::string& path) {
  MASU_ASSIGN_OR_RETURN(const std::unique_ptr<GgufFile> file, GgufFile::Open(path));
  return Tokenizer::FromGguf(*file);
}

std::string ReadStandardInput() { return {std::istreambuf_iterator<char>(std::cin), {}}; }

}  // namespace

int RunTokenize(const TokenizeOptions& options) {
  const auto tokenizer = Open(options.model);
  if (!tokenizer.ok()) return PrintError(tokenizer.error());
  const std::vector<TokenId> ids = tokenizer.value()->Encode(
      ReadStandardInput(), {.add_special = !options.no_special, .parse_special = false});
  for (size_t i = 0; i < ids.size(); ++i) {
    if (options.pieces) {
      std::printf("%d\t%s\n", ids[i], tokenizer.value()->TokenPiece(ids[i]).c_str());
    } else {
      std::printf("%s%d", i == 0 ? "" : " ", ids[i]);
    }
  }
  if (!options.pieces) std::puts("");
  return 0;
}

int RunDetokenize(const DetokenizeOptions& options) {
  const auto tokenizer = Open(options.model);
  if (!tokenizer.ok()) return PrintError(tokenizer.error());
  std::vector<TokenId> ids;
  std::istringstream input(ReadStandardInput());
  for (std::string word; input >> word;) {
    char* end = nullptr;
    const long id = std::strtol(word.c_str(), &end, 10);
    if (*end != '\0' || !tokenizer.value()->IsValid(static_cast<TokenId>(id)) ||
        id != static_cast<TokenId>(id)) {
      return PrintError(InvalidArgument("'{}' is not a token id of this vocabulary", word));
    }
    ids.push_back(static_cast<TokenId>(id));
  }
  const std::string text = tokenizer.value()->Decode(ids, false);
  std::fwrite(text.data(), 1, text.size(), stdout);
  return 0;
}

}  // namespace masu
