// SPDX-License-Identifier: Apache-2.0
// See servers.h.
#include "cli/servers.h"

#include <pwd.h>
#include <stdio.h>
#include <unistd.h>

#include <algorithm>
#include <thread>

#include "base/clock.h"
#include "cli/complain.h"
#include "cli/identity.h"
#include "config/credentials.h"
#include "config/local_sockets.h"
#include "config/servers.h"
#include "identity/certificate.h"

namespace tendril::cli {

using base::Status;

namespace {

constexpr uint64_t kSecondNs = 1'000'000'000;
constexpr int64_t kLookAgainS = 60;

}  // namespace

base::Result<ServerList> resolve_servers(const std::vector<std::string>& asked) {
  auto found = config::find_servers(asked);
  if (!found.ok()) return found.status();
  ServerList list;
  list.source = found->source;
  for (const config::Server& server : found->servers) {
    auto endpoint = session::parse_endpoint(server.endpoint);
    if (!endpoint.ok()) {
      const std::string where = server.where.empty() ? "" : server.where + ": ";
      return Status(endpoint.status().code(), where + endpoint.status().message());
    }
    list.endpoints.push_back(endpoint.take());
  }
  return list;
}

base::Result<Reach> reach(const CommonOptions& options) {
  auto servers = resolve_servers(options.servers);
  if (!servers.ok()) return servers.status();
  auto token = config::load_token(options.token_file, config::TokenUse::kClient);
  if (!token.ok()) return token.status();
  Reach found;
  found.servers = servers.take();
  auto made = securer(*token);
  if (!made.ok()) return made.status();
  found.connect.securer = made.take();
  found.connect.token = token.take();
  found.connect.timeout_ms = options.timeout_ms;
  found.connect.patience = [](const std::string& line) {
    fprintf(stderr, "tendril: %s\n", line.c_str());
  };
  return found;
}

Standing::Standing(const CommonOptions& options, std::vector<session::Endpoint> servers)
    : options_(options), servers_(std::move(servers)), shown_(own_certificates(0).serials) {
  auto token = config::load_token(options.token_file, config::TokenUse::kClient);
  if (!shown_.empty() && token.ok() && token->empty()) look_ns_ = base::now_ns();
}

int Standing::wait_ms() const {
  if (look_ns_ == 0) return -1;
  const uint64_t now_ns = base::now_ns();
  return look_ns_ <= now_ns ? 0 : static_cast<int>((look_ns_ - now_ns) / 1'000'000 + 1);
}

void Standing::look() {
  const uint64_t now_ns = base::now_ns();
  if (look_ns_ == 0 || now_ns < look_ns_) return;
  const auto nanoseconds = [](int64_t seconds) {
    return static_cast<uint64_t>(std::max<int64_t>(seconds, 1)) * kSecondNs;
  };
  const int64_t now_s = identity::wall_clock_s();
  Certificates own = own_certificates(now_s);
  const bool due = now_s >= own.renewal_s && now_ns >= next_try_ns_;
  if (due || own.serials != shown_) {
    show();
    own = own_certificates(now_s);
    next_try_ns_ = now_ns + nanoseconds(own.retry_after_s);
  }
  const int64_t left_s = now_s >= own.renewal_s ? own.retry_after_s : own.renewal_s - now_s;
  look_ns_ = base::now_ns() + nanoseconds(std::min(left_s, kLookAgainS));
}

// Connecting shows it.
void Standing::show() {
  auto fresh = reach(options_);
  const std::string serials = own_certificates(0).serials;
  if (!fresh.ok() || serials == shown_) return;
  bool all = true;
  fresh->connect.patience = {};
  for (const session::Endpoint& endpoint : servers_)
    all = session::Control::connect(endpoint, fresh->connect).ok() && all;
  if (all) shown_ = serials;  // otherwise once more, soon
}

base::Result<Reach> reach_to_administer(const CommonOptions& options) {
  auto found = reach(options);
  if (!found.ok() || found->servers.source != "default") return found;
  for (session::Endpoint& endpoint : found->servers.endpoints) {
    for (const std::string& path : config::administrators_sockets(endpoint.port)) {
      if (endpoint.unix_path.empty() && access(path.c_str(), W_OK) == 0) endpoint.unix_path = path;
    }
  }
  return found;
}

std::vector<ServerView> ask_servers(const std::vector<session::Endpoint>& endpoints,
                                    const session::ConnectOptions& options) {
  std::vector<ServerView> views(endpoints.size());
  std::vector<char> schedules(endpoints.size());
  std::vector<std::thread> threads;
  for (size_t i = 0; i < endpoints.size(); ++i) {
    threads.emplace_back([&, i] {
      views[i].server = endpoints[i].text;
      auto control = session::Control::connect(endpoints[i], options);
      if (!control.ok()) {
        views[i].status = control.status();
        return;
      }
      auto list = (*control)->list();
      if (list.ok()) {
        schedules[i] = (*control)->server_hello().schedules;
        views[i].list = list.take();
      } else {
        views[i].status = list.status();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (size_t i = 0; i < views.size(); ++i) {
    if (schedules[i]) return {std::move(views[i])};
  }
  return views;
}

base::Result<std::unique_ptr<session::Control>> connect_to_one(const Reach& reach) {
  const std::vector<session::Endpoint>& endpoints = reach.servers.endpoints;
  if (endpoints.size() == 1) return session::Control::connect(endpoints[0], reach.connect);
  base::Status why;
  bool is_pool = false;
  for (const session::Endpoint& endpoint : endpoints) {
    auto control = session::Control::connect(endpoint, reach.connect);
    if (!control.ok()) {
      if (why.ok()) why = control.status();
    } else if ((*control)->server_hello().pool.empty()) {
      return base::Status(base::Code::kInvalid,
                          "lease numbers are each server's own: name one with --server");
    } else if ((*control)->server_hello().schedules) {
      return control;
    } else {
      is_pool = true;
    }
  }
  if (!is_pool) return why;
  return base::Status(base::Code::kUnavailable,
                      "nobody schedules this pool now; try again in some seconds");
}

void complain_of_silent(const std::vector<ServerView>& views) {
  for (const ServerView& view : views) {
    if (!view.status.ok()) complain(kFailed, view.status);
  }
}

bool all_answer(const std::vector<ServerView>& views) {
  return std::all_of(views.begin(), views.end(),
                     [](const ServerView& view) { return view.status.ok(); });
}

bool any_answers(const std::vector<ServerView>& views) {
  return std::any_of(views.begin(), views.end(),
                     [](const ServerView& view) { return view.status.ok(); });
}

wire::ClientInfo client_info(const std::string& program) {
  wire::ClientInfo info;
  char host[256] = {};
  gethostname(host, sizeof host - 1);
  info.host = host;
  const passwd* const entry = getpwuid(geteuid());
  info.user = entry != nullptr ? entry->pw_name : std::to_string(geteuid());
  info.program = program.substr(0, 256);
  info.pid = static_cast<uint32_t>(getpid());
  return info;
}

}  // namespace tendril::cli
