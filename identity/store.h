// SPDX-License-Identifier: Apache-2.0
// The identities of this user or server, in a folder that only they can read:
//
//   authority/            of a pool that is run from here (authority.h)
//   pools/POOL/ROLE/      certificate.pem, key.pem, authority.pem, issuer (host:port)
//
// Any thread.
#pragma once

#include <string>
#include <vector>

#include "base/result.h"
#include "identity/certificate.h"

namespace tendril::identity {

struct OwnIdentity {
  Certificate certificate, authority;
  Key key;
  Facts facts;
  std::string issuer;  // where it is renewed, "host:port"; empty: by the authority in this folder
};

// `asked`, or TENDRIL_IDENTITY, or tendril/identity in XDG_CONFIG_HOME or ~/.config; without a
// home it is /var/lib/tendril/identity.
std::string identity_folder(const std::string& asked);
std::string authority_folder(const std::string& folder);

// A file in that folder: where users reach the server of the pool's authority.
inline constexpr char kAddressFile[] = "/address";

// All that are there, sorted by pool and role. An empty list: none. Damaged ones are an error that
// names the file.
base::Result<std::vector<OwnIdentity>> load_identities(const std::string& folder);
// Replaces the one of the same pool and role.
base::Status save_identity(const std::string& folder, const OwnIdentity& identity);

}  // namespace tendril::identity
