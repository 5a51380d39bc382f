// SPDX-License-Identifier: Apache-2.0
// See metrics_port.h.
#include "reception/metrics_port.h"

#include <utility>

#include "access/decide.h"
#include "config/credentials.h"
#include "reception/log.h"

namespace tendril::reception {

using base::Code;
using base::Result;
using base::Status;

namespace {

bool may_read(const Front& front, const std::string& identity) {
  if (identity.empty()) return false;
  access::Evidence evidence;
  evidence.certificate = identity;
  return access::may_see(front.guard()->recognize(evidence), std::string());
}

// What a scraper hears whose certificate is not good.
std::vector<uint8_t> refusal(const Status& why) {
  const std::string text = http::answer_text({403, "text/plain", why.message() + "\n"});
  return std::vector<uint8_t>(text.begin(), text.end());
}

}  // namespace

Result<std::unique_ptr<http::Server>> serve_metrics(const std::string& address,
                                                    const std::string& token_file,
                                                    std::function<std::string()> text,
                                                    Front* front) {
  http::Router router;
  router.add("GET", "/metrics", [text = std::move(text)](const http::Request&) {
    return http::Response{200, "text/plain; version=0.0.4", text()};
  });
  if (!token_file.empty()) {
    auto token = config::load_token(token_file, config::TokenUse::kServer);
    if (!token.ok())
      return Status(token.status().code(), "--metrics-token: " + token.status().message());
    router.require_token(token.take());
  }
  http::Protection protection;
  const access::Metrics wanted = front->guard()->settings()->policy.metrics;
  const bool identities = front->doors().identities();
  if (wanted == access::Metrics::kTls && !identities) {
    return Status(Code::kInvalid,
                  "the policy says metrics = \"tls\", and this server has no identity to prove: "
                  "serve with identities (--identity FOLDER), or say metrics = \"clear\"");
  }
  if (identities && wanted != access::Metrics::kClear) {
    protection.seal = [front] { return front->doors().seal_page(refusal); };
    protection.may_ask = [front](const std::string& identity) {
      return may_read(*front, identity);
    };
    protection.on_loopback = wanted == access::Metrics::kTls;
  }
  auto server = http::Server::start(address, std::move(router), std::move(protection));
  if (!server.ok())
    return Status(server.status().code(), "--metrics: " + server.status().message());
  for (const std::string& each : (*server)->addresses())
    log(Level::kInfo, "metrics on %s/metrics", each.c_str());
  return server;
}

}  // namespace tendril::reception
