// SPDX-License-Identifier: Apache-2.0
// See service.h.
#include "identity/service.h"

#include <pwd.h>
#include <unistd.h>

#include <algorithm>

#include "base/clock.h"
#include "base/text.h"
#include "config/text.h"
#include "identity/enrolment.h"
#include "identity/files.h"
#include "identity/providers.h"
#include "wire/control.h"

namespace tendril::identity {

using base::Code;
using base::Result;
using base::Status;

namespace {

constexpr auto kLookEvery = std::chrono::seconds(1);
// A revoked certificate must be known everywhere within ten seconds.
constexpr uint64_t kAskEveryNs = 3'000'000'000;
constexpr uint64_t kRenewEveryNs = 600'000'000'000;
constexpr int kAskMs = 4000;
constexpr char kDeniedCopy[] = "/denied";
constexpr int64_t kFirstInvitationS = 3600;
constexpr uint64_t kInvitationMaxS = 10ull * 365 * 86'400;

std::string host_name() {
  char name[256] = {};
  gethostname(name, sizeof name - 1);
  return name[0] != 0 ? name : "localhost";
}

std::string user_name() {
  const passwd* const entry = getpwuid(geteuid());
  return as_name(entry != nullptr ? entry->pw_name : std::to_string(geteuid()));
}

// A certificate by the authority itself, for a new key.
Result<OwnIdentity> by_owner(Authority* authority, const Name& name, int64_t now_s) {
  OwnIdentity own;
  Result<Key> key = make_key();
  if (!key.ok()) return key.status();
  Result<std::string> request = make_request(*key);
  if (!request.ok()) return request.status();
  Result<Issued> made =
      authority->grant(name, default_lifetime_s(name.role), Authority::By::kOwner, *request, now_s);
  if (!made.ok()) return made.status();
  own.certificate = made->certificate;
  own.authority = authority->certificate();
  own.key = key.take();
  own.facts = made->facts;
  return own;
}

}  // namespace

Status found_pool(const std::string& folder, const std::string& pool, const std::string& admin,
                  int64_t now_s) {
  Status made = make_folder(folder);
  if (!made.ok()) return made;
  Result<std::unique_ptr<Authority>> authority =
      Authority::create(authority_folder(folder), pool, now_s);
  if (!authority.ok()) return authority.status();
  const Name names[] = {{pool, Role::kServer, as_name(host_name())},
                        {pool, Role::kAdmin, admin.empty() ? user_name() : admin}};
  for (const Name& name : names) {
    Result<OwnIdentity> own = by_owner(authority->get(), name, now_s);
    if (!own.ok()) return own.status();
    made = save_identity(folder, *own);
    if (!made.ok()) return made;
  }
  return Status();
}

Result<OwnIdentity> renew_here(const std::string& folder, const OwnIdentity& own, int64_t now_s) {
  Result<std::unique_ptr<Authority>> authority = Authority::open(authority_folder(folder));
  if (!authority.ok()) return authority.status();
  if ((*authority)->pool() != own.facts.name.pool) {
    return Status(Code::kNotFound, "the authority of the pool '" + own.facts.name.pool +
                                       "' is not known; join it again with a new invitation");
  }
  return by_owner(authority->get(), own.facts.name, now_s);
}

bool Service::is_mine(uint16_t kind) {
  return kind == uint16_t(wire::Request::kEnroll) || kind == uint16_t(wire::Request::kRenew) ||
         kind == uint16_t(wire::Request::kDenied);
}

bool Service::is_administration(uint16_t kind) {
  return kind == uint16_t(wire::Request::kInvite) || kind == uint16_t(wire::Request::kRevoke) ||
         kind == uint16_t(wire::Request::kIssued);
}

Service::Service(ServiceOptions options) : options_(std::move(options)) {}

Service::~Service() {
  {
    std::lock_guard<std::mutex> hold(mutex_);
    stopping_ = true;
  }
  wake_.notify_all();
  if (thread_.joinable()) thread_.join();
}

Result<std::unique_ptr<Service>> Service::start(ServiceOptions options) {
  std::unique_ptr<Service> service(new Service(std::move(options)));
  const Status ready = service->prepare();
  if (!ready.ok()) return ready;
  return service;
}

Status Service::prepare() {
  const std::string& folder = options_.folder;
  Result<std::vector<OwnIdentity>> all = load_identities(folder);
  if (!all.ok()) return all.status();
  const auto is_server = [](const OwnIdentity& own) {
    return own.facts.name.role == Role::kServer;
  };
  const bool had_authority = Authority::is_in(authority_folder(folder));
  if (std::none_of(all->begin(), all->end(), is_server) && !had_authority) {
    const std::string pool = options_.pool.empty() ? as_pool(host_name()) : options_.pool;
    Status made = found_pool(folder, pool, "", wall_clock_s());
    if (!made.ok()) return made;
    all = load_identities(folder);
    if (!all.ok()) return all.status();
  }
  if (Authority::is_in(authority_folder(folder))) {
    Result<std::unique_ptr<Authority>> opened = Authority::open(authority_folder(folder));
    if (!opened.ok()) return opened.status();
    authority_ = opened.take();
  }
  for (const OwnIdentity& own : *all) {
    if (!is_server(own)) continue;
    if (authority_ != nullptr && own.facts.name.pool != authority_->pool()) continue;
    if (own_.key != nullptr) {
      return Status(Code::kInvalid, "'" + folder + "' has servers' certificates of two pools ('" +
                                        own_.facts.name.pool + "', '" + own.facts.name.pool +
                                        "'); remove the folder of one");
    }
    own_ = own;
  }
  if (own_.key == nullptr) {
    return Status(Code::kNotFound,
                  "'" + folder +
                      "' has an authority, but no certificate of a server in pools/; restore it, "
                      "or name another folder (--identity)");
  }
  name_ = own_.facts.name;
  issuer_ = own_.issuer;
  if (authority_ != nullptr && !had_authority) {
    Result<JoinToken> token =
        authority_->invite({Role::kUser, "", kFirstInvitationS}, wall_clock_s());
    if (!token.ok()) return token.status();
    first_invitation_ = token->text();
  }
  Result<std::shared_ptr<TlsServer>> tls = TlsServer::with_identity(own_);
  if (!tls.ok()) return tls.status();
  tls_ = tls.take();
  if (authority_ == nullptr) {
    // The last known list counts until the authority answers.
    Result<std::string> text = read_file(folder + kDeniedCopy, Secrecy::kPublic);
    Result<DenyList> list = text.ok() ? DenyList::read(*text) : Result<DenyList>(DenyList());
    if (list.ok()) take(*list);
  }
  const Status read = reload();
  if (!read.ok()) return read;
  renew_own();
  const Facts& facts = own_.facts;
  if (wall_clock_s() > facts.ends_s) {
    return Status(Code::kRefused, "the certificate of this server ended at " +
                                      time_text(facts.ends_s) +
                                      "; join its pool again with a new invitation");
  }
  look();
  thread_ = std::thread([this] { run(); });
  return Status();
}

Status Service::reload() {
  if (options_.providers_file.empty()) return Status();
  Result<std::shared_ptr<Providers>> fresh = Providers::read(options_.providers_file);
  if (!fresh.ok()) return fresh.status();
  std::lock_guard<std::mutex> hold(mutex_);
  providers_ = fresh.take();
  return Status();
}

void Service::run() {
  uint64_t asked_ns = base::now_ns(), renewed_ns = asked_ns;
  for (;;) {
    std::shared_ptr<Providers> providers;
    {
      std::unique_lock<std::mutex> hold(mutex_);
      wake_.wait_for(hold, kLookEvery, [this] { return stopping_; });
      if (stopping_) return;
      providers = providers_;
    }
    const uint64_t now_ns = base::now_ns();
    if (authority_ != nullptr || now_ns - asked_ns >= kAskEveryNs) {
      asked_ns = now_ns;
      look();
    }
    if (now_ns - renewed_ns >= kRenewEveryNs) {
      renewed_ns = now_ns;
      renew_own();
    }
    if (providers == nullptr) continue;
    const Status fetched = providers->refresh(now_ns);
    if (!fetched.ok()) log(true, "identity provider: " + fetched.message());
  }
}

void Service::look() {
  Result<DenyList> list =
      authority_ != nullptr ? authority_->denied(wall_clock_s()) : fetch_denied(own_, kAskMs);
  if (!list.ok()) {
    // Once for each trouble: what is known already stays in force.
    if (trouble_ != list.status().message()) {
      trouble_ = list.status().message();
      log(true, "the list of revoked certificates cannot be had: " + trouble_);
    }
    return;
  }
  if (!trouble_.empty()) log(false, "the list of revoked certificates can be had again");
  trouble_.clear();
  if (*list == denied_) return;
  log(false, base::format("%zu certificates are revoked", list->size()));
  take(*list);
  if (authority_ != nullptr) return;
  const Status kept = write_file(options_.folder + kDeniedCopy, list->text(), Secrecy::kPublic);
  if (!kept.ok()) log(true, kept.message());
}

void Service::take(const DenyList& list) {
  denied_ = list;
  tls_->deny(list);
}

// Before its certificate ends the server gets another one for the same key.
void Service::renew_own() {
  const int64_t now_s = wall_clock_s();
  if (now_s < own_.facts.renewal_s()) return;
  Result<OwnIdentity> fresh = Status(Code::kInternal, "");
  if (authority_ == nullptr) {
    fresh = identity::renew(own_, kAskMs);
  } else {
    fresh = by_owner(authority_.get(), own_.facts.name, now_s);
  }
  Status done = fresh.status();
  if (fresh.ok()) done = save_identity(options_.folder, *fresh);
  if (fresh.ok() && done.ok()) done = tls_->replace(*fresh);
  if (!done.ok()) {
    log(true, "the certificate of this server ends at " + time_text(own_.facts.ends_s) +
                  " and cannot be renewed: " + done.message());
    return;
  }
  own_ = *fresh;
  log(false, "the certificate of this server was renewed until " + time_text(own_.facts.ends_s));
}

Result<std::vector<uint8_t>> Service::answer(uint16_t kind, const std::vector<uint8_t>& body,
                                             const session::Peer& peer, bool sealed) {
  const Status malformed(Code::kInvalid, "the request is malformed");
  if (!sealed)
    return Status(Code::kRefused, "identities are given inside TLS only; use `tendril join`");
  if (kind == uint16_t(wire::Request::kDenied)) {
    const Result<Name> who = read_name(peer.identity);
    if (!who.ok() || who.value().role != Role::kServer)
      return Status(Code::kRefused,
                    "only servers of the pool get the list of revoked certificates");
  }
  if (authority_ == nullptr) return no_authority();
  if (kind == uint16_t(wire::Request::kDenied)) {
    Result<DenyList> list = authority_->denied(wall_clock_s());
    if (!list.ok()) return list.status();
    return wire::encode(wire::DeniedReply{list->text()});
  }
  Result<Issued> made = malformed;
  if (kind == uint16_t(wire::Request::kEnroll)) {
    wire::EnrollRequest request;
    if (!wire::decode(body.data(), body.size(), &request)) return malformed;
    made = enroll(request);
  } else {
    wire::RenewRequest request;
    if (!wire::decode(body.data(), body.size(), &request)) return malformed;
    made = renew(request, peer);
  }
  const char* const what = kind == uint16_t(wire::Request::kEnroll) ? "joins" : "renews";
  if (!made.ok()) return made.status();  // the caller's log bounds how often it is said
  log(false, peer.text + " " + what + " as " + made->facts.name.uri() + ", serial " +
                 made->facts.serial + ", until " + time_text(made->facts.ends_s));
  return wire::encode(wire::CertificateReply{certificate_text(made->certificate)});
}

Status Service::no_authority() const {
  return Status(Code::kUnsupported, "this server gives out no identities; the pool '" + name_.pool +
                                        "' has its authority at " + issuer_ + ": ask there");
}

Result<std::vector<uint8_t>> Service::administer(uint16_t kind, const std::vector<uint8_t>& body) {
  if (authority_ == nullptr) return no_authority();
  const Status malformed(Code::kInvalid, "the request is malformed");
  if (kind == uint16_t(wire::Request::kInvite)) {
    wire::InviteRequest request;
    return wire::decode(body.data(), body.size(), &request) ? invite(request) : malformed;
  }
  if (kind == uint16_t(wire::Request::kIssued)) {
    wire::IssuedRequest request;
    return wire::decode(body.data(), body.size(), &request) ? issued(request) : malformed;
  }
  wire::RevokeRequest request;
  return wire::decode(body.data(), body.size(), &request) ? revoke(request) : malformed;
}

Result<std::vector<uint8_t>> Service::invite(const wire::InviteRequest& request) {
  Invitation invitation;
  invitation.name = request.name;
  if (!read_role(request.role, &invitation.role)) {
    return Status(Code::kInvalid, "'" + base::printable(request.role, 32) +
                                      "' is no role; the roles are admin, operator, user, server "
                                      "and metrics");
  }
  if (request.valid_s == 0 || request.valid_s > kInvitationMaxS ||
      request.lifetime_s > kInvitationMaxS) {
    return Status(Code::kInvalid, "an invitation and its certificates last ten years at most");
  }
  invitation.valid_s = static_cast<int64_t>(request.valid_s);
  invitation.lifetime_s = static_cast<int64_t>(request.lifetime_s);
  Result<JoinToken> token = authority_->invite(invitation, wall_clock_s());
  if (!token.ok()) return token.status();
  Result<std::string> address = read_file(options_.folder + kAddressFile, Secrecy::kPublic);
  return wire::encode(
      wire::InviteReply{token->text(), address.ok() ? config::trimmed(*address) : std::string()});
}

Result<std::vector<uint8_t>> Service::revoke(const wire::RevokeRequest& request) {
  Result<size_t> count = authority_->revoke(request.whom, wall_clock_s());
  if (!count.ok()) return count.status();
  return wire::encode(wire::RevokeReply{*count});
}

Result<std::vector<uint8_t>> Service::issued(const wire::IssuedRequest& request) {
  Result<std::vector<Authority::IssuedRecord>> records = authority_->issued(wall_clock_s());
  if (!records.ok()) return records.status();
  const auto order = [](const Authority::IssuedRecord& record) {
    return std::make_pair(uint64_t(record.issued_s), record.serial);
  };
  const auto after = std::make_pair(request.after_issued_s, request.after_serial);
  std::sort(records->begin(), records->end(),
            [&](const auto& one, const auto& other) { return order(one) < order(other); });
  wire::IssuedReply reply;
  for (const Authority::IssuedRecord& record : *records) {
    if (!request.after_serial.empty() && order(record) <= after) continue;
    reply.more = reply.certificates.size() == wire::kIssuedPageMax;
    if (reply.more) break;
    reply.certificates.push_back({record.serial, record.name.uri(), uint64_t(record.issued_s),
                                  uint64_t(record.ends_s), record.by, record.denied});
  }
  return wire::encode(reply);
}

Result<Issued> Service::enroll(const wire::EnrollRequest& request) {
  const int64_t now_s = wall_clock_s();
  if (request.provider_token.empty()) {
    return authority_->enroll(request.token_id, request.token_secret, request.wished_name,
                              request.request, now_s);
  }
  std::shared_ptr<const Providers> providers;
  {
    std::lock_guard<std::mutex> hold(mutex_);
    providers = providers_;
  }
  if (providers == nullptr)
    return Status(Code::kUnsupported, "this pool has no identity provider (serve --providers)");
  Result<Providers::Admitted> who = providers->admit(request.provider_token, now_s);
  if (!who.ok()) return who.status();
  return authority_->grant(Name{authority_->pool(), who->role, who->name}, who->lifetime_s,
                           Authority::By::kProvider, request.request, now_s);
}

Result<Issued> Service::renew(const wire::RenewRequest& request, const session::Peer& peer) {
  Result<Certificate> old = read_certificate(request.certificate);
  if (!old.ok()) return old.status();
  Result<Facts> facts = judge(*old, authority_->certificate(), Purpose::kClient, wall_clock_s(),
                              "the certificate to be renewed");
  if (!facts.ok()) return facts.status();
  // The connection proves the name, the request's signature the key.
  if (facts->name.uri() != peer.identity || !is_request_of(request.request, *old)) {
    return Status(Code::kRefused,
                  "a certificate is renewed by who holds its key, and for the same key");
  }
  return authority_->renew(*facts, request.request, wall_clock_s());
}

}  // namespace tendril::identity
