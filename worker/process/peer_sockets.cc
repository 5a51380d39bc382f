// SPDX-License-Identifier: Apache-2.0
// Replaces socket for everything in this process, because the linker finds the executable's
// function before the C library's. The operator's NCCL makes TCP connections with it, and never
// asks whether the other end is still there: a machine without power would leave its peers waiting
// for ever. So the kernel asks. Any thread.
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace {

// A silent peer is lost after ten seconds, whether it owes data or an acknowledgement.
constexpr int kIdleSeconds = 4, kBetweenSeconds = 2, kProbes = 3, kUnacknowledgedMs = 10'000;

void set(int socket, int level, int name, int value) {
  setsockopt(socket, level, name, &value, sizeof value);
}

}  // namespace

// What a listening socket accepts has its options.
extern "C" int socket(int domain, int type, int protocol) noexcept {
  constexpr int kTypes = 0xf;  // the rest are flags
  const auto made = static_cast<int>(syscall(SYS_socket, domain, type, protocol));
  const bool tcp = (domain == AF_INET || domain == AF_INET6) && (type & kTypes) == SOCK_STREAM;
  if (made < 0 || !tcp) return made;
  set(made, SOL_SOCKET, SO_KEEPALIVE, 1);
  set(made, IPPROTO_TCP, TCP_KEEPIDLE, kIdleSeconds);
  set(made, IPPROTO_TCP, TCP_KEEPINTVL, kBetweenSeconds);
  set(made, IPPROTO_TCP, TCP_KEEPCNT, kProbes);
  set(made, IPPROTO_TCP, TCP_USER_TIMEOUT, kUnacknowledgedMs);
  return made;
}
