// SPDX-License-Identifier: Apache-2.0
// See store.h.
#include "identity/store.h"

#include "config/text.h"
#include "identity/files.h"

namespace tendril::identity {
namespace {

using base::Result;
using base::Status;

constexpr char kPools[] = "/pools";

Status in_file(const std::string& path, const Status& why) {
  return Status(why.code(), path + ": " + why.message());
}

Result<Certificate> load_certificate(const std::string& path) {
  Result<std::string> text = read_file(path, Secrecy::kPublic);
  if (!text.ok()) return text.status();
  Result<Certificate> certificate = read_certificate(*text);
  if (!certificate.ok()) return in_file(path, certificate.status());
  return certificate;
}

Result<OwnIdentity> load(const std::string& folder) {
  OwnIdentity own;
  Result<Certificate> certificate = load_certificate(folder + "/certificate.pem");
  if (!certificate.ok()) return certificate.status();
  Result<Certificate> authority = load_certificate(folder + "/authority.pem");
  if (!authority.ok()) return authority.status();
  Result<std::string> text = read_file(folder + "/key.pem", Secrecy::kSecret);
  if (!text.ok()) return text.status();
  Result<Key> key = read_key(*text);
  if (!key.ok()) return in_file(folder + "/key.pem", key.status());
  Result<Facts> facts = read_facts(*certificate);
  if (!facts.ok()) return in_file(folder + "/certificate.pem", facts.status());
  if (!is_key_of(*key, *certificate)) {
    return Status(base::Code::kInvalid, "'" + folder +
                                            "': key.pem is not the key of certificate.pem; join "
                                            "or log in again");
  }
  own.certificate = certificate.take();
  own.authority = authority.take();
  own.key = key.take();
  own.facts = facts.take();
  Result<std::string> issuer = read_file(folder + "/issuer", Secrecy::kPublic);
  if (issuer.ok()) own.issuer = config::trimmed(*issuer);
  return own;
}

}  // namespace

std::string identity_folder(const std::string& asked) {
  if (!asked.empty()) return asked;
  const std::string named = config::variable("TENDRIL_IDENTITY");
  if (!named.empty()) return named;
  std::string above = config::variable("XDG_CONFIG_HOME");
  const std::string home = config::variable("HOME");
  if (above.empty() && !home.empty() && exists(home)) above = home + "/.config";
  return above.empty() ? "/var/lib/tendril/identity" : above + "/tendril/identity";
}

std::string authority_folder(const std::string& folder) { return folder + "/authority"; }

Result<std::vector<OwnIdentity>> load_identities(const std::string& folder) {
  std::vector<OwnIdentity> all;
  const std::string pools = folder + kPools;
  for (const std::string& pool : names_in_folder(pools)) {
    for (const std::string& role : names_in_folder(pools + "/" + pool)) {
      const std::string place = pools + "/" + pool + "/" + role;
      if (!exists(place + "/certificate.pem")) continue;
      Result<OwnIdentity> own = load(place);
      if (!own.ok()) return own.status();
      all.push_back(own.take());
    }
  }
  return all;
}

Status save_identity(const std::string& folder, const OwnIdentity& identity) {
  const std::string place =
      folder + kPools + "/" + identity.facts.name.pool + "/" + role_text(identity.facts.name.role);
  Result<std::string> key = key_text(identity.key);
  if (!key.ok()) return key.status();
  Status done = make_folder(place);
  if (!done.ok()) return done;
  Result<base::Fd> lock = lock_folder(place);
  if (!lock.ok()) return lock.status();
  done = write_file(place + "/key.pem", *key, Secrecy::kSecret);
  if (done.ok()) {
    done = write_file(place + "/authority.pem", certificate_text(identity.authority),
                      Secrecy::kPublic);
  }
  if (done.ok()) done = write_file(place + "/issuer", identity.issuer + "\n", Secrecy::kPublic);
  if (done.ok()) {
    done = write_file(place + "/certificate.pem", certificate_text(identity.certificate),
                      Secrecy::kPublic);
  }
  return done;
}

}  // namespace tendril::identity
