#include "text/bpe.h"

#include <algorithm>
#include <queue>

#include "text/byte_level.h"

namespace masu {
namespace {

constexpr TokenId kNoToken = -1;

struct Symbol {
  TokenId id;
  int32_t previous;
  int32_t next;
};

struct Candidate {
  uint32_t rank;
  int32_t left;      // index of the left symbol
  TokenId left_id;   // ids at the time of the proposal: a candidate whose symbols have changed
  TokenId right_id;  // since is stale
  TokenId result;
  friend bool operator<(const Candidate& a, const Candidate& b) {
    // std::priority_queue takes the largest first.
    return a.rank != b.rank ? a.rank > b.rank : a.left > b.left;
  }
};

}  // namespace

Result<std::unique_ptr<Bpe>> Bpe::Create(const Vocabulary& vocabulary,
                                         std::span<const std::string> merges) {
  auto bpe = std::make_unique<Bpe>();
  MASU_TRY(bpe->AddBytes(vocabulary));
  bpe->merges_.reserve(merges.size());
  for (size_t rank = 0; rank < merges.size(); ++rank) {
    MASU_TRY(bpe->AddMerge(vocabulary, merges[rank], rank));
  }
  return bpe;
}

Result<void> Bpe::AddBytes(const Vocabulary& vocabulary) {
  bool any = false;
  for (int byte = 0; byte < 256; ++byte) {
    const auto id = vocabulary.Find(ByteLevelCharacter(static_cast<uint8_t>(byte)));
    const bool usable = id && vocabulary.kinds[static_cast<size_t>(*id)] != TokenKind::kUserDefined;
    byte_tokens_[byte] = usable ? *id : kNoToken;
    any |= usable;
  }
  if (!any) return DataLoss("tokenizer.ggml.tokens: no token spells a single byte");
  return {};
}

Result<void> Bpe::AddMerge(const Vocabulary& vocabulary, const std::string& merge, size_t rank) {
  // Pieces hold no space (it is spelled "Ġ"), so the first one after the first character divides.
  const size_t space = merge.find(' ', 1);
  if (space == std::string::npos || space + 1 == merge.size()) {
    return DataLoss("tokenizer.ggml.merges[{}] is \"{}\", not two pieces", rank, merge);
  }
  const std::string left = merge.substr(0, space);
  const std::string right = merge.substr(space + 1);
  const auto left_id = vocabulary.Find(left);
  const auto right_id = vocabulary.Find(right);
  const auto result = vocabulary.Find(left + right);
  if (!left_id || !right_id || !result) {
    return DataLoss("tokenizer.ggml.merges[{}]: \"{}\" is not in the vocabulary", rank,
                    !left_id ? left : (!right_id ? right : left + right));
  }
  merges_.emplace(PairOf(*left_id, *right_id), Merge{static_cast<uint32_t>(rank), *result});
  return {};
}

void Bpe::Encode(std::string_view piece, std::vector<TokenId>* out) const {
  std::vector<Symbol> symbols;
  symbols.reserve(piece.size());
  for (const char character : piece) {
    const TokenId id = byte_tokens_[static_cast<uint8_t>(character)];
    if (id == kNoToken) continue;
    const auto index = static_cast<int32_t>(symbols.size());
    symbols.push_back({id, index - 1, index + 1});
  }
  if (symbols.empty()) return;
  symbols.back().next = -1;

  std::vector<Candidate> storage;
  storage.reserve(symbols.size() * 2);
  std::priority_queue<Candidate> queue(std::less<Candidate>(), std::move(storage));
  const auto propose = [&](int32_t left) {
    if (left < 0 || symbols[left].next < 0) return;
    const TokenId left_id = symbols[left].id;
    const TokenId right_id = symbols[symbols[left].next].id;
    const auto merge = merges_.find(PairOf(left_id, right_id));
    if (merge == merges_.end()) return;
    queue.push({merge->second.rank, left, left_id, right_id, merge->second.result});
  };
  for (size_t i = 0; i + 1 < symbols.size(); ++i) propose(static_cast<int32_t>(i));

  while (!queue.empty()) {
    const Candidate best = queue.top();
    queue.pop();
    Symbol& left = symbols[best.left];
    if (left.id != best.left_id || left.next < 0) continue;
    Symbol& right = symbols[left.next];
    if (right.id != best.right_id) continue;
    left.id = best.result;
    right.id = kNoToken;  // merged away: makes its own candidates stale
    left.next = right.next;
    if (left.next >= 0) symbols[left.next].previous = best.left;
    propose(left.previous);
    propose(best.left);
  }
  for (int32_t i = 0; i >= 0; i = symbols[i].next) out->push_back(symbols[i].id);
}

}  // namespace masu
