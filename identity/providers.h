// SPDX-License-Identifier: Apache-2.0
// The identity providers (OIDC) whose signed tokens a pool's authority accepts, from a TOML file:
//
//   [[provider]]
//   issuer = "https://login.example.org"    # the token's iss
//   audience = "tendril"                    # the token's aud
//   keys = "https://login.example.org/keys" # or the path of a file with the key set
//   name_claim = "preferred_username"       # default: sub
//   role = "user"                           # default: user
//   groups_claim = "groups"                 # with roles below
//   lifetime_hours = 8                      # of the certificates; default 8, at most 72
//   ca_file = "/etc/ssl/private-ca.pem"     # of the provider's server; default: the system's
//   [provider.roles]
//   gpu-admins = "admin"                    # group = role
//
// Key sets are read by `refresh`, which blocks, and are used by any thread.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "base/result.h"
#include "identity/json_web_token.h"
#include "identity/name.h"

namespace tendril::identity {

struct Provider {
  Expected expected;
  std::string keys, ca_file;
  Role role = Role::kUser;
  std::map<std::string, Role> roles;  // by group
  int64_t lifetime_s = 8 * 3600;
};

// `path` is for messages, which name line and column.
base::Result<std::vector<Provider>> parse_providers(const std::string& text,
                                                    const std::string& path);
// The role of somebody in these groups: the widest that one of them gives.
Role role_in_groups(const Provider& provider, const std::vector<std::string>& groups);

class Providers {
 public:
  static base::Result<std::shared_ptr<Providers>> read(const std::string& path);

  struct Admitted {
    Role role = Role::kUser;
    std::string name;
    int64_t lifetime_s = 0;
  };
  base::Result<Admitted> admit(const std::string& token, int64_t now_s) const;
  // Reads key sets that are older than an hour, or than ten seconds if a token needed another key.
  // A set that cannot be had leaves the old one in use. Returns what went wrong.
  base::Status refresh(uint64_t now_ns);

 private:
  struct Keys {
    KeySet set;
    bool read = false;
    uint64_t tried_ns = 0;
  };
  std::vector<Provider> providers_;
  mutable std::mutex mutex_;
  std::vector<Keys> keys_;            // guarded by mutex_
  mutable bool wants_fresh_ = false;  // guarded by mutex_
};

}  // namespace tendril::identity
