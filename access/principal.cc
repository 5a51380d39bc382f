// SPDX-License-Identifier: Apache-2.0
// See principal.h.
#include "access/principal.h"

#include <algorithm>

#include "access/policy.h"

namespace tendril::access {
namespace {

using base::Code;
using base::Status;

constexpr char kScheme[] = "spiffe://";
constexpr size_t kPartMax = 64;
constexpr const char* kRoles[] = {"nobody", "user", "operator", "admin", "server", "metrics"};

bool is_part(const std::string& text) {
  if (text.empty() || text.size() > kPartMax) return false;
  return std::all_of(text.begin(), text.end(), [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '.' ||
           c == '_' || c == '-' || c == '@' || c == '+';
  });
}

bool names(const std::vector<std::string>& list, const Evidence& evidence) {
  const std::string number = std::to_string(*evidence.user);
  return std::any_of(list.begin(), list.end(), [&](const std::string& one) {
    return one == number || (!evidence.user_name.empty() && one == evidence.user_name);
  });
}

// The role that this host's user has by itself.
Role role_of_user(const Evidence& evidence, Mode mode, const Policy& policy) {
  const bool owner = *evidence.user == evidence.daemon_user || *evidence.user == 0;
  if (evidence.administrators && owner) return Role::kAdmin;
  if (names(policy.unix_admins, evidence)) return Role::kAdmin;
  if (names(policy.unix_operators, evidence)) return Role::kOperator;
  switch (policy.unix_users) {
    case UnixUsers::kByMode:
      return mode == Mode::kOpen ? Role::kUser : Role::kNone;
    case UnixUsers::kAny:
      return Role::kUser;
    case UnixUsers::kListed:
      return names(policy.unix_listed, evidence) ? Role::kUser : Role::kNone;
  }
  return Role::kNone;
}

}  // namespace

const char* role_name(Role role) {
  const auto index = static_cast<size_t>(role);
  return index < std::size(kRoles) ? kRoles[index] : kRoles[0];
}

std::optional<Role> role_of(const std::string& name) {
  for (size_t index = 1; index < std::size(kRoles); ++index) {
    if (name == kRoles[index]) return static_cast<Role>(index);
  }
  return std::nullopt;
}

const char* proof_name(Proof proof) {
  switch (proof) {
    case Proof::kNone:
      return "none";
    case Proof::kToken:
      return "token";
    case Proof::kUnixUser:
      return "uid";
    case Proof::kCertificate:
      return "certificate";
    case Proof::kLeaseSecret:
      return "lease secret";
    case Proof::kPool:
      return "pool";
  }
  return "none";
}

const char* mode_name(Mode mode) {
  return mode == Mode::kOpen ? "open" : mode == Mode::kSecret ? "secret" : "identity";
}

base::Result<IdentityName> parse_identity(const std::string& text) {
  const Status bad(Code::kInvalid,
                   "this is no name of an identity; it has the form spiffe://POOL/ROLE/NAME");
  if (text.compare(0, sizeof kScheme - 1, kScheme) != 0) return bad;
  const size_t pool = sizeof kScheme - 1;
  const size_t role = text.find('/', pool);
  if (role == std::string::npos) return bad;
  const size_t name = text.find('/', role + 1);
  if (name == std::string::npos) return bad;
  IdentityName identity;
  identity.pool = text.substr(pool, role - pool);
  identity.name = text.substr(name + 1);
  const std::optional<Role> known = role_of(text.substr(role + 1, name - role - 1));
  if (!known || !is_part(identity.pool) || !is_part(identity.name)) return bad;
  identity.role = *known;
  return identity;
}

Principal recognize(const Evidence& evidence, Mode mode, const Policy& policy) {
  Principal who;
  who.from = evidence.from;
  if (!evidence.certificate.empty()) {
    auto identity = parse_identity(evidence.certificate);
    if (identity.ok()) {
      who.name = identity->name;
      who.id = evidence.certificate;
      who.role = identity->role;
      who.proof = Proof::kCertificate;
      return who;
    }
  }
  Role by_user = Role::kNone;
  if (evidence.user) by_user = role_of_user(evidence, mode, policy);
  if (by_user == Role::kNone && mode == Mode::kSecret && evidence.knows_token) {
    who.name = "bearer";
    who.id = "token " + std::to_string(evidence.token_generation);
    who.role = Role::kUser;
    who.proof = Proof::kToken;
    return who;
  }
  if (by_user != Role::kNone) {
    who.id = "uid " + std::to_string(*evidence.user);
    who.name = evidence.user_name.empty() ? who.id : evidence.user_name;
    who.role = by_user;
    who.proof = Proof::kUnixUser;
    return who;
  }
  const bool refused_user = evidence.user.has_value();
  if (mode == Mode::kOpen && evidence.local && !refused_user) {
    who.name = who.id = "local";
    who.role = Role::kUser;
    return who;
  }
  who.name = who.id = "nobody";
  return who;
}

}  // namespace tendril::access
