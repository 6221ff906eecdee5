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

bool ApiKeys::Accepts(std::string_view authorization) const {
  if (!needed()) return true;
  constexpr std::string_view kScheme = "bearer ";
  if (authorization.size() < kScheme.size()) return false;
  const bool bearer = std::equal(kScheme.begin(), kScheme.end(), authorization.begin(),
                                 [](char a, unsigned char b) { return a == std::tolower(b); });
  if (!bearer) return false;
  const Digest given = DigestOf(authorization.substr(kScheme.size()));
  int matches = 0;
  for (const Digest& digest : digests_) {
    matches += CRYPTO_memcmp(digest.data(), given.data(), digest.size()) == 0;
  }
  return matches > 0;
}

}  // namespace masu
