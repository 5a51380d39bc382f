// SPDX-License-Identifier: Apache-2.0
// See servers.h.
#include "cli/servers.h"

#include <errno.h>
#include <pwd.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <sstream>
#include <thread>

#include "cli/complain.h"
#include "daemon/token.h"

namespace tendril::cli {
namespace {

using base::Code;
using base::Status;

std::string trimmed(const std::string& text) {
  const char* const space = " \t\r\n";
  const size_t begin = text.find_first_not_of(space);
  return begin == std::string::npos ? ""
                                    : text.substr(begin, text.find_last_not_of(space) - begin + 1);
}

std::string environment(const char* name) {
  const char* const value = getenv(name);
  return value != nullptr ? value : "";
}

bool read_file(const std::string& path, std::string* text) {
  std::ifstream file(path);
  if (!file) return false;
  std::ostringstream all;
  all << file.rdbuf();
  *text = all.str();
  return true;
}

base::Result<std::vector<session::Endpoint>> parse_all(const std::vector<std::string>& texts) {
  std::vector<session::Endpoint> endpoints;
  for (const std::string& text : texts) {
    auto endpoint = session::parse_endpoint(text);
    if (!endpoint.ok()) return endpoint.status();
    endpoints.push_back(endpoint.take());
  }
  return endpoints;
}

std::vector<std::string> conf_candidates() {
  std::string home = environment("XDG_CONFIG_HOME");
  if (home.empty() && !environment("HOME").empty()) home = environment("HOME") + "/.config";
  std::vector<std::string> paths;
  if (!home.empty()) paths.push_back(home + "/tendril/servers.conf");
  paths.push_back("/etc/tendril/servers.conf");
  return paths;
}

std::vector<std::string> split_commas(const std::string& text) {
  std::vector<std::string> parts;
  std::istringstream stream(text);
  for (std::string part; std::getline(stream, part, ',');) {
    part = trimmed(part);
    if (!part.empty()) parts.push_back(part);
  }
  return parts;
}

}  // namespace

base::Result<std::vector<session::Endpoint>> parse_servers_conf(const std::string& text,
                                                                const std::string& path) {
  std::vector<session::Endpoint> endpoints;
  std::istringstream lines(text);
  int number = 0;
  for (std::string line; std::getline(lines, line);) {
    ++number;
    line = trimmed(line.substr(0, line.find('#')));
    if (line.empty()) continue;
    auto endpoint = session::parse_endpoint(line);
    if (!endpoint.ok()) {
      return Status(Code::kInvalid,
                    path + ", line " + std::to_string(number) + ": " + endpoint.status().message());
    }
    endpoints.push_back(endpoint.take());
  }
  return endpoints;
}

base::Result<ServerList> resolve_servers(const std::vector<std::string>& asked) {
  ServerList list;
  std::vector<std::string> texts;
  for (const std::string& text : asked) {
    for (const std::string& part : split_commas(text)) texts.push_back(part);
  }
  list.source = "--server";
  if (texts.empty()) {
    texts = split_commas(environment("TENDRIL_SERVERS"));
    list.source = "TENDRIL_SERVERS";
  }
  if (!texts.empty()) {
    auto endpoints = parse_all(texts);
    if (!endpoints.ok()) return endpoints.status();
    list.endpoints = endpoints.take();
    return list;
  }
  const std::string named = environment("TENDRIL_SERVERS_CONF");
  const std::vector<std::string> paths =
      named.empty() ? conf_candidates() : std::vector<std::string>{named};
  for (const std::string& path : paths) {
    std::string text;
    if (!read_file(path, &text)) {
      if (named.empty()) continue;
      return base::errno_status(Code::kNotFound,
                                ("cannot read TENDRIL_SERVERS_CONF '" + path + "'").c_str(), errno);
    }
    auto endpoints = parse_servers_conf(text, path);
    if (!endpoints.ok()) return endpoints.status();
    list.endpoints = endpoints.take();
    list.source = path;
    if (!list.endpoints.empty()) return list;
  }
  auto endpoints = parse_all({"127.0.0.1"});
  if (!endpoints.ok()) return endpoints.status();
  list.endpoints = endpoints.take();
  list.source = "default";
  return list;
}

base::Result<Reach> reach(const CommonOptions& options) {
  auto servers = resolve_servers(options.servers);
  if (!servers.ok()) return servers.status();
  auto token = daemon::load_token(options.token_file, false);
  if (!token.ok()) return token.status();
  Reach found;
  found.servers = servers.take();
  found.connect.token = token.take();
  found.connect.timeout_ms = options.timeout_ms;
  return found;
}

std::vector<ServerView> ask_servers(const std::vector<session::Endpoint>& endpoints,
                                    const session::ConnectOptions& options) {
  std::vector<ServerView> views(endpoints.size());
  std::vector<std::thread> threads;
  for (size_t i = 0; i < endpoints.size(); ++i) {
    threads.emplace_back([&, i] {
      views[i].endpoint = endpoints[i];
      auto control = session::Control::connect(endpoints[i], options);
      if (!control.ok()) {
        views[i].status = control.status();
        return;
      }
      auto list = (*control)->list();
      if (list.ok()) {
        views[i].list = list.take();
      } else {
        views[i].status = list.status();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  return views;
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
