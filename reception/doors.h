// SPDX-License-Identifier: Apache-2.0
// By which door peers come to this server (docs/decisions/0019): open, for its own host; one
// secret; or identities. It makes the TLS of that mode, and answers who joins or renews. Used by
// the daemon; `seal` on the thread of all connections, `answer` on any.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "base/result.h"
#include "reception/strangers.h"
#include "session/control/serve.h"

namespace tendril::identity {
class Service;
class TlsServer;
}  // namespace tendril::identity

namespace tendril::reception {

struct DoorsOptions {
  std::string token;  // not empty: one secret
  Guesses* guesses = nullptr;
  std::function<void(const session::Peer&)> wrong_secret;  // is called besides
  bool others_may_come = false;                            // it listens for other hosts
  // Of identities. Not empty: identities, also for this host alone. Empty: the usual folder.
  std::string identity_folder;
  std::string pool, providers_file;
  std::string address;  // where users reach this server, for what they are told
};

class Doors {
 public:
  static base::Result<std::unique_ptr<Doors>> open(const DoorsOptions& options);
  ~Doors();

  bool identities() const { return service_ != nullptr; }
  std::unique_ptr<session::Seal> seal(const session::Peer& peer) const;
  // The same for a port that does not speak the control protocol: `words` says how a client with a
  // bad certificate is refused. Only with identities.
  std::unique_ptr<session::Seal> seal_page(
      std::vector<uint8_t> (*words)(const base::Status& why)) const;
  static bool answers(uint16_t kind);
  base::Result<std::vector<uint8_t>> answer(const session::Message& request,
                                            const session::Facts& facts) const;
  // Gives out, takes back and lists identities, for who may do that (access/decide.h).
  static bool administers(uint16_t kind);
  base::Result<std::vector<uint8_t>> administer(const session::Message& request) const;
  // Reads the file of identity providers again; from now on `token` is the secret.
  base::Status reload(const std::string& token);
  // How long a connection outlives its peer's certificate (identity/tls.h).
  void set_grace(uint64_t seconds) const;
  // How users get in, for the log.
  void greet() const;

 private:
  Doors();
  base::Status no_identities() const;
  DoorsOptions options_;  // of its token counts only whether there is one
  std::string folder_;
  std::unique_ptr<identity::Service> service_;
  mutable std::mutex mutex_;
  std::shared_ptr<identity::TlsServer> tls_;  // guarded by mutex_; null: open
};

}  // namespace tendril::reception
