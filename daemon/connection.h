// SPDX-License-Identifier: Apache-2.0
// The daemon's side of one control connection: answers what session::serve_connection decodes.
// Lives on the connection's thread.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "daemon/sessions.h"
#include "session/control/attach.h"

namespace tendril::daemon {

// What every connection shares; constant while the daemon serves.
struct ConnectionContext {
  Sessions* sessions = nullptr;
  wire::Hello hello;
  std::vector<wire::ApiRecord> apis;
  std::string token;                 // empty: none demanded
  std::string shared_memory_socket;  // offered to clients of this host
  std::function<wire::ListReply()> list;
  std::string refusal;  // not empty: every request is refused with it (too many connections)
};

class ConnectionHandler : public session::ControlHandler {
 public:
  // `trusted`: a unix peer with the daemon's own user needs no token. `handed_over` is called when
  // the descriptor went to a session.
  ConnectionHandler(const ConnectionContext* context, std::string peer, bool trusted,
                    std::function<void()> handed_over);
  ~ConnectionHandler() override;

  wire::Hello hello() override;
  std::vector<wire::ApiRecord> apis() override { return context_->apis; }
  bool token_matches(const std::string& token, bool* required) override;
  base::Result<wire::ListReply> list() override;
  base::Result<wire::LeaseReply> lease(const wire::LeaseRequest& request) override;
  base::Status release(uint64_t lease_id) override;
  base::Status change(const wire::ChangeRequest& request) override;
  void lease_connection_closed(uint64_t lease_id) override;
  base::Result<wire::AttachReply> attach(const wire::AttachRequest& request) override;
  void attached(uint64_t session_id, int command_fd) override;
  base::Status join(const wire::JoinRequest& request) override;
  void joined(const wire::JoinRequest& request, int fd) override;
  base::Result<int> share(const wire::JoinRequest& request) override;
  base::Status shared(const wire::JoinRequest& request) override;

 private:
  base::Status refused() const;

  const ConnectionContext* const context_;
  const std::string peer_;
  const bool trusted_;
  const std::function<void()> handed_over_;
  uint64_t unattached_session_ = 0;
};

}  // namespace tendril::daemon
