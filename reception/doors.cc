// SPDX-License-Identifier: Apache-2.0
// See doors.h.
#include "reception/doors.h"

#include "base/clock.h"
#include "identity/files.h"
#include "identity/service.h"
#include "reception/log.h"

namespace tendril::reception {

using base::Code;
using base::Result;
using base::Status;

Doors::Doors() = default;
Doors::~Doors() = default;

Result<std::unique_ptr<Doors>> Doors::open(const DoorsOptions& options) {
  std::unique_ptr<Doors> doors(new Doors);
  doors->options_ = options;
  if (!options.token.empty()) {
    if (!options.identity_folder.empty() || !options.providers_file.empty()) {
      return Status(Code::kInvalid,
                    "a server has either one secret (--token-file, TENDRIL_TOKEN_FILE, "
                    "TENDRIL_TOKEN) or identities (--identity, --providers), not both");
    }
    auto tls = identity::TlsServer::with_secret(options.token);
    if (!tls.ok()) return tls.status();
    doors->tls_ = tls.take();
    return doors;
  }
  if (!options.others_may_come && options.identity_folder.empty()) return doors;
  doors->folder_ = identity::identity_folder(options.identity_folder);
  identity::ServiceOptions service;
  service.folder = doors->folder_;
  service.pool = options.pool;
  service.providers_file = options.providers_file;
  service.log = [](bool bad, const std::string& line) {
    log(bad ? Level::kWarning : Level::kInfo, "%s", line.c_str());
  };
  auto started = identity::Service::start(std::move(service));
  if (!started.ok()) {
    return Status(
        started.status().code(),
        "this server is for other hosts, so it needs an identity: " + started.status().message() +
            ". Or give it one secret (--token-file FILE), or listen on 127.0.0.1");
  }
  doors->service_ = started.take();
  doors->tls_ = doors->service_->tls();
  // `tendril identity invite` prints it.
  const Status noted = identity::write_file(doors->folder_ + identity::kAddressFile,
                                            options.address + "\n", identity::Secrecy::kPublic);
  if (!noted.ok()) log(Level::kWarning, "%s", noted.message().c_str());
  return doors;
}

std::unique_ptr<session::Seal> Doors::seal(const session::Peer& peer) const {
  std::shared_ptr<identity::TlsServer> tls;
  {
    std::lock_guard<std::mutex> hold(mutex_);
    tls = tls_;
  }
  if (tls == nullptr) return identity::TlsServer::refuse_tls();
  if (options_.token.empty()) return tls->accept();
  const Status guesses = options_.guesses->check(peer.address, base::now_ns());
  if (!guesses.ok()) return identity::TlsServer::refuse_tls(guesses);
  return tls->accept([this, peer] {
    options_.guesses->wrong(peer.address, base::now_ns());
    if (options_.wrong_secret) options_.wrong_secret(peer);
  });
}

std::unique_ptr<session::Seal> Doors::seal_page(
    std::vector<uint8_t> (*words)(const Status& why)) const {
  return service_->tls()->accept({}, words);
}

bool Doors::answers(uint16_t kind) { return identity::Service::is_mine(kind) || administers(kind); }

Result<std::vector<uint8_t>> Doors::answer(const session::Message& request,
                                           const session::Facts& facts) const {
  if (service_ == nullptr) return no_identities();
  return service_->answer(request.kind, request.body, facts.peer, facts.sealed);
}

Status Doors::no_identities() const {
  return Status(Code::kUnsupported,
                options_.token.empty()
                    ? "this server is open to its own host and has no identities to give"
                    : "this server has one secret for all and no identities to give");
}

bool Doors::administers(uint16_t kind) { return identity::Service::is_administration(kind); }

Result<std::vector<uint8_t>> Doors::administer(const session::Message& request) const {
  if (service_ == nullptr) return no_identities();
  return service_->administer(request.kind, request.body);
}

Status Doors::reload(const std::string& token) {
  if (service_ != nullptr) return service_->reload();
  if (options_.token.empty() || token.empty()) return Status();  // the mode stays
  auto fresh = identity::TlsServer::with_secret(token);
  if (!fresh.ok()) return fresh.status();
  std::lock_guard<std::mutex> hold(mutex_);
  tls_ = fresh.take();
  return Status();
}

void Doors::set_grace(uint64_t seconds) const {
  if (service_ != nullptr) service_->tls()->set_grace(static_cast<int64_t>(seconds));
}

void Doors::greet() const {
  if (service_ == nullptr) {
    if (!options_.token.empty()) {
      log(Level::kInfo,
          "one secret for all: whoever knows it may use every GPU, and end what others with it "
          "leased; for more than one trusted user serve with identities");
    }
    return;
  }
  log(Level::kInfo, "pool '%s', server '%s'; identities are in %s", service_->name().pool.c_str(),
      service_->name().name.c_str(), folder_.c_str());
  if (!service_->is_issuer()) return;
  const std::string& token = service_->first_invitation();
  if (token.empty()) {
    log(Level::kInfo, "invite a user: tendril identity invite NAME --identity %s", folder_.c_str());
    return;
  }
  log(Level::kInfo, "the pool is new. Its first user types these two lines within an hour:");
  log(Level::kInfo, "    tendril join %s --token %s", options_.address.c_str(), token.c_str());
  log(Level::kInfo, "    tendril run --server %s -- PROGRAM", options_.address.c_str());
}

}  // namespace tendril::reception
