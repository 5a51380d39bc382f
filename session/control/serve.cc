// SPDX-License-Identifier: Apache-2.0
// The server's half of a control connection: hello, then one request and one reply at a time, until
// the connection ends or becomes part of a session. Runs on a thread of the daemon. The peer is
// unknown until its hello was accepted, and is never trusted.
#include <vector>

#include "base/text.h"
#include "session/control/control_io.h"

namespace tendril::session {

using base::Code;
using base::Deadline;
using base::Result;
using base::Status;

namespace {

constexpr int kMessageMs = 5'000;     // to finish a message, hello included
constexpr int kIdleMs = 10 * 60'000;  // between requests on a connection that holds no lease

class Conversation {
 public:
  Conversation(Connection connection, ControlHandler* handler)
      : connection_(std::move(connection)), handler_(handler) {}
  ~Conversation() {
    for (uint64_t lease : leases_) handler_->lease_connection_closed(lease);
  }
  void serve();

 private:
  bool accept_hello();
  bool handle(const Message& message);
  bool handle_lease(const Message& message);
  bool handle_attach(const Message& message);
  bool handle_join(const Message& message);
  bool handle_fetch(const Message& message);

  bool answer(uint16_t kind, const std::vector<uint8_t>& body) {
    return send_message(&connection_, kind, Code::kOk, body, Deadline(kMessageMs)).ok();
  }
  bool refuse(uint16_t kind, Code code, const std::string& text) {
    std::vector<uint8_t> body(text.begin(), text.end());
    return send_message(&connection_, kind, code, body, Deadline(kMessageMs)).ok();
  }
  bool refuse(uint16_t kind, const Status& status) {
    return refuse(kind, status.code(), status.message());
  }
  bool malformed(uint16_t kind) {
    refuse(kind, Code::kInvalid, "the request is malformed");
    return false;
  }

  Connection connection_;
  ControlHandler* handler_;
  wire::Hello mine_, theirs_;
  std::vector<uint64_t> leases_;
};

bool Conversation::accept_hello() {
  Result<Message> message = receive_message(&connection_, Deadline(kMessageMs), kMessageMs);
  if (!message.ok()) return false;  // a port scanner, or somebody else's protocol: no answer
  if (message->kind != wire::kHelloKind || !message->read(&theirs_))
    return malformed(wire::kHelloKind);
  mine_ = handler_->hello();
  mine_.token.clear();
  if (theirs_.protocol_newest < mine_.protocol_oldest ||
      theirs_.protocol_oldest > mine_.protocol_newest) {
    return refuse(wire::kHelloKind, Code::kMismatch,
                  base::format(
                      "this server is Tendril %s and speaks protocol %u to %u; the client is "
                      "Tendril %s and "
                      "speaks %u to %u; install the same version on both",
                      mine_.product_version.c_str(), unsigned(mine_.protocol_oldest),
                      unsigned(mine_.protocol_newest), cleaned(theirs_.product_version).c_str(),
                      unsigned(theirs_.protocol_oldest), unsigned(theirs_.protocol_newest))) &&
           false;
  }
  bool required = true;
  if (!handler_->token_matches(theirs_.token, &required) && required) {
    const char* text = theirs_.token.empty()
                           ? "this server wants a token and the client sent none; set it in the "
                             "client's configuration"
                           : "the token is wrong: it is not the one this server was started with";
    return refuse(wire::kHelloKind, Code::kRefused, text) && false;
  }
  return answer(wire::kHelloKind, wire::encode(mine_));
}

void Conversation::serve() {
  connection_.keep_alive();
  if (!accept_hello()) return;
  theirs_.token.clear();
  for (;;) {
    Result<Message> message =
        receive_message(&connection_, Deadline(leases_.empty() ? kIdleMs : -1), kMessageMs);
    if (!message.ok() || !handle(*message)) return;
  }
}

bool Conversation::handle(const Message& message) {
  switch (wire::Request(message.kind)) {
    case wire::Request::kPing:
      return answer(message.kind, message.body);
    case wire::Request::kList: {
      Result<wire::ListReply> list = handler_->list();
      return list.ok() ? answer(message.kind, wire::encode(*list))
                       : refuse(message.kind, list.status());
    }
    case wire::Request::kLease:
      return handle_lease(message);
    case wire::Request::kAttach:
      return handle_attach(message);
    case wire::Request::kJoin:
      return handle_join(message);
    case wire::Request::kFetch:
      return handle_fetch(message);
    case wire::Request::kUse: {
      wire::JoinRequest request;
      if (!message.read(&request)) return malformed(message.kind);
      Status used = handler_->use(request);
      return used.ok() ? answer(message.kind, {}) : refuse(message.kind, used);
    }
    case wire::Request::kChange: {
      wire::ChangeRequest request;
      if (!message.read(&request)) return malformed(message.kind);
      Status changed = handler_->change(request);
      return changed.ok() ? answer(message.kind, {}) : refuse(message.kind, changed);
    }
    case wire::Request::kSecuredAttach:
      break;
    case wire::Request::kRelease: {
      wire::ReleaseRequest request;
      if (!message.read(&request)) return malformed(message.kind);
      Status released = handler_->release(request.lease_id);
      return released.ok() ? answer(message.kind, {}) : refuse(message.kind, released);
    }
  }
  return refuse(
      message.kind, Code::kUnsupported,
      base::format(
          "this server (Tendril %s) does not know the request; it is older than the client",
          mine_.product_version.c_str()));
}

bool Conversation::handle_lease(const Message& message) {
  wire::LeaseRequest request;
  if (!message.read(&request)) return malformed(message.kind);
  Result<wire::LeaseReply> lease = handler_->lease(request);
  if (!lease.ok()) return refuse(message.kind, lease.status());
  leases_.push_back(lease->lease_id);
  return answer(message.kind, wire::encode(*lease));
}

bool Conversation::handle_attach(const Message& message) {
  wire::AttachRequest request;
  if (!message.read(&request)) return malformed(message.kind);
  const Status served =
      check_api(request, theirs_.product_version, handler_->apis(), mine_.product_version);
  if (!served.ok()) return refuse(message.kind, served);
  Result<wire::AttachReply> reply = handler_->attach(request, connection_);
  if (!reply.ok()) return refuse(message.kind, reply.status());
  if (!answer(message.kind, wire::encode(*reply))) return false;
  handler_->attached(reply->session_id, std::move(connection_));
  return false;
}

bool Conversation::handle_join(const Message& message) {
  wire::JoinRequest request;
  if (!message.read(&request)) return malformed(message.kind);
  Status status = handler_->join(request);
  if (!status.ok()) return refuse(message.kind, status);
  if (!answer(message.kind, {})) return false;
  handler_->joined(request, std::move(connection_));
  return false;
}

bool Conversation::handle_fetch(const Message& message) {
  wire::JoinRequest request;
  if (!message.read(&request)) return malformed(message.kind);
  if (!connection_.peer().unix_socket)
    return refuse(message.kind, Code::kInvalid, "descriptors are handed over on unix sockets only");
  Result<base::Fd> descriptor = handler_->fetch(request);
  if (!descriptor.ok()) return refuse(message.kind, descriptor.status());
  std::vector<uint8_t> reply = pack(message.kind, Code::kOk, nullptr, 0);
  return connection_.send_all(reply.data(), reply.size(), *descriptor).ok();
}

}  // namespace

Status check_api(const wire::AttachRequest& request, const std::string& client_version,
                 const std::vector<wire::ApiRecord>& served, const std::string& server_version) {
  const std::string name = cleaned(request.api.substr(0, wire::kApiNameBytesMax));
  std::string names;
  for (const wire::ApiRecord& api : served) {
    if (api.name == request.api && api.digest == request.api_digest) return Status();
    if (api.name == request.api) {
      return Status(
          Code::kMismatch,
          base::format("this server is Tendril %s and knows another set of %s calls than "
                       "the client, Tendril %s; install the same version on both",
                       server_version.c_str(), name.c_str(), cleaned(client_version).c_str()));
    }
    names += (names.empty() ? "" : ", ") + api.name;
  }
  return Status(
      Code::kUnsupported,
      base::format("this server, Tendril %s, does not serve the API '%s', it serves %s; "
                   "use a server that does, or install the client's version, Tendril %s, "
                   "on it",
                   server_version.c_str(), name.c_str(), names.empty() ? "none" : names.c_str(),
                   cleaned(client_version).c_str()));
}

void serve_connection(Connection connection, ControlHandler* handler) {
  Conversation(std::move(connection), handler).serve();
}

}  // namespace tendril::session
