// SPDX-License-Identifier: Apache-2.0
// See servers.h.
#include "config/servers.h"

#include "config/text.h"

namespace tendril::config {
namespace {

using base::Code;
using base::Status;

constexpr char kThisMachine[] = "127.0.0.1";
constexpr char kFile[] = "/tendril/servers.conf";

// Where the file may be when TENDRIL_SERVERS_CONF names none.
std::vector<std::string> usual_files() {
  std::string folder = variable("XDG_CONFIG_HOME");
  const std::string home = variable("HOME");
  if (folder.empty() && !home.empty()) folder = home + "/.config";
  std::vector<std::string> paths;
  if (!folder.empty()) paths.push_back(folder + kFile);
  paths.push_back(std::string("/etc") + kFile);
  return paths;
}

void add_endpoints(const std::string& text, ServerList* list) {
  for (std::string& endpoint : split(text, ',')) {
    Server server;
    server.endpoint = std::move(endpoint);
    list->servers.push_back(std::move(server));
  }
}

// A file that the user named must exist and name a server. The usual files need not exist.
Status add_from_files(ServerList* list) {
  const std::string named = variable("TENDRIL_SERVERS_CONF");
  const std::vector<std::string> paths =
      named.empty() ? usual_files() : std::vector<std::string>{named};
  for (const std::string& path : paths) {
    base::Result<std::string> text = read_file(path);
    if (!text.ok()) {
      if (named.empty() && text.status().code() == Code::kNotFound) continue;
      if (named.empty()) return text.status();
      return Status(text.status().code(), "TENDRIL_SERVERS_CONF: " + text.status().message());
    }
    list->servers = servers_in_file(*text, path);
    list->source = path;
    if (!list->servers.empty()) return {};
    if (!named.empty())
      return Status(Code::kNotFound, path + " names no server: write one host[:port] per line");
  }
  return {};
}

}  // namespace

std::vector<Server> servers_in_file(const std::string& text, const std::string& path) {
  std::vector<Server> servers;
  size_t number = 0;
  for (size_t at = 0; at < text.size();) {
    size_t end = text.find('\n', at);
    if (end == std::string::npos) end = text.size();
    const std::string line = text.substr(at, end - at);
    at = end + 1;
    ++number;
    Server server;
    server.endpoint = trimmed(line.substr(0, line.find('#')));
    server.where = path + ", line " + std::to_string(number);
    if (!server.endpoint.empty()) servers.push_back(std::move(server));
  }
  return servers;
}

base::Result<ServerList> find_servers(const std::vector<std::string>& asked) {
  ServerList list;
  list.source = "--server";
  for (const std::string& text : asked) add_endpoints(text, &list);
  if (!list.servers.empty()) return list;
  list.source = "TENDRIL_SERVERS";
  add_endpoints(variable("TENDRIL_SERVERS"), &list);
  if (!list.servers.empty()) return list;
  const Status read = add_from_files(&list);
  if (!read.ok()) return read;
  if (!list.servers.empty()) return list;
  list.source = "default";
  add_endpoints(kThisMachine, &list);
  return list;
}

Status with_hint(const ServerList& list, const Status& why) {
  if (why.ok() || !list.is_default()) return why;
  return Status(why.code(),
                why.message() +
                    ". No GPU server is named, so this machine was asked: set "
                    "TENDRIL_SERVERS=host[:port], write one per line to "
                    "~/.config/tendril/servers.conf, or start the program with `tendril run`");
}

}  // namespace tendril::config
