// SPDX-License-Identifier: Apache-2.0
// See local_files.h.
#include "reception/local_files.h"

#include <dirent.h>
#include <errno.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>

#include "base/fd.h"
#include "config/local_sockets.h"
#include "config/text.h"

namespace tendril::reception {
namespace {

using base::Code;
using base::Status;

// Makes the folder if it is missing. Nobody else may be able to change what is in it.
Status own_folder(const std::string& path, mode_t mode) {
  const std::string doing = "cannot make the folder '" + path + "'";
  if (mkdir(path.c_str(), mode) != 0 && errno != EEXIST)
    return base::errno_status(Code::kUnavailable, doing.c_str(), errno);
  struct stat facts;
  if (lstat(path.c_str(), &facts) != 0)
    return base::errno_status(Code::kUnavailable, doing.c_str(), errno);
  if (!S_ISDIR(facts.st_mode) || facts.st_uid != geteuid() || (facts.st_mode & 022) != 0) {
    return Status(Code::kRefused,
                  "'" + path + "' is not a folder that only this user can write into; remove it");
  }
  return Status();
}

bool nobody_listens(const std::string& path) {
  sockaddr_un address = {};
  address.sun_family = AF_UNIX;
  if (path.size() >= sizeof address.sun_path) return false;
  memcpy(address.sun_path, path.data(), path.size());
  const base::Fd probe(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!probe.valid()) return false;
  const int failed =
      connect(probe.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address);
  return failed != 0 && (errno == ECONNREFUSED || errno == ENOENT);
}

void remove_dead_server(const std::string& folder) {
  const std::string administrators = folder + "/" + config::kAdministratorsSocket;
  if (!nobody_listens(administrators)) return;
  unlink(administrators.c_str());
  unlink((folder + "/" + config::kUsersSocket).c_str());
  rmdir(folder.c_str());
}

// A server that was killed leaves its sockets behind.
void remove_dead_servers(const std::string& parent) {
  DIR* const listing = opendir(parent.c_str());
  if (listing == nullptr) return;
  while (const dirent* entry = readdir(listing)) {
    const std::string name = entry->d_name;
    const bool number =
        std::all_of(name.begin(), name.end(), [](char c) { return c >= '0' && c <= '9'; });
    if (number) remove_dead_server(parent + "/" + name);
  }
  closedir(listing);
}

// `of_root`, or this user's folder of state. Empty: it has none.
std::string made_folder(const char* of_root) {
  std::string folder = of_root;
  if (geteuid() != 0) {
    folder = config::variable("XDG_STATE_HOME");
    const std::string home = config::variable("HOME");
    if (folder.empty() && !home.empty()) folder = home + "/.local/state";
    if (folder.empty()) return std::string();
    folder += "/tendril";
  }
  for (size_t at = folder.find('/', 1); at != std::string::npos; at = folder.find('/', at + 1))
    mkdir(folder.substr(0, at).c_str(), 0755);
  mkdir(folder.c_str(), 0700);
  return folder;
}

}  // namespace

base::Result<std::string> make_socket_folder(const std::string& asked, uint16_t port) {
  if (asked == "off") return std::string();
  if (asked != "auto") {
    const Status made = own_folder(asked, 0755);
    if (!made.ok()) return made;
    return asked;
  }
  const std::string parent = geteuid() == 0 ? config::sockets_of_root() : config::sockets_of_user();
  if (parent.empty()) return std::string();
  Status made = own_folder(parent, 0755);
  if (!made.ok()) return made;
  remove_dead_servers(parent);
  const std::string folder = parent + "/" + std::to_string(port);
  made = own_folder(folder, 0755);
  if (!made.ok()) return made;
  return folder;
}

std::string default_audit_file() {
  const std::string folder = made_folder("/var/log/tendril");
  return folder.empty() ? folder : folder + "/audit.log";
}

std::string default_state_folder() { return made_folder("/var/lib/tendril"); }

}  // namespace tendril::reception
