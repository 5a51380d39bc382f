// SPDX-License-Identifier: Apache-2.0
// See identity.h. What concerns an authority works in its folder, as the user who owns it, or over
// a control connection, as an administrator of the pool.
#include "cli/identity.h"

#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <tuple>

#include "base/text.h"
#include "cli/commands.h"
#include "cli/complain.h"
#include "cli/servers.h"
#include "config/text.h"
#include "identity/authority.h"
#include "identity/enrolment.h"
#include "identity/files.h"
#include "identity/service.h"
#include "identity/store.h"
#include "identity/tls.h"
#include "identity/web/device_login.h"

namespace tendril::cli {

using base::Code;
using base::Result;
using base::Status;

namespace {

constexpr int kRenewMs = 2000;

std::string place(const IdentityOptions& options) {
  return identity::identity_folder(options.folder);
}

Result<std::unique_ptr<identity::Authority>> authority(const IdentityOptions& options) {
  return identity::Authority::open(identity::authority_folder(place(options)));
}

std::string this_user() {
  const passwd* const entry = getpwuid(geteuid());
  return identity::as_name(entry != nullptr ? entry->pw_name : std::to_string(geteuid()));
}

// Where users reach this pool's authority: what its server wrote down, or this host.
std::string address(const std::string& folder) {
  Result<std::string> text =
      identity::read_file(folder + identity::kAddressFile, identity::Secrecy::kPublic);
  if (text.ok() && !config::trimmed(*text).empty()) return config::trimmed(*text);
  char name[256] = {};
  gethostname(name, sizeof name - 1);
  return name;
}

Result<std::string> secret_text(const std::string& given, const std::string& file,
                                const std::string& what) {
  if (!given.empty()) return given;
  if (file.empty()) return Status(Code::kInvalid, what);
  Result<std::string> text = config::read_file(file == "-" ? "/dev/stdin" : file);
  if (!text.ok()) return text.status();
  return config::trimmed(*text);
}

// Asks the pool's authority at its server, as an administrator of the pool.
template <typename Reply, typename Request>
Result<Reply> ask_authority(const IdentityOptions& options, wire::Request kind,
                            const Request& request) {
  if (!options.folder.empty()) setenv("TENDRIL_IDENTITY", options.folder.c_str(), 1);
  CommonOptions common;
  common.servers = {options.server};
  common.timeout_ms = options.timeout_ms;
  auto asked = reach(common);
  if (!asked.ok()) return asked.status();
  auto control = session::Control::connect(asked->servers.endpoints.at(0), asked->connect);
  if (!control.ok()) return control.status();
  auto answer = (*control)->other(uint16_t(kind), wire::encode(request), options.timeout_ms);
  if (!answer.ok()) return answer.status();
  Reply reply;
  if (!wire::decode(answer->data(), answer->size(), &reply))
    return Status(Code::kMismatch, options.server + " sent a malformed answer");
  return reply;
}

// A token, and where it is used.
Result<std::pair<std::string, std::string>> invite_somebody(
    const IdentityOptions& options, const identity::Invitation& invitation) {
  if (options.server.empty()) {
    Result<std::unique_ptr<identity::Authority>> opened = authority(options);
    if (!opened.ok()) return opened.status();
    Result<identity::JoinToken> token = (*opened)->invite(invitation, identity::wall_clock_s());
    if (!token.ok()) return token.status();
    return std::make_pair(token->text(), address(place(options)));
  }
  const wire::InviteRequest request{options.role, invitation.name,
                                    static_cast<uint64_t>(invitation.valid_s),
                                    static_cast<uint64_t>(invitation.lifetime_s)};
  auto reply = ask_authority<wire::InviteReply>(options, wire::Request::kInvite, request);
  if (!reply.ok()) return reply.status();
  // This machine reached it, so who joins may do so in the same way.
  const bool network = options.server.rfind("unix:", 0) != 0;
  return std::make_pair(reply->token, network ? options.server : reply->address);
}

// In the authority's folder, or page by page from its server.
Result<std::vector<wire::IssuedCertificate>> issued_certificates(const IdentityOptions& options) {
  std::vector<wire::IssuedCertificate> all;
  if (options.server.empty()) {
    Result<std::unique_ptr<identity::Authority>> opened = authority(options);
    if (!opened.ok()) return opened.status();
    auto records = (*opened)->issued(identity::wall_clock_s());
    if (!records.ok()) return records.status();
    for (const identity::Authority::IssuedRecord& record : *records) {
      all.push_back({record.serial, record.name.uri(), uint64_t(record.issued_s),
                     uint64_t(record.ends_s), record.by, record.denied});
    }
    std::sort(all.begin(), all.end(), [](const auto& one, const auto& other) {
      return std::tie(one.issued_s, one.serial) < std::tie(other.issued_s, other.serial);
    });
    return all;
  }
  wire::IssuedRequest request;
  for (;;) {
    auto page = ask_authority<wire::IssuedReply>(options, wire::Request::kIssued, request);
    if (!page.ok()) return page.status();
    all.insert(all.end(), page->certificates.begin(), page->certificates.end());
    if (!page->more || page->certificates.empty()) return all;
    const wire::IssuedCertificate& last = page->certificates.back();
    if (std::make_pair(last.issued_s, last.serial) <=
        std::make_pair(request.after_issued_s, request.after_serial))
      return Status(Code::kMismatch, options.server + " sent the same part of the list again");
    request = {last.issued_s, last.serial};
  }
}

// A person logs in with a browser, here or elsewhere.
Result<std::string> token_of_person(const IdentityOptions& options) {
  identity::DeviceLogin login;
  login.provider = options.provider;
  login.client_id = options.client_id;
  login.scope = options.scope;
  login.ca_file = options.ca_file;
  login.show = [](const identity::DeviceCode& code) {
    fprintf(stderr, "tendril: open %s in a browser and type the code %s\n", code.address.c_str(),
            code.user_code.c_str());
    if (!code.address_with_code.empty())
      fprintf(stderr, "tendril: or open %s\n", code.address_with_code.c_str());
  };
  return identity::log_in_by_device(login);
}

int keep(const std::string& folder, const identity::OwnIdentity& own, const char* done) {
  const Status kept = identity::save_identity(folder, own);
  if (!kept.ok()) return complain(kFailed, kept);
  printf("%s as %s of the pool '%s', until %s\n", done, own.facts.name.text().c_str(),
         own.facts.name.pool.c_str(), identity::time_text(own.facts.ends_s).c_str());
  return 0;
}

int say_revoked(uint64_t count) {
  printf("revoked %llu; every server of the pool knows within ten seconds\n",
         static_cast<unsigned long long>(count));
  return 0;
}

void tell_of_late(const identity::OwnIdentity& own, const Status& why, int64_t now_s) {
  const identity::Facts& facts = own.facts;
  if (facts.ends_s - now_s > (facts.ends_s - facts.begins_s) / 6) return;
  fprintf(stderr, "tendril: the certificate of %s ends at %s and was not renewed: %s\n",
          facts.name.text().c_str(), identity::time_text(facts.ends_s).c_str(),
          why.message().c_str());
}

// At its authority, which may be in the same folder.
Result<identity::OwnIdentity> renewed(const std::string& folder, const identity::OwnIdentity& own,
                                      int timeout_ms) {
  return own.issuer.empty() ? identity::renew_here(folder, own, identity::wall_clock_s())
                            : identity::renew(own, timeout_ms);
}

// Renews what is due.
void renew_due(const std::string& folder, std::vector<identity::OwnIdentity>* all) {
  const int64_t now_s = identity::wall_clock_s();
  for (identity::OwnIdentity& own : *all) {
    if (now_s < own.facts.renewal_s() || now_s >= own.facts.ends_s) continue;
    if (own.facts.name.role == identity::Role::kServer) continue;  // its server does it
    Result<identity::OwnIdentity> fresh = renewed(folder, own, kRenewMs);
    Status done = fresh.status();
    if (fresh.ok()) done = identity::save_identity(folder, *fresh);
    if (done.ok()) {
      own = *fresh;
    } else {
      tell_of_late(own, done, now_s);
    }
  }
}

}  // namespace

Result<int64_t> read_duration(const std::string& text, const std::string& option) {
  const Status bad(Code::kInvalid,
                   option + " " + text + ": write a number with s, m, h or d, as in 90m or 30d");
  uint64_t number = 0;
  const int64_t units[] = {1, 60, 3600, 86'400};
  const size_t unit = text.empty() ? std::string::npos : std::string("smhd").find(text.back());
  if (unit == std::string::npos || !config::read_number(text.substr(0, text.size() - 1), &number) ||
      number == 0 || number > 100'000'000) {
    return bad;
  }
  return int64_t(number) * units[unit];
}

Result<std::shared_ptr<const session::Securer>> securer(const std::string& token) {
  using Made = std::shared_ptr<const session::Securer>;
  if (!token.empty()) {
    auto client = identity::TlsClient::with_secret(token);
    if (!client.ok()) return client.status();
    return Made(client.take());
  }
  const std::string folder = identity::identity_folder("");
  Result<std::vector<identity::OwnIdentity>> all = identity::load_identities(folder);
  if (!all.ok()) return all.status();
  if (all->empty()) return Made();
  renew_due(folder, &*all);
  // Whoever is more than a server speaks as that.
  std::stable_partition(all->begin(), all->end(), [](const identity::OwnIdentity& own) {
    return own.facts.name.role != identity::Role::kServer;
  });
  auto client = identity::TlsClient::with_identities(*all);
  if (!client.ok()) return client.status();
  return Made(client.take());
}

// More often towards the end.
Certificates own_certificates(int64_t now_s) {
  constexpr int64_t kTriesInALife = 48, kTriesInTheRest = 4;
  Certificates found;
  Result<std::vector<identity::OwnIdentity>> all =
      identity::load_identities(identity::identity_folder(""));
  if (!all.ok()) return found;
  for (const identity::OwnIdentity& own : *all) {
    const identity::Facts& facts = own.facts;
    if (facts.name.role == identity::Role::kServer) continue;  // its server renews it
    if (found.serials.empty() || facts.renewal_s() < found.renewal_s) {
      found.renewal_s = facts.renewal_s();
      found.retry_after_s = std::min((facts.ends_s - facts.begins_s) / kTriesInALife,
                                     (facts.ends_s - now_s) / kTriesInTheRest);
    }
    found.serials += facts.serial + " ";
  }
  return found;
}

int identity_init(const IdentityOptions& options) {
  char host[256] = {};
  gethostname(host, sizeof host - 1);
  const std::string pool = options.pool.empty() ? identity::as_pool(host) : options.pool;
  const std::string folder = place(options);
  if (identity::Authority::is_in(identity::authority_folder(folder)))
    return complain(kFailed, "'" + folder + "' has an authority already");
  const Status made = identity::found_pool(folder, pool, options.name, identity::wall_clock_s());
  if (!made.ok()) return complain(kFailed, made);
  Result<std::unique_ptr<identity::Authority>> opened = authority(options);
  if (!opened.ok()) return complain(kFailed, opened.status());
  printf("made the pool '%s' in %s; keep a copy of that folder where nobody else can read it\n",
         pool.c_str(), folder.c_str());
  printf("its pin is %s\n", (*opened)->pin().c_str());
  return 0;
}

int identity_invite(const IdentityOptions& options) {
  identity::Invitation invitation;
  invitation.name = options.name;
  if (!identity::read_role(options.role, &invitation.role))
    return complain(kUsage, "--role: write admin, operator, user, server or metrics");
  Result<int64_t> valid = read_duration(options.valid, "--valid");
  if (!valid.ok()) return complain(kUsage, valid.status());
  invitation.valid_s = *valid;
  if (!options.lifetime.empty()) {
    Result<int64_t> lifetime = read_duration(options.lifetime, "--lifetime");
    if (!lifetime.ok()) return complain(kUsage, lifetime.status());
    invitation.lifetime_s = *lifetime;
  }
  auto invited = invite_somebody(options, invitation);
  if (!invited.ok()) return complain(kFailed, invited.status());
  const auto& [token, where] = *invited;
  if (options.json) {
    const nlohmann::json out = {{"token", token},
                                {"role", options.role},
                                {"name", options.name},
                                {"valid_s", invitation.valid_s}};
    printf("%s\n", out.dump().c_str());
    return 0;
  }
  printf("tendril join %s --token %s\n", where.c_str(), token.c_str());
  fprintf(stderr, "tendril: works once, within %s, for %s (%s)\n", options.valid.c_str(),
          options.name.empty() ? "a name that is free" : options.name.c_str(),
          options.role.c_str());
  return 0;
}

int identity_join(const IdentityOptions& options) {
  Result<std::string> token = secret_text(options.token, options.token_file,
                                          "a join token is missing: --token TOKEN, or --token-file "
                                          "FILE; `tendril identity invite` prints one");
  if (!token.ok()) return complain(kUsage, token.status());
  const std::string wished = options.name.empty() ? this_user() : options.name;
  Result<identity::OwnIdentity> own =
      identity::join({options.server, options.timeout_ms}, *token, wished);
  if (!own.ok()) return complain(kFailed, own.status());
  const int kept = keep(place(options), *own, "joined");
  if (kept == 0 && own->facts.name.role != identity::Role::kServer)
    printf("use its GPUs with: tendril run --server %s -- PROGRAM\n", options.server.c_str());
  return kept;
}

int identity_login(const IdentityOptions& options) {
  Result<std::string> token =
      options.provider.empty()
          ? secret_text("", options.token_file,
                        "a provider's token is missing: --jwt-file FILE, or --provider ISSUER to "
                        "log in with a browser")
          : token_of_person(options);
  if (!token.ok()) return complain(options.provider.empty() ? kUsage : kFailed, token.status());
  std::string pin = options.pin;
  if (pin.empty()) {
    // Who was here before knows the authority.
    Result<std::vector<identity::OwnIdentity>> all = identity::load_identities(place(options));
    if (!all.ok()) return complain(kFailed, all.status());
    for (const identity::OwnIdentity& own : *all) {
      if (own.issuer == options.server) pin = identity::pin_of(own.authority);
    }
  }
  if (pin.empty()) {
    return complain(kUsage,
                    "the first login needs the pin of the pool: --pin PIN; `tendril identity init` "
                    "and the server's log print it");
  }
  Result<identity::OwnIdentity> own =
      identity::log_in({options.server, options.timeout_ms}, pin, *token);
  if (!own.ok()) return complain(kFailed, own.status());
  return keep(place(options), *own, "logged in");
}

int identity_whoami(const IdentityOptions& options) {
  Result<std::vector<identity::OwnIdentity>> all = identity::load_identities(place(options));
  if (!all.ok()) return complain(kFailed, all.status());
  nlohmann::json list = nlohmann::json::array();
  for (const identity::OwnIdentity& own : *all) {
    const identity::Facts& facts = own.facts;
    if (options.json) {
      list.push_back({{"identity", facts.name.uri()},
                      {"serial", facts.serial},
                      {"begins_s", facts.begins_s},
                      {"ends_s", facts.ends_s},
                      {"issuer", own.issuer},
                      {"pin", identity::pin_of(own.authority)}});
      continue;
    }
    const bool over = identity::wall_clock_s() >= facts.ends_s;
    printf("%s  %s %s  issued by %s\n", facts.name.uri().c_str(), over ? "ENDED" : "until",
           identity::time_text(facts.ends_s).c_str(),
           own.issuer.empty() ? "this machine" : own.issuer.c_str());
  }
  if (options.json) printf("%s\n", nlohmann::json({{"identities", list}}).dump().c_str());
  if (!all->empty() || options.json) return 0;
  return complain(kFailed, "there is no identity in '" + place(options) +
                               "'; join a pool with: tendril join SERVER --token TOKEN");
}

int identity_issued(const IdentityOptions& options) {
  auto records = issued_certificates(options);
  if (!records.ok()) return complain(kFailed, records.status());
  nlohmann::json list = nlohmann::json::array();
  for (const wire::IssuedCertificate& record : *records) {
    if (options.json) {
      list.push_back({{"identity", record.identity},
                      {"serial", record.serial},
                      {"issued_s", record.issued_s},
                      {"ends_s", record.ends_s},
                      {"by", record.by},
                      {"revoked", record.revoked}});
      continue;
    }
    const Result<identity::Name> name = identity::read_name(record.identity);
    if (!name.ok()) return complain(kFailed, name.status());
    printf("%s  %-8s  %-24s  until %s  by %s%s\n", base::printable(record.serial, 64).c_str(),
           identity::role_text(name.value().role), name.value().name.c_str(),
           identity::time_text(int64_t(record.ends_s)).c_str(),
           base::printable(record.by, 16).c_str(), record.revoked ? "  REVOKED" : "");
  }
  if (options.json) printf("%s\n", nlohmann::json({{"issued", list}}).dump().c_str());
  return 0;
}

int identity_revoke(const IdentityOptions& options) {
  if (!options.server.empty()) {
    auto reply = ask_authority<wire::RevokeReply>(options, wire::Request::kRevoke,
                                                  wire::RevokeRequest{options.whom});
    if (!reply.ok()) return complain(kFailed, reply.status());
    return say_revoked(reply->count);
  }
  Result<std::unique_ptr<identity::Authority>> opened = authority(options);
  if (!opened.ok()) return complain(kFailed, opened.status());
  Result<size_t> count = (*opened)->revoke(options.whom, identity::wall_clock_s());
  if (!count.ok()) return complain(kFailed, count.status());
  return say_revoked(*count);
}

int identity_renew(const IdentityOptions& options) {
  Result<std::vector<identity::OwnIdentity>> all = identity::load_identities(place(options));
  if (!all.ok()) return complain(kFailed, all.status());
  int worst = 0;
  for (const identity::OwnIdentity& own : *all) {
    Result<identity::OwnIdentity> fresh = renewed(place(options), own, options.timeout_ms);
    const int done =
        fresh.ok() ? keep(place(options), *fresh, "renewed") : complain(kFailed, fresh.status());
    if (done != 0) worst = done;
  }
  if (!all->empty()) return worst;
  return complain(kFailed, "there is nothing to renew in '" + place(options) + "'");
}

}  // namespace tendril::cli
