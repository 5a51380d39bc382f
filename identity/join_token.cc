// SPDX-License-Identifier: Apache-2.0
// See join_token.h.
#include "identity/join_token.h"

#include "base/text.h"
#include "identity/secrets.h"

namespace tendril::identity {
namespace {

using base::Code;
using base::Status;

bool is_hex(const std::string& text, size_t bytes) {
  return text.size() == 2 * bytes &&
         text.find_first_not_of("0123456789abcdef") == std::string::npos;
}

}  // namespace

base::Result<JoinToken> make_join_token(const std::string& pin) {
  JoinToken token;
  base::Result<std::string> id = random_hex(kTokenIdBytes), secret = random_hex(kTokenSecretBytes);
  if (!id.ok()) return id.status();
  if (!secret.ok()) return secret.status();
  return JoinToken{id.take(), secret.take(), pin};
}

base::Result<JoinToken> read_join_token(const std::string& text) {
  JoinToken token;
  std::string raw;
  const size_t first = text.find('.');
  const size_t second = first == std::string::npos ? first : text.find('.', first + 1);
  if (second != std::string::npos) {
    token.id = text.substr(0, first);
    token.secret = text.substr(first + 1, second - first - 1);
    token.pin = text.substr(second + 1);
  }
  if (!is_hex(token.id, kTokenIdBytes) || !is_hex(token.secret, kTokenSecretBytes) ||
      !read_base64url(token.pin, &raw) || raw.size() != kDigestBytes) {
    return Status(Code::kInvalid,
                  "that is no join token: it has the form id.secret.pin, and `tendril identity "
                  "invite` prints it; copy the whole word");
  }
  return token;
}

std::string join_token_digest(const std::string& id, const std::string& secret) {
  const std::string raw = digest("tendril join token\n" + id + "\n" + secret);
  return base::hex(raw.data(), raw.size());
}

}  // namespace tendril::identity
