// SPDX-License-Identifier: Apache-2.0
// See connection.h.
#include "daemon/connection.h"

#include "base/text.h"
#include "daemon/log.h"

namespace tendril::daemon {

ConnectionHandler::ConnectionHandler(const ConnectionContext* context, session::Peer peer,
                                     std::function<void()> handed_over)
    : context_(context), peer_(std::move(peer)), handed_over_(std::move(handed_over)) {}

ConnectionHandler::~ConnectionHandler() {
  if (unattached_session_ != 0) context_->sessions->abandon(unattached_session_);
}

wire::Hello ConnectionHandler::hello() { return context_->hello; }

session::Admission ConnectionHandler::admit(const wire::Hello& hello, const session::Peer& peer) {
  session::Admission admission =
      session::admit_by_token(peer.trusted ? "" : context_->token, hello.token);
  if (!admission.refusal.ok()) {
    log(Level::kWarning, "%s was refused: its token is %s", peer.text.c_str(),
        hello.token.empty() ? "missing" : "wrong");
  }
  if (peer.trusted) admission.standing = session::Standing::kAdministrator;
  return admission;
}

base::Status ConnectionHandler::refused() const {
  return context_->refusal.empty() ? base::Status()
                                   : base::Status(base::Code::kUnavailable, context_->refusal);
}

base::Result<wire::ListReply> ConnectionHandler::list(const wire::ListRequest& request) {
  if (!refused().ok()) return refused();
  return context_->list(request);
}

base::Result<wire::LeaseReply> ConnectionHandler::lease(const wire::LeaseRequest& request) {
  if (!refused().ok()) return refused();
  return context_->sessions->lease(request);
}

base::Status ConnectionHandler::release(uint64_t lease_id) {
  if (!refused().ok()) return refused();
  log(Level::kInfo, "%s asks to end lease %llu", peer_.text.c_str(),
      static_cast<unsigned long long>(lease_id));
  return context_->sessions->release(lease_id);
}

base::Status ConnectionHandler::change(const wire::ChangeRequest& request) {
  if (!refused().ok()) return refused();
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
  if (!refused().ok()) return refused();
  base::Result<wire::AttachReply> reply =
      context_->sessions->attach(request, connection, context_->descriptor_socket);
  if (reply.ok()) unattached_session_ = reply->session_id;
  return reply;
}

void ConnectionHandler::attached(uint64_t session_id, session::Connection connection) {
  unattached_session_ = 0;
  handed_over_();
  connection.allow_stalls();
  context_->sessions->attached(session_id, std::move(connection));
}

base::Status ConnectionHandler::join(const wire::JoinRequest& request) {
  if (!refused().ok()) return refused();
  return context_->sessions->join(request);
}

void ConnectionHandler::joined(const wire::JoinRequest& request, session::Connection connection) {
  handed_over_();
  connection.allow_stalls();
  context_->sessions->joined(request, std::move(connection));
}

base::Result<base::Fd> ConnectionHandler::fetch(const wire::JoinRequest& request) {
  if (!refused().ok()) return refused();
  return context_->sessions->fetch(request);
}

base::Status ConnectionHandler::use(const wire::JoinRequest& request) {
  if (!refused().ok()) return refused();
  return context_->sessions->use(request);
}

}  // namespace tendril::daemon
