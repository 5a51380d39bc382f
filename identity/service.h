// SPDX-License-Identifier: Apache-2.0
// The identity of one server while it serves: its TLS, its copy of the list of revoked
// certificates, and, where the pool's authority lives, the answers to those who join or renew. A
// thread of its own looks every second for a changed list: the authority's server at its file,
// another server by asking the authority's. The same thread renews the server's certificate.
// `answer` and `administer` may be called by any thread, and may block for as long as a disk does.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "base/result.h"
#include "identity/authority.h"
#include "identity/store.h"
#include "identity/tls.h"
#include "session/control/connection.h"
#include "wire/control.h"

namespace tendril::identity {

class Providers;

// Makes an authority in the folder, and certificates of it for this server and for its
// administrator. `admin`: the name; empty: this user's.
base::Status found_pool(const std::string& folder, const std::string& pool,
                        const std::string& admin, int64_t now_s);

// A new certificate for the same name, by the authority in the folder.
base::Result<OwnIdentity> renew_here(const std::string& folder, const OwnIdentity& own,
                                     int64_t now_s);

struct ServiceOptions {
  std::string folder;          // store.h; made if it is not there
  std::string pool;            // the name of a new pool
  std::string providers_file;  // empty: no identity providers
  // Gets lines for the server's log.
  std::function<void(bool bad, const std::string&)> log;
};

class Service {
 public:
  // Uses the server's identity in the folder. If there is none, it makes an authority, the server's
  // certificate, and an administrator's for this user.
  static base::Result<std::unique_ptr<Service>> start(ServiceOptions options);
  ~Service();

  const std::shared_ptr<TlsServer>& tls() const { return tls_; }
  const Name& name() const { return name_; }
  bool is_issuer() const { return authority_ != nullptr; }
  // A fresh join token, if `start` made the authority; otherwise empty. For the first message.
  const std::string& first_invitation() const { return first_invitation_; }

  // kEnroll, kRenew and kDenied (wire/control.h). `sealed`: the connection is inside TLS.
  base::Result<std::vector<uint8_t>> answer(uint16_t kind, const std::vector<uint8_t>& body,
                                            const session::Peer& peer, bool sealed);
  // kInvite, kRevoke and kIssued, for who may do that.
  base::Result<std::vector<uint8_t>> administer(uint16_t kind, const std::vector<uint8_t>& body);
  // Reads the providers' file again. After an error nothing has changed.
  base::Status reload();
  static bool is_mine(uint16_t kind);
  static bool is_administration(uint16_t kind);

 private:
  explicit Service(ServiceOptions options);
  base::Status prepare();
  void run();
  void look();
  void renew_own();
  void take(const DenyList& list);
  void log(bool bad, const std::string& line) const {
    if (options_.log) options_.log(bad, line);
  }
  base::Status no_authority() const;
  base::Result<std::vector<uint8_t>> invite(const wire::InviteRequest& request);
  base::Result<std::vector<uint8_t>> revoke(const wire::RevokeRequest& request);
  base::Result<std::vector<uint8_t>> issued(const wire::IssuedRequest& request);
  base::Result<Issued> enroll(const wire::EnrollRequest& request);
  base::Result<Issued> renew(const wire::RenewRequest& request, const session::Peer& peer);

  const ServiceOptions options_;
  OwnIdentity own_;  // of the thread, like denied_ and trouble_; until it starts, of `prepare`
  Name name_;
  std::string issuer_;
  std::unique_ptr<Authority> authority_;
  std::shared_ptr<TlsServer> tls_;
  std::shared_ptr<Providers> providers_;  // guarded by mutex_
  std::string first_invitation_;
  DenyList denied_;
  std::string trouble_;  // the last one that was logged

  std::mutex mutex_;
  std::condition_variable wake_;
  bool stopping_ = false;
  std::thread thread_;
};

}  // namespace tendril::identity
