// SPDX-License-Identifier: Apache-2.0
// Signed tokens of identity providers (JWT) and the providers' key sets (JWKS): RS256 and ES256,
// and nothing else. Both come from outside, so reading is bounded and strict. Pure; time is passed
// in. Any thread.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/result.h"

struct evp_pkey_st;

namespace tendril::identity {

inline constexpr size_t kSignedTokenBytesMax = 16'384, kKeySetBytesMax = 256u << 10, kKeysMax = 64;
// How far the clocks of provider and server may differ.
inline constexpr int64_t kProviderSkewS = 60;

class KeySet {
 public:
  // Keys of other kinds and uses are left out. kInvalid: it is no key set, or has no usable key.
  static base::Result<KeySet> read(const std::string& text);
  size_t size() const { return keys_.size(); }

 private:
  friend base::Status check_signature(const std::string& token, const KeySet& keys);
  struct Entry {
    std::string id, algorithm;
    std::shared_ptr<evp_pkey_st> key;
  };
  std::vector<Entry> keys_;
};

struct Expected {
  std::string issuer, audience;
  std::string name_claim = "sub";
  std::string groups_claim;  // empty: groups are not looked at
};

struct Claims {
  std::string name;  // the value of name_claim
  std::vector<std::string> groups;
  int64_t ends_s = 0;
};

// Whether one of the keys signed the token. It says nothing of what the token claims.
base::Status check_signature(const std::string& token, const KeySet& keys);
// Judges signature, issuer, audience and times. Each refusal has its own text, which never shows
// the token.
base::Result<Claims> read_signed_token(const std::string& token, const KeySet& keys,
                                       const Expected& expected, int64_t now_s);
// The issuer that a token claims, to find its provider. Nothing is proven by it.
base::Result<std::string> claimed_issuer(const std::string& token);

}  // namespace tendril::identity
