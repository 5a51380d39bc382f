// SPDX-License-Identifier: Apache-2.0
// What an administrator allows: limits for everybody, for a role and for one name; which users of
// this host may come; when data is sealed. policy_file.h reads it. Constant once it is read.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "access/network.h"
#include "access/principal.h"

namespace tendril::access {

// A limit that is not set does not limit.
struct Limits {
  std::optional<uint64_t> share_millionths;  // of all slices of all leases
  std::optional<uint32_t> leases, sessions;
  std::optional<int32_t> priority;  // the highest
  std::optional<bool> capped;       // true: never more than the share
  std::optional<bool> rdma;         // false: no session's data by the server's RDMA cards
  std::optional<uint64_t> longest_s, unattached_s, idle_s;
};

// The same as a file says it: a key that is not there leaves what a wider section says, and a key
// that says "none" takes that limit away.
struct LimitRules {
  template <typename Value>
  struct Rule {
    bool given = false;
    std::optional<Value> value;
  };
  Rule<uint64_t> share_millionths;
  Rule<uint32_t> leases, sessions;
  Rule<int32_t> priority;
  Rule<bool> capped, rdma;
  Rule<uint64_t> longest_s, unattached_s, idle_s;
};

enum class Encrypt : uint8_t { kUntrusted = 0, kAlways = 1, kNever = 2 };
const char* encrypt_name(Encrypt encrypt);

// How figures are shown to monitors.
enum class Metrics : uint8_t {
  kByAddress = 0,  // inside TLS for other hosts, if this server has identities
  kTls = 1,
  kClear = 2,
};

enum class UnixUsers : uint8_t {
  kByMode = 0,  // any in open mode, otherwise administrators and operators only
  kAny = 1,
  kListed = 2,
};

struct Policy {
  // Whether data channels are sealed. `encrypt_given`: the file says so.
  Encrypt encrypt = Encrypt::kUntrusted;
  bool encrypt_given = false;
  std::vector<Network> trusted_networks;

  UnixUsers unix_users = UnixUsers::kByMode;
  std::vector<std::string> unix_listed, unix_admins, unix_operators;  // names and numbers

  LimitRules everybody;
  std::map<Role, LimitRules> roles;
  std::map<std::string, LimitRules> users;  // by name, however it was proven

  Metrics metrics = Metrics::kByAddress;

  // True: what cannot be written to the audit log is refused.
  bool audit_required = false;

  // How long a connection outlives the certificate that opened it, without a newer one.
  uint64_t certificate_grace_s = 3600;

  // The narrowest section that has a key counts: the name, the role, everybody. Without any, a
  // user with a certificate has priority 0 at most.
  Limits limits_of(const Principal& who) const;
};

}  // namespace tendril::access
