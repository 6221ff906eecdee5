// What KvCache promises, written down naively: which bytes each page of each sequence must hold,
// which pages live, what may be found by prefix, and what faults were planted. Plain maps that are
// searched from end to end. It learns which pages were handed out and which were dropped from the
// tree by watching; everything else it computes from tokens. Used by tests/support/kv_scenario.
#pragma once

#include <cstdint>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "kv/kv_cache.h"

namespace masu {

// The first expectation that did not hold, as a line; empty so far if all did.
class FirstFailure {
 public:
  template <typename... Args>
  void Expect(bool holds, fmt::format_string<Args...> format, Args&&... args) {
    if (!holds && text_.empty()) text_ = fmt::format(format, std::forward<Args>(args)...);
  }
  bool any() const { return !text_.empty(); }
  const std::string& text() const { return text_; }

 private:
  std::string text_;
};

// One sequence: what its owner knows of it, and what the cache gave it.
struct ModelSequence {
  // One page as the cache handed it out. A fault in the block table does not change it.
  struct Page {
    PageExpectation given;
    uint64_t offset = 0;
    std::vector<std::byte> bytes = {};  // that it must hold; empty: nothing was written yet
  };
  // The sequence in swap space.
  struct Swapped {
    SwappedTable table;
    std::set<uint64_t> flipped;  // bits that differ from what the model would have written
    bool truncated = false;
  };

  std::shared_ptr<const CacheScope> scope;
  std::vector<TokenId> tokens;
  uint32_t computed = 0;  // leading tokens whose K and V were written
  bool running = false;   // holds pages
  BlockTable table = {};
  std::vector<Page> pages = {};  // by entry of the table
  size_t in_tree = 0;            // leading pages that the tree must still have
  std::optional<Swapped> swapped = {};

  bool shares() const { return table.sharing != nullptr; }
};

class KvModel {
 public:
  explicit KvModel(const KvCache& cache);

  // The bytes of page i of a sequence with these computed tokens: a function of scope, layout and
  // of all tokens up to the page's last one, as K and V are.
  std::vector<std::byte> PageBytes(const CacheScope& scope, std::span<const TokenId> computed,
                                   size_t i) const;

  // --- what must be the case ---
  struct Live {
    PageId page;
    LayoutId layout;
  };
  // Pages of running sequences, by tag.
  std::map<uint64_t, Live> LivePages() const;
  uint64_t FreePages(LayoutId layout) const;
  // Whether the entries [begin, end) of a table of this layout can be had.
  bool HasRoom(LayoutId layout, size_t begin, size_t end) const;
  uint64_t PagesLiveIn(LayoutId layout) const;  // in use or quarantined
  // Whether a check of headers passes for the table's entry i.
  bool PassesCheck(const ModelSequence& sequence, size_t i) const;
  bool TablesAreSound() const;  // no fault in a table, or in the books of a page that one holds
  bool Lost(uint64_t tag) const { return lost_.contains(tag); }
  bool HasFlippedHeader(const ModelSequence& sequence, size_t i) const {
    return flipped_headers_.contains(sequence.pages[i].given.header.tag);
  }
  bool AnyFlippedTag() const;  // of a page that is still there
  // How far PublishPrefix will come.
  size_t Publishable(const ModelSequence& sequence) const;
  // Tokens that MatchPrefix finds at least and at most: pages in use are not dropped, idle ones may
  // be.
  std::pair<uint32_t, uint32_t> MatchBounds(const ModelSequence& sequence,
                                            std::span<const TokenId> tokens) const;
  // The tag of the page that was last published for these tokens.
  std::optional<uint64_t> CachedTag(const ModelSequence& sequence,
                                    std::span<const TokenId> tokens) const;
  bool CanSwapOut(const ModelSequence& sequence, const SwapSpace& space) const;
  KvCache::SwapInResult ExpectedSwapIn(const ModelSequence& sequence) const;
  std::set<PageId> FlippedSealedPages() const;  // what a round of Scrub finds
  bool StaysQuarantined(PageId page) const;
  uint64_t SwappedBytes() const;
  // Everything that can be seen of the cache from outside, against the above.
  void Verify(Ops& ops, KvCache& cache, const SwapSpace& space, FirstFailure& failure) const;

  // --- what happened ---
  std::list<ModelSequence>& sequences() { return sequences_; }
  std::vector<ModelSequence*> Select(const std::function<bool(const ModelSequence&)>& wanted);
  void NotePages(ModelSequence& sequence);  // entries that the cache added to the table
  void NoteWritten(ModelSequence& sequence, size_t i);
  void NotePublished(ModelSequence& sequence, size_t before);
  void NoteReleased(ModelSequence& sequence);
  void NoteQuarantined(PageId page, LayoutId layout, uint64_t tag);
  void NoteQuarantineEnded();
  void NoteDropped(uint64_t tag);  // a page left the tree, with what hangs below it
  void NoteLost(uint64_t tag) { lost_.insert(tag); }
  void NoteFlippedHeader(PageId page, bool tag);
  void NoteFlippedContents(PageId page, uint64_t bit);
  // The bits that differ in page i of a sequence.
  std::set<uint64_t> FlippedBits(const ModelSequence& sequence, size_t i) const;
  std::vector<PageId> CachedPages() const;  // that are still there

 private:
  struct PrefixKey {
    CacheScope scope;
    std::vector<TokenId> tokens;
    bool Below(const PrefixKey& other) const;  // the same page, or one that follows it
  };
  struct Cached {
    PrefixKey key;
    uint64_t tag = 0;
    PageId page;
  };
  struct FlippedHeader {
    PageId page;
    bool tag = false;  // the bit is one of the tag's
  };
  struct Flips {
    PageId page;
    std::set<uint64_t> bits;
  };

  const Cached* FindCached(const CacheScope& scope, std::span<const TokenId> tokens) const;
  bool IsThere(PageId page, uint64_t tag) const { return cache_.pool().header(page).tag == tag; }
  bool NamesItsPage(const ModelSequence& sequence, size_t i) const;
  uint32_t BlockSize(const ModelSequence& sequence) const;
  void VerifySequence(Ops& ops, KvCache& cache, const ModelSequence& sequence,
                      FirstFailure& failure) const;

  const KvCache& cache_;
  SlabGeometry geometry_;
  std::list<ModelSequence> sequences_;
  std::vector<Cached> cached_;  // published and not dropped on purpose
  std::map<PageId, LayoutId> quarantined_;
  std::set<uint64_t> lost_;  // tags of pages that a fault took from their holder
  std::map<uint64_t, FlippedHeader> flipped_headers_;  // by tag
  std::map<uint64_t, Flips> flipped_contents_;         // by tag
};

}  // namespace masu
