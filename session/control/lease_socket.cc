// SPDX-License-Identifier: Apache-2.0
// See lease_socket.h.
#include "session/control/lease_socket.h"

#include <fcntl.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

namespace tendril::session {
namespace {

constexpr int kAncestorsMax = 32;
constexpr int kWaitingMax = 64;

struct Process {
  pid_t parent = 0;
  unsigned long long start_ticks = 0;  // since the machine started
};

// False: there is no such process.
bool look_at(pid_t process, Process* found) {
  char path[64], text[1024];
  snprintf(path, sizeof path, "/proc/%d/stat", static_cast<int>(process));
  const base::Fd file(open(path, O_RDONLY | O_CLOEXEC));
  const ssize_t got = file.valid() ? read(file.get(), text, sizeof text - 1) : 0;
  if (got <= 0) return false;
  text[got] = 0;
  // The name stands in brackets and may hold anything.
  const char* const end = strrchr(text, ')');
  int parent = 0;
  if (end == nullptr ||
      sscanf(end + 1,
             " %*c %d %*d %*d %*d %*d %*u %*u %*u %*u %*u %*u %*u %*d %*d %*d %*d %*d %*d %llu",
             &parent, &found->start_ticks) != 2) {
    return false;
  }
  found->parent = parent;
  return true;
}

std::string name_of(pid_t process, const Process& known) {
  return "@tendril-lease-" + std::to_string(geteuid()) + "-" + std::to_string(process) + "-" +
         std::to_string(known.start_ticks);
}

socklen_t address_of(const std::string& name, sockaddr_un* address) {
  memset(address, 0, sizeof *address);
  address->sun_family = AF_UNIX;
  const size_t bytes = name.size() < sizeof address->sun_path ? name.size() : 0;
  memcpy(address->sun_path, name.data(), bytes);
  address->sun_path[0] = 0;
  return static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + bytes);
}

base::Fd connect_to(const std::string& name) {
  base::Fd fd(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_un address;
  const socklen_t bytes = address_of(name, &address);
  if (!fd.valid() || connect(fd.get(), reinterpret_cast<sockaddr*>(&address), bytes) != 0)
    return base::Fd();
  // Any user may listen on any name.
  ucred peer = {};
  socklen_t peer_bytes = sizeof peer;
  const bool known = getsockopt(fd.get(), SOL_SOCKET, SO_PEERCRED, &peer, &peer_bytes) == 0 &&
                     (peer.uid == geteuid() || peer.uid == 0);
  return known ? std::move(fd) : base::Fd();
}

}  // namespace

std::string lease_socket_name(pid_t process) {
  Process known;
  return look_at(process, &known) ? name_of(process, known) : std::string();
}

base::Fd listen_for_lease(pid_t process) {
  const std::string name = lease_socket_name(process);
  base::Fd fd(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  sockaddr_un address;
  const socklen_t bytes = address_of(name, &address);
  if (name.empty() || !fd.valid() ||
      bind(fd.get(), reinterpret_cast<sockaddr*>(&address), bytes) != 0 ||
      listen(fd.get(), kWaitingMax) != 0) {
    return base::Fd();
  }
  return fd;
}

std::vector<base::Fd> lease_holders() {
  std::vector<base::Fd> holders;
  pid_t process = getpid();
  for (int i = 0; i < kAncestorsMax && process > 0; ++i) {
    Process known;
    if (!look_at(process, &known)) break;
    base::Fd fd = connect_to(name_of(process, known));
    if (fd.valid()) holders.push_back(std::move(fd));
    process = known.parent;
  }
  return holders;
}

}  // namespace tendril::session
