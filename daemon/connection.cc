// SPDX-License-Identifier: Apache-2.0
// See connection.h.
#include "daemon/connection.h"

#include "base/clock.h"
#include "base/text.h"
#include "daemon/log.h"

namespace tendril::daemon {

ConnectionHandler::ConnectionHandler(const ConnectionContext* context, session::Peer peer)
    : context_(context), peer_(std::move(peer)) {}

ConnectionHandler::~ConnectionHandler() {
  if (unattached_session_ != 0) context_->sessions->abandon(unattached_session_);
}

wire::Hello ConnectionHandler::hello() { return context_->hello; }

session::Admission ConnectionHandler::admit(const wire::Hello& hello, const session::Peer& peer) {
  session::Admission admission;
  if (peer.trusted) {
    admission.standing = session::Standing::kAdministrator;
    return admission;
  }
  const uint64_t now_ns = base::now_ns();
  const uint64_t wait_ns =
      context_->token.empty() ? 0 : context_->guesses->wait_ns(peer.address, now_ns);
  if (wait_ns != 0 && !hello.token.empty()) {
    admission.refusal = base::Status(
        base::Code::kRefused,
        base::format("too many wrong tokens came from %s; the next one is looked at in %llu s",
                     peer.address.c_str(),
                     static_cast<unsigned long long>(wait_ns / 1'000'000'000u + 1)));
  } else {
    admission = session::admit_by_token(context_->token, hello.token);
    if (!admission.refusal.ok() && !hello.token.empty())
      context_->guesses->wrong(peer.address, now_ns);
  }
  const char* const what = hello.token.empty() ? "missing" : "wrong";
  uint64_t before = 0;
  if (!admission.refusal.ok() &&
      context_->repeats->due(std::string(what) + " " + peer.address, now_ns, &before)) {
    log(Level::kWarning, "%s was refused: its token is %s%s", peer.text.c_str(), what,
        Repeats::text(before).c_str());
  }
  return admission;
}

base::Result<wire::ListReply> ConnectionHandler::list(const wire::ListRequest& request) {
  return context_->list(request);
}

base::Result<wire::LeaseReply> ConnectionHandler::lease(const wire::LeaseRequest& request) {
  return context_->sessions->lease(request);
}

base::Status ConnectionHandler::release(uint64_t lease_id) {
  log(Level::kInfo, "%s asks to end lease %llu", peer_.text.c_str(),
      static_cast<unsigned long long>(lease_id));
  return context_->sessions->release(lease_id);
}

base::Status ConnectionHandler::change(const wire::ChangeRequest& request) {
  log(Level::kInfo, "%s asks to change lease %llu", peer_.text.c_str(),
      static_cast<unsigned long long>(request.lease_id));
  return context_->sessions->change(request);
}

void ConnectionHandler::lease_connection_closed(uint64_t lease_id) {
  // An administrator may have released it before. Then there is nothing to do.
  const base::Status ignored = context_->sessions->release(lease_id);
  (void)ignored;
}

base::Result<wire::AttachReply> ConnectionHandler::attach(
    const wire::AttachRequest& request, const wire::ConnectionRecord& connection) {
  base::Result<wire::AttachReply> reply =
      context_->sessions->attach(request, connection, context_->descriptor_socket);
  if (reply.ok()) unattached_session_ = reply->session_id;
  return reply;
}

void ConnectionHandler::attached(uint64_t session_id, session::Connection connection) {
  unattached_session_ = 0;
  connection.allow_stalls();
  context_->sessions->attached(session_id, std::move(connection));
}

base::Status ConnectionHandler::join(const wire::JoinRequest& request) {
  return context_->sessions->join(request);
}

void ConnectionHandler::joined(const wire::JoinRequest& request, session::Connection connection) {
  connection.allow_stalls();
  context_->sessions->joined(request, std::move(connection));
}

base::Result<base::Fd> ConnectionHandler::fetch(const wire::JoinRequest& request) {
  return context_->sessions->fetch(request);
}

base::Status ConnectionHandler::use(const wire::JoinRequest& request) {
  return context_->sessions->use(request);
}

}  // namespace tendril::daemon
