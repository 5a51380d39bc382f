// SPDX-License-Identifier: Apache-2.0
// The server's half of a control connection, apart from sockets and threads: what answers requests
// (ControlHandler), how one request is performed, and a loop for servers of one connection each
// (the tests'). tendrild has a loop for all its connections (reception/).
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/fd.h"
#include "base/result.h"
#include "session/control/connection.h"
#include "session/control/control_io.h"
#include "wire/control.h"
#include "wire/pool.h"

namespace tendril::session {

// How far a peer may go after its hello.
enum class Standing {
  kStranger,       // has proven nothing yet; it may only ask what proves itself, and soon
  kMember,         // may ask; what it may do is decided for each request
  kAdministrator,  // a member for whom places are kept free
};

// The answer to a hello.
struct Admission {
  Standing standing = Standing::kStranger;
  base::Status refusal;  // not ok: the peer is refused with this text
};

// What a request may need to know of its connection. Constant once hello was accepted.
struct Facts {
  Peer peer;
  Standing standing = Standing::kStranger;
  bool sealed = false;                              // TLS protects the connection
  wire::Hello theirs, mine;                         // without tokens
  std::vector<uint8_t> client_hello, server_hello;  // the bodies as they were sent
};

// What a request came to: an answer, and what becomes of the connection.
struct Outcome {
  uint16_t kind = 0;
  base::Code code = base::Code::kOk;
  std::vector<uint8_t> body;  // a text for people unless `code` is kOk
  base::Fd riding;            // travels with the answer
  bool ends = false;          // the connection ends after the answer
  uint64_t lease_id = 0;      // a lease that lives while the connection does; 0: none
  // After the answer the connection belongs to a session, as its command lane or a bulk channel.
  enum class Handover { kNone, kAttached, kJoined } handover = Handover::kNone;
  uint64_t session_id = 0;
  wire::JoinRequest join;
  std::string keys;  // that seal the bytes of the connection from then on
};

// The answers to a request.
Outcome refused(uint16_t kind, const base::Status& status);
Outcome answered(uint16_t kind, std::vector<uint8_t> body = {});

// A connection as threads reach it that answer later, or tell what was not asked. Any thread. What
// comes after the connection's end, or to a request that was answered, is dropped.
class Caller {
 public:
  virtual ~Caller() = default;
  // Answers the request that was begun with that number.
  virtual void answer(uint64_t request, Outcome outcome) = 0;
  // Says why it waits. The last news is repeated while it waits.
  virtual void tell(uint64_t request, const wire::News& news) = 0;
  // Tells the peer what becomes of a lease, unasked.
  virtual void notice(const wire::Notice& notice) = 0;
};

// Where the answer to one request goes that its handler has taken. It is answered once; if it is
// destroyed before, the request is refused. Any thread, one at a time.
class Later {
 public:
  Later() = default;
  Later(std::shared_ptr<Caller> caller, uint64_t request, uint16_t kind)
      : caller_(std::move(caller)), request_(request), kind_(kind) {}
  Later(Later&& other) noexcept = default;
  Later& operator=(Later&& other) noexcept;
  ~Later() { give_up(); }

  bool valid() const { return caller_ != nullptr; }
  uint16_t kind() const { return kind_; }
  void tell(const wire::News& news) const {
    if (valid()) caller_->tell(request_, news);
  }
  void answer(std::vector<uint8_t> body) { finish(answered(kind_, std::move(body))); }
  void refuse(const base::Status& status) { finish(refused(kind_, status)); }

 private:
  void finish(Outcome outcome);
  void give_up();

  std::shared_ptr<Caller> caller_;
  uint64_t request_ = 0;
  uint16_t kind_ = 0;
};

// What answers the requests of one connection, one at a time. hello, apis, admit, meet, defers,
// begin and gone are called on the thread of all connections and must not block. The others run on
// other threads and may block.
class ControlHandler {
 public:
  virtual ~ControlHandler() = default;
  // How other threads reach this connection. Called once, before anything else.
  virtual void meet(std::shared_ptr<Caller> /*caller*/) {}
  // Whether a request of that kind is begun here and answered later. Others are performed. A
  // stranger's never is.
  virtual bool defers(uint16_t /*kind*/) { return false; }
  virtual void begin(Message request, std::shared_ptr<const Facts> facts, Later later);
  // The connection has ended, or belongs to a session. Its request, if one is begun, needs no
  // answer. `orderly`: the peer ended it, or its system did for a process that died; else there was
  // a reset, or the way to it was lost.
  virtual void gone(bool /*orderly*/) {}
  // Before `gone`: no end came, but an error of the way or a reset, so the peer may come back.
  virtual void cut() {}
  virtual wire::Hello hello() = 0;
  // The APIs that sessions may use. A request for another API, or with another description of its
  // calls, is refused before `attach` is called.
  virtual std::vector<wire::ApiRecord> apis() = 0;
  virtual Admission admit(const wire::Hello& hello, const Peer& peer) = 0;
  virtual base::Result<wire::ListReply> list(const wire::ListRequest& request) = 0;
  virtual base::Result<wire::LeaseReply> lease(const wire::LeaseRequest& request) = 0;
  // A lease that the server's pool granted; its holder is at the other end of this connection.
  virtual base::Result<wire::LeaseReply> claim(const wire::ClaimRequest& /*request*/) {
    return base::Status(base::Code::kUnsupported, "this server belongs to no pool");
  }
  virtual base::Status release(uint64_t lease_id) = 0;
  virtual base::Status change(const wire::ChangeRequest& request) = 0;
  virtual void lease_connection_closed(uint64_t lease_id) = 0;
  // The secret that a client must know to attach with that key (secure_attach.h).
  virtual base::Result<std::string> attach_secret(wire::AttachKey /*key*/, uint64_t /*lease_id*/) {
    return base::Status(base::Code::kUnsupported, "this server secures no attach");
  }
  // A client did not know it after all.
  virtual void attach_secret_unknown(wire::AttachKey /*key*/) {}
  // Makes a session and lets its worker answer the offers. `connection`: what the worker must know
  // of the peer. Its keys are the session's: later connections prove themselves with it, and the
  // worker gets it if the session is sealed. For one that only looks, no session is made.
  virtual base::Result<wire::AttachReply> attach(const wire::AttachRequest& request,
                                                 const wire::ConnectionRecord& connection) = 0;
  // Called after the AttachReply was sent: the connection now belongs to the session.
  virtual void attached(uint64_t session_id, Connection connection) = 0;
  virtual base::Status join(const wire::JoinRequest& request) = 0;
  virtual void joined(const wire::JoinRequest& request, Connection connection) = 0;
  // Returns the descriptor that belongs to the worker's answer. Requested over unix sockets only.
  virtual base::Result<base::Fd> fetch(const wire::JoinRequest& /*request*/) { return no_such(); }
  // The client uses the worker's first answer. The session begins without joined connections.
  virtual base::Status use(const wire::JoinRequest& /*request*/) { return no_such(); }
  // Any request that this room does not know, also a stranger's. The body of the answer.
  virtual base::Result<std::vector<uint8_t>> other(const Message& request, const Facts& facts);

 private:
  // Inline, like the rest: this room is compiled without RTTI, the handler's with it.
  static base::Status no_such() {
    return base::Status(base::Code::kUnsupported,
                        "this server offers no transport but the session's connections");
  }
};

inline void ControlHandler::begin(Message /*request*/, std::shared_ptr<const Facts> /*facts*/,
                                  Later later) {
  later.refuse(no_such());
}

inline base::Result<std::vector<uint8_t>> ControlHandler::other(const Message& /*request*/,
                                                                const Facts& facts) {
  return base::Status(base::Code::kUnsupported,
                      "this server (Tendril " + facts.mine.product_version +
                          ") does not know the request; it is older than the client");
}

// Performs a request. May block as long as the handler does. Any thread, one at a time for each
// handler.
Outcome perform(const Message& request, const Facts& facts, ControlHandler* handler);
// Hands the connection of a finished conversation over, if the outcome says so.
void hand_over(const Outcome& outcome, Connection connection, ControlHandler* handler);

// For servers with one secret: whether the token is right; if not, the refusal says which way.
// Compares in constant time. An empty `wanted` admits everybody.
Admission admit_by_token(const std::string& wanted, const std::string& given);

// Whether a client of that version may attach for the API that it names. The error says what the
// server serves, names both versions and says what to do.
base::Status check_api(const wire::AttachRequest& request, const std::string& client_version,
                       const std::vector<wire::ApiRecord>& served,
                       const std::string& server_version);

// Serves one accepted connection until it ends or is handed over, on this thread.
void serve_connection(Connection connection, ControlHandler* handler);

}  // namespace tendril::session
