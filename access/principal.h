// SPDX-License-Identifier: Apache-2.0
// Who a peer is, as far as it was proven, and in which role. What a client says of itself is never
// part of it. Pure: the daemon collects the evidence. Any thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "base/result.h"

namespace tendril::access {

struct Policy;

enum class Role : uint8_t {
  kNone = 0,  // nobody: may only use what it has a secret of (a lease, a session)
  kUser = 1,
  kOperator = 2,  // ends and changes anybody's leases
  kAdmin = 3,     // also gives out and takes back identities
  kServer = 4,
  kMetrics = 5,  // sees everything, changes nothing
};
const char* role_name(Role role);
std::optional<Role> role_of(const std::string& name);

enum class Proof : uint8_t {
  kNone = 0,         // a peer of this host, in open mode: it proved nothing
  kToken = 1,        // it knows the shared secret, as others do
  kUnixUser = 2,     // the kernel named its user
  kCertificate = 3,  // a certificate, or a signed token that was exchanged for one
  kLeaseSecret = 4,  // it knows the secret of a lease
  kPool = 5,         // the scheduler of this server's pool names it
};
const char* proof_name(Proof proof);

// How a server decides who may come (docs/decisions/0019).
enum class Mode : uint8_t { kOpen = 0, kSecret = 1, kIdentity = 2 };
const char* mode_name(Mode mode);

struct Principal {
  std::string name;  // for people: "alice", "bearer", "local"
  // What owns things. Two principals with one name may be different: "uid 1000" and
  // "spiffe://pool/user/alice".
  std::string id;
  Role role = Role::kNone;
  Proof proof = Proof::kNone;
  std::string from;  // the address, or what the kernel says of a unix peer
};

// "spiffe://POOL/ROLE/NAME". kInvalid if it has another form. POOL and NAME have 1 to 64 letters,
// digits, '.', '_', '-', '@' or '+'.
struct IdentityName {
  std::string pool, name;
  Role role = Role::kNone;
};
base::Result<IdentityName> parse_identity(const std::string& text);

// What the daemon knows of a peer.
struct Evidence {
  std::string from;
  bool local = false;             // its address is on this host
  std::optional<uint32_t> user;   // a unix peer's, by a socket in the file system
  std::string user_name;          // that user's name, if it has one
  bool administrators = false;    // it came by the administrators' socket
  uint32_t daemon_user = 0;       // who this daemon runs as
  std::string certificate;        // a proven identity: "spiffe://POOL/ROLE/NAME"
  bool knows_token = false;       // the right one
  uint64_t token_generation = 0;  // counts the tokens that this server has had
};

// Nobody (Role::kNone) if nothing was proven that this mode asks for.
Principal recognize(const Evidence& evidence, Mode mode, const Policy& policy);

}  // namespace tendril::access
