// API keys. Immutable, so safe from any thread.
#pragma once

#include <array>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace masu {

class ApiKeys {
 public:
  explicit ApiKeys(const std::vector<std::string>& keys);
  bool needed() const { return !digests_.empty(); }
  // `authorization` is the header's value, "Bearer KEY". Whose request it is: the digest of its
  // key, empty if it has none; nullopt if it is refused. A server that needs no key refuses
  // nobody and still tells keys apart. Takes the same time for every wrong key: digests are
  // compared, all of them, to the last byte.
  std::optional<std::string> OwnerOf(std::string_view authorization) const;

 private:
  using Digest = std::array<unsigned char, 32>;
  std::vector<Digest> digests_;
};

}  // namespace masu
