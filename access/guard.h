// SPDX-License-Identifier: Apache-2.0
// What a daemon knows of who may come: mode, token, policy and audit log, together, and how they
// are read again while it serves. Any thread. A reader keeps the settings that it took; reload
// makes new ones or, after any error, leaves everything as it was.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "access/audit.h"
#include "access/decide.h"
#include "access/policy.h"
#include "access/principal.h"
#include "base/result.h"

namespace tendril::access {

struct GuardOptions {
  std::string token_file;   // as config::load_token takes it
  std::string policy_file;  // empty: no policy
  std::string audit_file;   // empty: no audit log
  std::string server;       // this server's name, for the audit log
  bool identities = false;  // this server has a CA: identity mode
};

struct Settings {
  Mode mode = Mode::kOpen;
  Policy policy;
  std::string token;  // empty: there is none
  uint64_t token_generation = 0;
};

class Guard {
 public:
  static base::Result<std::unique_ptr<Guard>> create(const GuardOptions& options);

  // This server turned out to have a CA: identity mode. Call it before anybody is served.
  void serve_identities();
  std::shared_ptr<const Settings> settings() const;
  // The mode stays what it was at the start. Writes what came of it to the audit log.
  base::Status reload();
  AuditLog& audit() { return audit_; }

  bool token_is_right(const std::string& token) const;
  Principal recognize(const Evidence& evidence) const;
  Limits limits_of(const Principal& who) const;

  using Details = std::vector<std::pair<std::string, std::string>>;
  // Gives the decision to the audit log and returns it. If the policy requires the log, what was
  // allowed waits until it is written, and is refused if it cannot be. Otherwise nobody waits.
  Decision record(const Principal& who, const std::string& what, const std::string& object,
                  const Decision& decision, const Details& details = {});
  // The same for what has happened already, so that nothing is refused. Never waits for the disk.
  void note(const Principal& who, const std::string& what, const std::string& object,
            const Decision& decision, const Details& details = {});
  // The same for a peer that could not prove itself. Of many in a short time only some are written,
  // with the number of the others. `now_ns`: any clock that only grows.
  void record_stranger(const Principal& who, const Decision& decision, uint64_t now_ns,
                       const std::string& what = "hello");

 private:
  explicit Guard(GuardOptions options);
  base::Result<Settings> read(uint64_t token_generation, const std::string& old_token) const;

  void tell_trouble(const std::string& why) const;

  GuardOptions options_;  // constant while anybody is served
  mutable std::mutex mutex_;
  std::shared_ptr<const Settings> settings_;  // guarded by mutex_, and so are those below
  uint64_t stranger_second_ = 0;
  uint32_t strangers_in_second_ = 0;
  uint64_t strangers_left_out_ = 0;
  AuditLog audit_;  // goes first: it tells its trouble to this object
};

}  // namespace tendril::access
