// SPDX-License-Identifier: Apache-2.0
// See metrics_port.h.
#include "reception/metrics_port.h"

#include "config/credentials.h"
#include "reception/log.h"

namespace tendril::reception {

base::Result<std::unique_ptr<http::Server>> serve_metrics(const std::string& address,
                                                          const std::string& token_file,
                                                          std::function<std::string()> text) {
  http::Router router;
  router.add("GET", "/metrics", [text = std::move(text)](const http::Request&) {
    return http::Response{200, "text/plain; version=0.0.4", text()};
  });
  if (!token_file.empty()) {
    auto token = config::load_token(token_file, config::TokenUse::kServer);
    if (!token.ok())
      return base::Status(token.status().code(), "--metrics-token: " + token.status().message());
    router.require_token(token.take());
  }
  auto server = http::Server::start(address, std::move(router));
  if (!server.ok())
    return base::Status(server.status().code(), "--metrics: " + server.status().message());
  for (const std::string& each : (*server)->addresses())
    log(Level::kInfo, "metrics on %s/metrics", each.c_str());
  return server;
}

}  // namespace tendril::reception
