// SPDX-License-Identifier: Apache-2.0
// See serve.h.
#include "session/control/serve.h"

#include <algorithm>

#include "base/text.h"
#include "session/control/conversation.h"
#include "session/control/secure_attach.h"

namespace tendril::session {

using base::Code;
using base::Deadline;
using base::Result;
using base::Status;

Outcome refused(uint16_t kind, const Status& status) {
  Outcome outcome;
  outcome.kind = kind;
  outcome.code = status.code();
  outcome.body.assign(status.message().begin(), status.message().end());
  return outcome;
}

Outcome answered(uint16_t kind, std::vector<uint8_t> body) {
  Outcome outcome;
  outcome.kind = kind;
  outcome.body = std::move(body);
  return outcome;
}

Later& Later::operator=(Later&& other) noexcept {
  give_up();
  caller_ = std::move(other.caller_);
  request_ = other.request_;
  kind_ = other.kind_;
  return *this;
}

void Later::finish(Outcome outcome) {
  const std::shared_ptr<Caller> caller = std::move(caller_);
  if (caller != nullptr) caller->answer(request_, std::move(outcome));
}

void Later::give_up() {
  if (valid()) refuse(Status(Code::kUnavailable, "the server ends, and leaves this unanswered"));
}

namespace {

Outcome malformed(uint16_t kind) {
  Outcome outcome = refused(kind, Status(Code::kInvalid, "the request is malformed"));
  outcome.ends = true;
  return outcome;
}

// Never an empty success in place of an answer that is too long.
template <typename Reply>
Outcome answered_with(uint16_t kind, const Reply& reply) {
  std::vector<uint8_t> body = wire::encode(reply);
  if (!body.empty()) return answered(kind, std::move(body));
  return refused(kind, Status(Code::kExhausted,
                              "the answer is too long for one message; use the server's version "
                              "of the client, which asks for parts"));
}

Outcome outcome_of(uint16_t kind, const Status& status) {
  return status.ok() ? answered(kind) : refused(kind, status);
}

// As many records as fit. Records differ in size: a lease may have one slice or 64.
Outcome perform_list(const Message& message, ControlHandler* handler) {
  wire::ListRequest request;
  if (!message.body.empty() && !message.read(&request)) return malformed(message.kind);
  if (request.limit != 0) request.limit = std::min(request.limit, wire::kListPageMax);
  for (;;) {
    Result<wire::ListReply> list = handler->list(request);
    if (!list.ok()) return refused(message.kind, list.status());
    Outcome outcome = answered_with(message.kind, *list);
    if (outcome.code == Code::kOk || request.limit <= 1) return outcome;
    request.limit /= 4;
    request.limit = std::max(request.limit, 1u);
  }
}

Outcome perform_lease(const Message& message, ControlHandler* handler) {
  wire::LeaseRequest request;
  if (!message.read(&request)) return malformed(message.kind);
  Result<wire::LeaseReply> lease = handler->lease(request);
  if (!lease.ok()) return refused(message.kind, lease.status());
  Outcome outcome = answered_with(message.kind, *lease);
  outcome.lease_id = lease->lease_id;
  return outcome;
}

// The lease lives on this connection from now on, as one that was taken here.
Outcome perform_claim(const Message& message, ControlHandler* handler) {
  wire::ClaimRequest request;
  if (!message.read(&request)) return malformed(message.kind);
  Result<wire::LeaseReply> lease = handler->claim(request);
  if (!lease.ok()) return refused(message.kind, lease.status());
  Outcome outcome = answered_with(message.kind, *lease);
  outcome.lease_id = lease->lease_id;
  return outcome;
}

Outcome perform_attach(const Message& message, const Facts& facts, ControlHandler* handler) {
  wire::AttachRequest request;
  if (!message.read(&request)) return malformed(message.kind);
  const Status served =
      check_api(request, facts.theirs.product_version, handler->apis(), facts.mine.product_version);
  if (!served.ok()) return refused(message.kind, served);
  Outcome outcome;
  Result<wire::AttachReply> reply = handler->attach(request, record_of(facts.peer, outcome.keys));
  if (!reply.ok()) return refused(message.kind, reply.status());
  outcome = answered_with(message.kind, *reply);
  if (outcome.code != Code::kOk || request.only_looks) return outcome;
  outcome.handover = Outcome::Handover::kAttached;
  outcome.session_id = reply->session_id;
  return outcome;
}

Outcome perform_secured_attach(const Message& message, const Facts& facts,
                               ControlHandler* handler) {
  wire::SecuredAttach request;
  if (facts.mine.nonce.empty() || !message.read(&request)) return malformed(message.kind);
  Result<std::string> secret = handler->attach_secret(request.key, request.lease_id);
  if (!secret.ok()) return refused(message.kind, secret.status());
  SecureAttachAnswer answer({request.key, request.lease_id, secret.take()},
                            {facts.client_hello, facts.server_hello});
  Result<wire::AttachRequest> inner = answer.read(request);
  Outcome outcome = outcome_of(message.kind, inner.status());
  outcome.ends = true;  // a nonce serves once
  if (!inner.ok()) {
    handler->attach_secret_unknown(request.key);
    return outcome;
  }
  const Status served =
      check_api(*inner, facts.theirs.product_version, handler->apis(), facts.mine.product_version);
  Result<wire::AttachReply> reply =
      served.ok() ? handler->attach(*inner, record_of(facts.peer, answer.session_key()))
                  : Result<wire::AttachReply>(served);
  outcome.body = answer.write(reply);
  if (!reply.ok() || inner->only_looks) return outcome;
  outcome.ends = false;
  outcome.handover = Outcome::Handover::kAttached;
  outcome.session_id = reply->session_id;
  if (reply->sealed) outcome.keys = answer.session_key();
  return outcome;
}

// What says by itself that the peer may ask it.
bool proves_itself(uint16_t kind) {
  switch (wire::Request(kind)) {
    case wire::Request::kSecuredAttach:
    case wire::Request::kJoin:
    case wire::Request::kFetch:
    case wire::Request::kUse:
      return true;
    default:
      return false;
  }
}

Outcome perform_join(const Message& message, const Facts& facts, ControlHandler* handler) {
  wire::JoinRequest request;
  if (!message.read(&request)) return malformed(message.kind);
  request.nonce = facts.mine.nonce;
  const Status status = handler->join(request);
  Outcome outcome = outcome_of(message.kind, status);
  if (!status.ok()) return outcome;
  outcome.handover = Outcome::Handover::kJoined;
  outcome.join = request;
  return outcome;
}

Outcome perform_fetch(const Message& message, const Facts& facts, ControlHandler* handler) {
  wire::JoinRequest request;
  if (!message.read(&request)) return malformed(message.kind);
  if (!facts.peer.unix_socket || facts.sealed) {
    return refused(message.kind,
                   Status(Code::kInvalid, "descriptors are handed over on unix sockets only"));
  }
  Result<base::Fd> descriptor = handler->fetch(request);
  if (!descriptor.ok()) return refused(message.kind, descriptor.status());
  Outcome outcome = answered(message.kind);
  outcome.riding = descriptor.take();
  return outcome;
}

Outcome perform_other(const Message& message, const Facts& facts, ControlHandler* handler) {
  Result<std::vector<uint8_t>> body = handler->other(message, facts);
  if (!body.ok()) return refused(message.kind, body.status());
  if (body->size() > wire::kControlBytesMax)
    return refused(message.kind, Status(Code::kInternal, "the answer is too long"));
  return answered(message.kind, body.take());
}

bool is_known(uint16_t kind) {
  return (kind >= uint16_t(wire::Request::kPing) && kind <= uint16_t(wire::Request::kChange)) ||
         kind == uint16_t(wire::Request::kClaim);
}

// Sends what the conversation wants to send.
Status flush(Connection* connection, Conversation* conversation) {
  while (conversation->has_output()) {
    size_t bytes = 0;
    int riding = -1;
    const uint8_t* data = conversation->output(&bytes, &riding);
    const Status sent = riding >= 0
                            ? send_descriptors(connection->descriptor(), data, bytes, &riding, 1)
                            : connection->send_all(data, bytes, Deadline(kMessageMs));
    if (!sent.ok()) return sent;
    conversation->sent(bytes, base::now_ns());
  }
  return Status();
}

}  // namespace

Outcome perform(const Message& request, const Facts& facts, ControlHandler* handler) {
  if (request.kind == uint16_t(wire::Request::kSecuredAttach))
    return perform_secured_attach(request, facts, handler);
  if (!is_known(request.kind)) return perform_other(request, facts, handler);
  if (facts.standing == Standing::kStranger && !proves_itself(request.kind)) {
    return refused(request.kind, Status(Code::kRefused,
                                        "this server answers only those who say who they are; "
                                        "use the credentials that its administrator gave you"));
  }
  switch (wire::Request(request.kind)) {
    case wire::Request::kPing:
      return answered(request.kind, request.body);
    case wire::Request::kList:
      return perform_list(request, handler);
    case wire::Request::kLease:
      return perform_lease(request, handler);
    case wire::Request::kAttach:
      return perform_attach(request, facts, handler);
    case wire::Request::kJoin:
      return perform_join(request, facts, handler);
    case wire::Request::kFetch:
      return perform_fetch(request, facts, handler);
    case wire::Request::kUse: {
      wire::JoinRequest use;
      if (!request.read(&use)) return malformed(request.kind);
      return outcome_of(request.kind, handler->use(use));
    }
    case wire::Request::kChange: {
      wire::ChangeRequest change;
      if (!request.read(&change)) return malformed(request.kind);
      return outcome_of(request.kind, handler->change(change));
    }
    case wire::Request::kRelease: {
      wire::ReleaseRequest release;
      if (!request.read(&release)) return malformed(request.kind);
      return outcome_of(request.kind, handler->release(release.lease_id));
    }
    case wire::Request::kClaim:
      return perform_claim(request, handler);
    case wire::Request::kPark:
    case wire::Request::kPoolReport:
    case wire::Request::kPoolCommand:
    case wire::Request::kSecuredAttach:
    case wire::Request::kEnroll:
    case wire::Request::kRenew:
    case wire::Request::kDenied:
    case wire::Request::kInvite:
    case wire::Request::kRevoke:
    case wire::Request::kIssued:
    case wire::Request::kMeet:
    case wire::Request::kReach:
      break;
  }
  return perform_other(request, facts, handler);
}

void hand_over(const Outcome& outcome, Connection connection, ControlHandler* handler) {
  connection.set_keys(outcome.keys);
  if (outcome.handover == Outcome::Handover::kAttached)
    handler->attached(outcome.session_id, std::move(connection));
  else if (outcome.handover == Outcome::Handover::kJoined)
    handler->joined(outcome.join, std::move(connection));
}

Admission admit_by_token(const std::string& wanted, const std::string& given) {
  Admission admission;
  admission.standing = Standing::kMember;
  if (wanted.empty() || base::equal_in_constant_time(wanted, given)) return admission;
  admission.refusal =
      Status(Code::kRefused,
             given.empty() ? "this server wants a token and the client sent none; set it in the "
                             "client's configuration"
                           : "the token is wrong: it is not the one this server was started with");
  return admission;
}

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
  connection.keep_alive();
  Conversation conversation(handler, {connection.peer(), {}, {}}, base::now_ns());
  std::vector<uint8_t> buffer(64u << 10);
  for (;;) {
    Message request;
    while (conversation.next(&request, base::now_ns()))
      conversation.complete(perform(request, *conversation.facts(), handler), base::now_ns());
    if (!flush(&connection, &conversation).ok() || conversation.is_over()) break;
    if (conversation.hands_over()) {
      hand_over(conversation.take_outcome(), std::move(connection), handler);
      break;
    }
    const uint64_t end_ns = conversation.deadline_ns(), now_ns = base::now_ns();
    const uint64_t left_ms = end_ns <= now_ns ? 0 : (end_ns - now_ns) / 1'000'000u + 1;
    size_t got = 0;
    const Status received = connection.receive_any(
        buffer.data(), buffer.size(), Deadline(end_ns == UINT64_MAX ? -1 : int(left_ms)), &got);
    if (!received.ok()) break;
    conversation.receive(buffer.data(), got, base::now_ns());
  }
  for (const uint64_t lease : conversation.leases()) handler->lease_connection_closed(lease);
}

}  // namespace tendril::session
