// SPDX-License-Identifier: Apache-2.0
// See port.h.
#include "dashboard/port.h"

#include <cstring>
#include <utility>

#include "access/decide.h"
#include "dashboard/files.h"
#include "dashboard/rows.h"
#include "reception/log.h"
#include "wire/pool.h"

namespace tendril::dashboard {

using base::Code;
using base::Status;

namespace {

constexpr size_t kConnectionsMax = 512, kStreamsMax = 128;

std::vector<uint8_t> refusal(const Status& why) {
  const std::string text = http::answer_text({403, "text/plain", why.message() + "\n", {}});
  return std::vector<uint8_t>(text.begin(), text.end());
}

// As a browser elsewhere reaches it.
std::string url_of(std::string address, const std::string& host) {
  for (const char* const any : {"0.0.0.0", "[::]", "*"}) {
    const size_t at = address.find(std::string("//") + any + ":");
    if (at != std::string::npos) address.replace(at + 2, strlen(any), host);
  }
  return address;
}

}  // namespace

base::Result<std::unique_ptr<Port>> Port::start(const std::string& address, Source* source,
                                                reception::Front* front) {
  std::unique_ptr<Port> port(new Port);
  port->page_ = std::make_unique<Page>(PageOptions{source, front});
  http::Protection protection;
  if (front->doors().identities()) {
    protection.seal = [front] { return front->doors().seal_page(refusal); };
  }
  http::Bounds bounds;
  bounds.connections_max = kConnectionsMax;
  bounds.streams_max = kStreamsMax;
  bounds.keeps = true;
  auto server = http::Server::start(address, port->page_.get(), std::move(protection), bounds);
  if (!server.ok()) {
    std::string text = "--page: " + server.status().message();
    if (server.status().code() == Code::kInvalid && !front->doors().identities())
      text += "; listen on 127.0.0.1 (ssh -L leads there), or serve with identities";
    return Status(server.status().code(), text);
  }
  port->server_ = server.take();
  port->port_ = port->server_->port();
  port->url_ = url_of(port->server_->addresses().front(), front->host());
  for (const std::string& each : port->server_->addresses())
    reception::log(reception::Level::kInfo, "the page is %s/", each.c_str());
  if (!has_charts())
    reception::log(reception::Level::kInfo,
                   "the page has no charts: this program was built without libjs-dygraphs");
  return port;
}

base::Result<std::vector<uint8_t>> Port::invite(Port* port, const reception::Visitor& visitor) {
  const Status may = visitor.ask(access::Action::kList, "page", std::string());
  if (!may.ok()) return may;
  if (port == nullptr) {
    return Status(Code::kUnsupported,
                  "this process shows no page; start it with --page 127.0.0.1:7480");
  }
  auto pass = port->page_->give_pass(visitor.who());
  if (!pass.ok()) return pass.status();
  wire::PoolAnswer answer;
  answer.json = "{\"url\":" + json_text(port->url_ + "/#pass=" + *pass) + "}";
  return wire::encode(answer);
}

}  // namespace tendril::dashboard
