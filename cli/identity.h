// SPDX-License-Identifier: Apache-2.0
// What `tendril identity` does, and what it tells the other commands: how to prove who this user is
// to a server.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "base/result.h"
#include "session/control/attach.h"

namespace tendril::cli {

struct IdentityOptions {
  std::string folder;  // empty: identity/store.h
  bool json = false;
  int timeout_ms = 5000;
  std::string pool, name, role = "user", valid = "1h", lifetime;
  std::string server, token, token_file, pin, whom;
  std::string provider, client_id = "tendril", scope = "openid", ca_file;
};

int identity_init(const IdentityOptions& options);
int identity_invite(const IdentityOptions& options);
int identity_join(const IdentityOptions& options);
int identity_login(const IdentityOptions& options);
int identity_whoami(const IdentityOptions& options);
int identity_issued(const IdentityOptions& options);
int identity_revoke(const IdentityOptions& options);
int identity_renew(const IdentityOptions& options);

// How to prove who this user is: the token, or else the identities in this user's folder. Null:
// there is nothing to prove with. Identities that should be renewed are renewed now; if that fails
// and an end is near, a line on stderr says so.
base::Result<std::shared_ptr<const session::Securer>> securer(const std::string& token);

// The certificates of this user. Asks nobody.
struct Certificates {
  std::string serials;        // of all; empty: there are none
  int64_t renewal_s = 0;      // when the first of them should be renewed, since 1970
  int64_t retry_after_s = 0;  // if that fails
};
Certificates own_certificates(int64_t now_s);

// "90m", "12h", "30d", in seconds.
base::Result<int64_t> read_duration(const std::string& text, const std::string& option);

}  // namespace tendril::cli
