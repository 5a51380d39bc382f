// SPDX-License-Identifier: Apache-2.0
// See this_machine.h.
#include "cli/local/this_machine.h"

#include <dirent.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <algorithm>
#include <string>

#include "base/text.h"
#include "cli/local/local_server.h"
#include "cli/servers.h"
#include "config/local_sockets.h"
#include "view/text.h"

namespace tendril::cli {
namespace {

constexpr char kLoadedDriver[] = "/proc/driver/nvidia/version";
constexpr size_t kServersHereMax = 64;

// Whether a server that is started for --local would have a driver.
bool has_driver() {
  const char* const more = getenv("TENDRIL_LOCAL_OPTIONS");
  return access(kLoadedDriver, R_OK) == 0 ||
         (more != nullptr && strstr(more, "--driver") != nullptr);
}

// This machine's servers that let this user in by a socket.
std::vector<session::Endpoint> servers_here() {
  std::vector<session::Endpoint> found;
  for (const std::string& parent : {config::sockets_of_user(), config::sockets_of_root()}) {
    DIR* const listing = parent.empty() ? nullptr : opendir(parent.c_str());
    if (listing == nullptr) continue;
    while (const dirent* entry = readdir(listing)) {
      const unsigned long port = strtoul(entry->d_name, nullptr, 10);
      if (port == 0 || port > UINT16_MAX || found.size() == kServersHereMax) continue;
      for (const char* name : {config::kAdministratorsSocket, config::kUsersSocket}) {
        const std::string path = parent + "/" + entry->d_name + "/" + name;
        if (access(path.c_str(), W_OK) != 0) continue;
        session::Endpoint endpoint;
        endpoint.text = "127.0.0.1:" + std::to_string(port);
        endpoint.port = static_cast<uint16_t>(port);
        endpoint.unix_path = path;
        found.push_back(endpoint);
        break;
      }
    }
    closedir(listing);
  }
  return found;
}

}  // namespace

view::LocalReport local_report(const session::ConnectOptions& connect) {
  auto endpoint = LocalServer::standing();
  if (!endpoint.ok()) return {"failed", endpoint.status().message()};
  auto control = session::Control::connect(*endpoint, connect);
  if (control.ok()) {
    auto list = (*control)->list();
    if (!list.ok()) return {"failed", list.status().message()};
    return {"ok", base::format("%s lends %zu GPU%s of this machine", endpoint->text.c_str(),
                               list->gpus.size(), list->gpus.size() == 1 ? "" : "s")};
  }
  if (control.status().code() != base::Code::kUnavailable)
    return {"failed", control.status().message()};
  if (has_driver()) return {"ok", "no server runs here; 'tendril run --local' starts one"};
  return {"none", "no server runs here, and no driver of NVIDIA is loaded"};
}

void add_local_leases(const session::ConnectOptions& connect,
                      std::vector<view::ServerView>* views) {
  char host[256] = {};
  gethostname(host, sizeof host - 1);
  session::ConnectOptions options = connect;
  options.patience = {};
  for (view::ServerView& view : ask_servers(servers_here(), options)) {
    const bool known = std::any_of(views->begin(), views->end(), [&](const view::ServerView& each) {
      return each.status.ok() && each.list.server_id == view.list.server_id;
    });
    std::vector<wire::LeaseRecord>& leases = view.list.leases;
    std::erase_if(leases, [&](const auto& lease) { return lease.client.host != host; });
    if (!view.status.ok() || known || leases.empty()) continue;
    view.here = true;
    views->push_back(std::move(view));
  }
}

}  // namespace tendril::cli
