// SPDX-License-Identifier: Apache-2.0
// TLS 1.3 for control connections, on bytes (session/control/seal.h). A server proves itself with
// its certificate and asks for the client's, or both prove that they know one secret (an external
// key). A refused client hears why inside TLS, as the answer to its hello. The makers are used by
// any thread; each seal by one at a time.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "base/result.h"
#include "identity/deny_list.h"
#include "identity/store.h"
#include "session/control/seal.h"

struct ssl_ctx_st;

namespace tendril::identity {

using Clock = int64_t (*)();

// The server's half. Its seals keep it alive.
class TlsServer : public std::enable_shared_from_this<TlsServer> {
 public:
  // Certificates. A client without one becomes a peer without identity.
  static base::Result<std::shared_ptr<TlsServer>> with_identity(const OwnIdentity& own,
                                                                Clock clock = wall_clock_s);
  // One secret that everybody knows.
  static base::Result<std::shared_ptr<TlsServer>> with_secret(const std::string& secret);
  // Whoever speaks TLS hears in clear why not; by default, because the server is open.
  static std::unique_ptr<session::Seal> refuse_tls(const base::Status& why = open_server());
  static base::Status open_server();

  // `wrong_secret` is called if the client has another secret. `words`: how a client with a bad
  // certificate is refused; by default, as the answer to its hello.
  using Words = std::vector<uint8_t> (*)(const base::Status& why);
  std::unique_ptr<session::Seal> accept(std::function<void()> wrong_secret = {},
                                        Words words = nullptr);
  // For connections from now on: a renewed certificate.
  base::Status replace(const OwnIdentity& own);
  // From now on these certificates prove nothing, on open connections too (Seal::receive).
  void deny(const DenyList& list);
  bool is_denied(const std::string& serial) const;
  // How long a connection outlives the certificate that opened it, unless its owner has shown a
  // newer one since. kGraceMaxS at most.
  void set_grace(int64_t seconds);

 private:
  friend class ServerSeal;
  TlsServer() = default;
  // A client has proven itself with this certificate.
  void shown(const Facts& facts);
  // Whether a connection that a client opened with it may go on.
  base::Status standing(const Facts& facts) const;

  mutable std::mutex mutex_;
  int64_t grace_s_ = 3600;
  std::map<std::string, Facts> latest_;  // by name, the certificate that ends last
  std::shared_ptr<ssl_ctx_st> context_;
  Certificate authority_;
  DenyList denied_;
  std::string secret_key_;  // not empty: no certificates
  Clock clock_ = wall_clock_s;
};

// The client's half: what it can prove, and whom it believes.
class TlsClient : public session::Securer, public std::enable_shared_from_this<TlsClient> {
 public:
  // Uses the identity of the pool that the server belongs to. None fits: the message says so.
  static base::Result<std::shared_ptr<TlsClient>> with_identities(
      const std::vector<OwnIdentity>& identities, Clock clock = wall_clock_s);
  static base::Result<std::shared_ptr<TlsClient>> with_secret(const std::string& secret);
  // Shows no certificate, and believes the authority with this pin. For joining.
  static base::Result<std::shared_ptr<TlsClient>> with_pin(const std::string& pin,
                                                           Clock clock = wall_clock_s);

  base::Result<std::unique_ptr<session::Seal>> secure(
      const session::Endpoint& endpoint) const override;
  // The authority that the last server showed. Of a client with a pin, after the handshake.
  Certificate authority() const;

 private:
  friend class ClientSeal;
  TlsClient() = default;
  base::Status prepare();

  std::vector<OwnIdentity> identities_;
  std::string secret_key_, pin_;
  Clock clock_ = wall_clock_s;
  std::shared_ptr<ssl_ctx_st> context_;
  mutable std::mutex mutex_;
  mutable Certificate authority_;
};

}  // namespace tendril::identity
