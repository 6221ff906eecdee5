// API keys. Immutable, so safe from any thread.
#pragma once

#include <array>
#include <string>
#include <string_view>
#include <vector>

namespace masu {

class ApiKeys {
 public:
  explicit ApiKeys(const std::vector<std::string>& keys);
  bool needed() const { return !digests_.empty(); }
  // `authorization` is the header's value, "Bearer KEY". Takes the same time for every wrong key:
  // digests are compared, all of them, to the last byte.
  bool Accepts(std::string_view authorization) const;

 private:
  using Digest = std::array<unsigned char, 32>;
  std::vector<Digest> digests_;
};

}  // namespace masu
