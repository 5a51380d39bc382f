// SPDX-License-Identifier: Apache-2.0
// A control connection of a pool's scheduler: it recognizes the peer and passes what it asks to the
// Core, on the thread of all connections. The exception: the doors answer on threads of their own.
#pragma once

#include <memory>
#include <string>

#include "dashboard/port.h"
#include "reception/visitor.h"
#include "scheduler/core.h"
#include "session/control/serve.h"

namespace tendril::scheduler {

struct HandlerContext {
  Core* core = nullptr;
  reception::Front* front = nullptr;
  dashboard::Port* page = nullptr;  // null: there is none
  std::string pool, product_version;
};

class Handler final : public session::ControlHandler {
 public:
  Handler(const HandlerContext* context, session::Peer peer);

  wire::Hello hello() override;
  std::vector<wire::ApiRecord> apis() override { return {}; }
  session::Admission admit(const wire::Hello& hello, const session::Peer& peer) override;
  bool defers(uint16_t kind) override;
  void begin(session::Message request, std::shared_ptr<const session::Facts> facts,
             session::Later later) override;
  void gone(bool orderly) override;
  base::Result<std::vector<uint8_t>> other(const session::Message& request,
                                           const session::Facts& facts) override;

  base::Result<wire::ListReply> list(const wire::ListRequest& request) override;
  base::Result<wire::LeaseReply> lease(const wire::LeaseRequest& request) override;
  base::Status release(uint64_t lease_id) override;
  base::Status change(const wire::ChangeRequest& request) override;
  void lease_connection_closed(uint64_t) override {}
  base::Result<wire::AttachReply> attach(const wire::AttachRequest& request,
                                         const wire::ConnectionRecord& connection) override;
  void attached(uint64_t, session::Connection) override {}
  base::Status join(const wire::JoinRequest& request) override;
  void joined(const wire::JoinRequest&, session::Connection) override {}

 private:
  Visit visit() const;

  const HandlerContext* const context_;
  reception::Visitor visitor_;
  uint64_t connection_ = 0;  // 0: it has asked the Core nothing
};

}  // namespace tendril::scheduler
