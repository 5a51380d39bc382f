// SPDX-License-Identifier: Apache-2.0
// The socket between processes behind ipc.h. A request is a token. The answer is an offset and, as
// a descriptor, a file.

#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstdio>
#include <cstring>
#include <mutex>
#include <random>
#include <thread>

#include "softgpu/driver/memory/ipc.h"
#include "softgpu/driver/memory/memory_map.h"
#include "softgpu/driver/stream/shared_event.h"
#include "softgpu/driver/stream/stream.h"

namespace tendril::softgpu {
namespace {

constexpr uint64_t kTokenMagic =
    0x54454e4452494c48;                // distinguishes our handles from arbitrary bytes
constexpr timeval kPatience = {2, 0};  // for a peer on this machine that has nothing else to do

struct Address {
  sockaddr_un name = {};
  socklen_t bytes = 0;
};

// In the abstract name space: the socket goes with the process.
Address address_of(int32_t pid, uint64_t nonce) {
  Address out;
  out.name.sun_family = AF_UNIX;
  const int length =
      snprintf(out.name.sun_path + 1, sizeof out.name.sun_path - 1,
               "tendril-softgpu-test-%d-%016llx", pid, static_cast<unsigned long long>(nonce));
  out.bytes = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + length);
  return out;
}

// The driver's kernel module checks the same.
bool is_same_user(int socket) {
  ucred peer = {};
  socklen_t bytes = sizeof peer;
  return getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &peer, &bytes) == 0 && peer.uid == geteuid();
}

// The file that one of our tokens names; -1 if it is gone.
int resolve(const PeerToken& token, uint64_t* offset) {
  if (token.kind == PeerKind::kEvent) {
    EventPtr event = events().get(reinterpret_cast<CUevent>(token.object));
    std::shared_ptr<SharedEvent> shared = event ? event->shared_state() : nullptr;
    return shared ? shared->file() : -1;
  }
  auto found = MemoryMap::instance().find(token.object);
  if (!found || found->base != token.object || found->id != token.id ||
      (found->kind != MemoryKind::kDevice && found->kind != MemoryKind::kPool))
    return -1;
  Arena& arena = MemoryMap::instance().arena(found->device);
  *offset = found->base - arena.base();
  return arena.file();
}

void serve_one(int socket) {
  setsockopt(socket, SOL_SOCKET, SO_RCVTIMEO, &kPatience, sizeof kPatience);
  PeerToken token;
  if (!is_same_user(socket) || recv(socket, &token, sizeof token, 0) != sizeof token) return;
  uint64_t offset = 0;
  const int file = resolve(token, &offset);
  if (file < 0) return;
  alignas(cmsghdr) char room[CMSG_SPACE(sizeof(int))] = {};
  iovec part = {&offset, sizeof offset};
  msghdr message = {};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = room;
  message.msg_controllen = sizeof room;
  cmsghdr* header = CMSG_FIRSTHDR(&message);
  header->cmsg_level = SOL_SOCKET;
  header->cmsg_type = SCM_RIGHTS;
  header->cmsg_len = CMSG_LEN(sizeof(int));
  memcpy(CMSG_DATA(header), &file, sizeof file);
  sendmsg(socket, &message, MSG_NOSIGNAL);
}

// The nonce of this process' socket. The first call starts to serve it. 0: there is none.
uint64_t served_nonce() {
  static std::mutex lock;
  static uint64_t nonce = 0;
  static pid_t owner = 0;  // a forked child has no thread that serves
  std::lock_guard guard(lock);
  if (owner == getpid()) return nonce;
  std::random_device random;
  const uint64_t wanted = static_cast<uint64_t>(random()) << 32 | random() | 1;
  const Address address = address_of(getpid(), wanted);
  const int listener = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
  if (listener < 0) return 0;
  if (bind(listener, reinterpret_cast<const sockaddr*>(&address.name), address.bytes) != 0 ||
      listen(listener, 16) != 0) {
    close(listener);
    return 0;
  }
  std::thread([listener] {
    for (;;) {
      const int socket = accept4(listener, nullptr, nullptr, SOCK_CLOEXEC);
      if (socket < 0) continue;
      serve_one(socket);
      close(socket);
    }
  }).detach();
  owner = getpid();
  nonce = wanted;
  return nonce;
}

}  // namespace

bool make_token(PeerKind kind, PeerToken* token) {
  token->magic = kTokenMagic;
  token->kind = kind;
  token->pid = getpid();
  token->nonce = served_nonce();
  return token->nonce != 0;
}

bool read_token(const void* handle, PeerKind kind, PeerToken* token) {
  memcpy(token, handle, sizeof *token);
  return token->magic == kTokenMagic && token->kind == kind;
}

int fetch_file(const PeerToken& token, uint64_t* offset) {
  const Address address = address_of(token.pid, token.nonce);
  const int socket = ::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
  if (socket < 0) return -1;
  setsockopt(socket, SOL_SOCKET, SO_RCVTIMEO, &kPatience, sizeof kPatience);
  alignas(cmsghdr) char room[CMSG_SPACE(sizeof(int))] = {};
  iovec part = {offset, sizeof *offset};
  msghdr message = {};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = room;
  message.msg_controllen = sizeof room;
  int file = -1;
  if (connect(socket, reinterpret_cast<const sockaddr*>(&address.name), address.bytes) == 0 &&
      send(socket, &token, sizeof token, MSG_NOSIGNAL) == sizeof token &&
      recvmsg(socket, &message, MSG_CMSG_CLOEXEC) == sizeof *offset) {
    const cmsghdr* header = CMSG_FIRSTHDR(&message);
    if (header != nullptr && header->cmsg_type == SCM_RIGHTS)
      memcpy(&file, CMSG_DATA(header), sizeof file);
  }
  close(socket);
  return file;
}

}  // namespace tendril::softgpu
