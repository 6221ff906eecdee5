#include <charconv>
#include <cstdio>
#include <iostream>
#include <iterator>
#include <sstream>

#include "cli/commands.h"
#include "text/open_tokenizer.h"

namespace masu {
namespace {

std::string ReadStandardInput() { return {std::istreambuf_iterator<char>(std::cin), {}}; }

}  // namespace

int RunTokenize(const TokenizeOptions& options) {
  const auto tokenizer = OpenTokenizer(options.model);
  if (!tokenizer.ok()) return PrintError(tokenizer.error());
  const std::vector<TokenId> ids = tokenizer.value()->Encode(
      ReadStandardInput(), {.add_special = !options.no_special, .parse_special = false});
  for (size_t i = 0; i < ids.size(); ++i) {
    if (options.pieces) {
      const std::string piece = tokenizer.value()->TokenPiece(ids[i]);  // may hold NUL
      std::printf("%d\t", ids[i]);
      std::fwrite(piece.data(), 1, piece.size(), stdout);
      std::puts("");
    } else {
      std::printf("%s%d", i == 0 ? "" : " ", ids[i]);
    }
  }
  if (!options.pieces) std::puts("");
  return 0;
}

int RunDetokenize(const DetokenizeOptions& options) {
  const auto tokenizer = OpenTokenizer(options.model);
  if (!tokenizer.ok()) return PrintError(tokenizer.error());
  std::vector<TokenId> ids;
  std::istringstream input(ReadStandardInput());
  for (std::string word; input >> word;) {
    TokenId id = -1;
    const auto parsed = std::from_chars(word.data(), word.data() + word.size(), id);
    const bool whole = parsed.ec == std::errc() && parsed.ptr == word.data() + word.size();
    if (!whole || !tokenizer.value()->IsValid(id)) {
      return PrintError(InvalidArgument("'{}' is not a token id of this vocabulary", word));
    }
    ids.push_back(id);
  }
  const std::string text = tokenizer.value()->Decode(ids, options.no_special);
  std::fwrite(text.data(), 1, text.size(), stdout);
  return 0;
}

}  // namespace masu
