// SPDX-License-Identifier: Apache-2.0
// The daemon's side of one control connection. It answers the requests that session::perform
// decodes, one at a time, on the threads of Reception.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "access/guard.h"
#include "daemon/pool/pool_link.h"
#include "daemon/sealing.h"
#include "daemon/sessions.h"
#include "dashboard/port.h"
#include "reception/visitor.h"
#include "session/control/serve.h"

namespace tendril::daemon {

// Shared by all connections. Constant while the daemon serves.
struct ConnectionContext {
  Sessions* sessions = nullptr;
  wire::Hello hello;
  std::vector<wire::ApiRecord> apis;
  reception::Front* front = nullptr;
  Sealing sealing;
  PoolLinks* pool = nullptr;  // null: this server belongs to no pool
  std::string server_id;
  Peers* peers = nullptr;
  dashboard::Port* page = nullptr;  // null: there is none
  std::function<wire::ListReply(const access::Principal& viewer, const wire::ListRequest&)> list;
};

class ConnectionHandler : public session::ControlHandler {
 public:
  ConnectionHandler(const ConnectionContext* context, session::Peer peer);
  ~ConnectionHandler() override;

  wire::Hello hello() override;
  std::vector<wire::ApiRecord> apis() override { return context_->apis; }
  session::Admission admit(const wire::Hello& hello, const session::Peer& peer) override;
  base::Result<wire::ListReply> list(const wire::ListRequest& request) override;
  base::Result<wire::LeaseReply> lease(const wire::LeaseRequest& request) override;
  void meet(std::shared_ptr<session::Caller> caller) override { caller_ = std::move(caller); }
  base::Result<wire::LeaseReply> claim(const wire::ClaimRequest& request) override;
  base::Status release(uint64_t lease_id) override;
  base::Status change(const wire::ChangeRequest& request) override;
  void lease_connection_closed(uint64_t lease_id) override;
  void cut() override { cut_ = true; }
  base::Result<std::string> attach_secret(wire::AttachKey key, uint64_t lease_id) override;
  void attach_secret_unknown(wire::AttachKey key) override;
  base::Result<wire::AttachReply> attach(const wire::AttachRequest& request,
                                         const wire::ConnectionRecord& connection) override;
  void attached(uint64_t session_id, session::Connection connection) override;
  base::Status join(const wire::JoinRequest& request) override;
  void joined(const wire::JoinRequest& request, session::Connection connection) override;
  base::Result<base::Fd> fetch(const wire::JoinRequest& request) override;
  base::Status use(const wire::JoinRequest& request) override;
  base::Result<std::vector<uint8_t>> other(const session::Message& request,
                                           const session::Facts& facts) override;

 private:
  base::Result<std::vector<uint8_t>> park(const session::Message& message);
  // Whether the session's data must be sealed. kRefused: they must be, and cannot.
  base::Result<bool> must_seal_for(const wire::AttachRequest& request, bool has_key) const;
  base::Result<std::vector<uint8_t>> answer_server() const;
  base::Result<std::vector<uint8_t>> way_to(const session::Message& request) const;
  // Not kOk: it must ask this server's pool for a lease.
  base::Status may_lease() const;
  // Its holder hears at this connection what becomes of the lease.
  void listen_for(uint64_t lease_id);
  // Ends a lease that could not be recorded.
  void undo(uint64_t lease_id);
  base::Status ask_about(access::Action action, uint64_t lease_id,
                         const access::Guard::Details& details);
  // Writes what came of a request for slices. Not kOk: it must be undone.
  base::Status record(const char* what, uint64_t lease_id, const access::Decision& decision,
                      const wire::ClientInfo& client, const base::Status& status);

  const ConnectionContext* const context_;
  reception::Visitor visitor_;
  std::shared_ptr<session::Caller> caller_;
  uint64_t unattached_session_ = 0;
  const uint64_t number_;  // tells holders of leases apart
  bool cut_ = false;
};

}  // namespace tendril::daemon
