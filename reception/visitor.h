// SPDX-License-Identifier: Apache-2.0
// One peer: who it is, what it may do, and the lines of the audit log about it. A handler of a
// connection has one. One thread at a time.
#pragma once

#include <string>

#include "access/guard.h"
#include "base/result.h"
#include "reception/front.h"
#include "session/control/serve.h"

namespace tendril::reception {

class Visitor {
 public:
  Visitor(Front* front, session::Peer peer);

  const access::Principal& who() const { return who_; }
  const session::Peer& peer() const { return peer_; }
  // It came by the administrators' socket.
  bool is_administrators() const { return administrators_; }

  // The nonce that a hello needs where attaching must be proven.
  void add_nonce(wire::Hello* hello) const;
  // Recognizes the peer by its hello, or refuses it.
  session::Admission admit(const wire::Hello& hello, const session::Peer& peer);
  // It has proven later that it knows the token.
  void knows_token();
  // Not kOk: too many wrong secrets came from the peer's address.
  base::Status must_wait(uint64_t now_ns) const;
  // It did not know what it was to prove: "token", "lease's secret".
  void guessed_wrong(const char* what);

  // Asks whether the peer may do it, and writes the answer to the audit log. Not kOk: it may not.
  base::Status ask(access::Action action, const std::string& object, const std::string& owner,
                   const access::Guard::Details& details = {}) const;
  // Writes what came of something. Not kOk: it must be undone.
  base::Status record(const std::string& what, const std::string& object,
                      const access::Decision& decision,
                      const access::Guard::Details& details = {}) const;
  // Answers who joins, renews, invites, revokes or lists identities (doors.h), and writes it to the
  // audit log.
  base::Result<std::vector<uint8_t>> answer_at_door(const session::Message& request,
                                                    const session::Facts& facts) const;

 private:
  base::Result<std::vector<uint8_t>> administer(const session::Message& request) const;
  // Its invitation, or its proof, was not good.
  void refused_at_door(const char* what, bool guesses, const base::Status& why) const;
  base::Status refuse_stranger(const wire::Hello& hello, const session::Peer& peer,
                               uint64_t wait_ns, uint64_t now_ns);

  Front* const front_;
  const session::Peer peer_;
  access::Principal who_;  // nobody until hello
  bool administrators_ = false;
};

}  // namespace tendril::reception
