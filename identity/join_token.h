// SPDX-License-Identifier: Apache-2.0
// A one-time join token as people pass it on: "id.secret.pin". The authority knows the id and the
// digest of the secret. The pin proves the authority to who joins, before the secret is sent. Any
// thread.
#pragma once

#include <string>

#include "base/result.h"

namespace tendril::identity {

struct JoinToken {
  std::string id, secret, pin;

  std::string text() const { return id + "." + secret + "." + pin; }
};

inline constexpr size_t kTokenIdBytes = 5, kTokenSecretBytes = 16;

// The pin is that of the authority's certificate (certificate.h).
base::Result<JoinToken> make_join_token(const std::string& pin);
// Strict and bounded. The error never shows the token.
base::Result<JoinToken> read_join_token(const std::string& text);
// What the authority keeps of the secret.
std::string join_token_digest(const std::string& id, const std::string& secret);

}  // namespace tendril::identity
