#include "server/auth.h"

#include <openssl/crypto.h>
#include <openssl/sha.h>

#include <algorithm>
#include <cctype>

namespace masu {
namespace {

std::array<unsigned char, 32> DigestOf(std::string_view text) {
  std::array<unsigned char, 32> digest;
  SHA256(reinterpret_cast<const unsigned char*>(text.data()), text.size(), digest.data());
  return digest;
}

}  // namespace

ApiKeys::ApiKeys(const std::vector<std::string>& keys) {
  for (const std::string& key : keys) {
    if (!key.empty()) digests_.push_back(DigestOf(key));
  }
}

std::optional<std::string> ApiKeys::OwnerOf(std::string_view authorization) const {
  constexpr std::string_view kScheme = "bearer ";
  const bool bearer = authorization.size() >= kScheme.size() &&
                      std::equal(kScheme.begin(), kScheme.end(), authorization.begin(),
                                 [](char a, unsigned char b) { return a == std::tolower(b); });
  if (!bearer) return needed() ? std::nullopt : std::optional(std::string());
  const Digest given = DigestOf(authorization.substr(kScheme.size()));
  int matches = 0;
  for (const Digest& digest : digests_) {
    matches += CRYPTO_memcmp(digest.data(), given.data(), digest.size()) == 0;
  }
  if (needed() && matches == 0) return std::nullopt;
  return std::string(given.begin(), given.end());
}

}  // namespace masu
