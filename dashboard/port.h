// SPDX-License-Identifier: Apache-2.0
// The port at which a process that serves shows its page. tendrild and a pool's scheduler may have
// one, off by default: in clear on loopback, where users sign in as everywhere else; for other
// hosts inside TLS, so only where there are identities. Called by the process' main thread.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/result.h"
#include "dashboard/page.h"
#include "http/server.h"
#include "reception/visitor.h"

namespace tendril::dashboard {

class Port {
 public:
  // "127.0.0.1:7480". `source` and `front` must outlive it.
  static base::Result<std::unique_ptr<Port>> start(const std::string& address, Source* source,
                                                   reception::Front* front);
  uint16_t port() const { return port_; }
  // Nobody is served any more; invite still answers.
  void stop() { server_.reset(); }
  // The answer to wire::kPagePassKind: an address that signs the visitor in once. `port` may be
  // null: there is no page. Any thread.
  static base::Result<std::vector<uint8_t>> invite(Port* port, const reception::Visitor& visitor);

 private:
  Port() = default;
  std::unique_ptr<Page> page_;
  std::unique_ptr<http::Server> server_;  // goes first: its thread uses the page
  uint16_t port_ = 0;
  std::string url_;
};

}  // namespace tendril::dashboard
