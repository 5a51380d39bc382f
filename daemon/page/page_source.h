// SPDX-License-Identifier: Apache-2.0
// What the page of a lone server shows and does: pictures from this server's listing, and
// what users may do with leases, under the rules of control connections. Any thread.
#pragma once

#include <functional>
#include <string>
#include <utility>

#include "access/guard.h"
#include "daemon/sessions.h"
#include "dashboard/source.h"

namespace tendril::daemon {

class PageSource final : public dashboard::Source {
 public:
  // `list`: all of this server, any thread.
  PageSource(Sessions* sessions, access::Guard* guard, std::function<wire::ListReply()> list)
      : sessions_(sessions), guard_(guard), list_(std::move(list)) {}

  dashboard::Rights rights(const access::Principal& who) const override {
    return dashboard::rights_of(who, false);
  }
  void look(Done<view::Picture> done) override;
  void command(const access::Principal& who, const std::string& address, wire::PoolCommand command,
               Done<std::string> done) override;

 private:
  base::Status release(const access::Principal& who, uint64_t lease_id);
  base::Status park(const access::Principal& who, uint64_t lease_id, bool wake);
  base::Status change(const access::Principal& who, uint64_t lease_id,
                      const std::vector<std::string>& words);
  // Whether the lease is there and `who` may; the answer goes to the audit log.
  base::Status ask(const access::Principal& who, access::Action action, uint64_t lease_id,
                   const access::Guard::Details& details);

  Sessions* const sessions_;
  access::Guard* const guard_;
  const std::function<wire::ListReply()> list_;
};

}  // namespace tendril::daemon
