// SPDX-License-Identifier: Apache-2.0
// See export_handle.h.
#include "client/cuda/memory/export_handle.h"

#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>

#include "client/common/log.h"

namespace tendril::client::cuda {

// Descriptors that were given out: our end of each, and what the other end names.
struct GivenOutExports {
  struct One {
    int fd;
    Session* session;
    uint8_t token[kExportTokenBytes];
  };
  base::Lock lock;
  std::atomic<uint32_t> count{0};  // may be read without the lock
  std::vector<One> all;
};

namespace {

using GivenOut = GivenOutExports::One;

constexpr uint64_t kMagic = 0x786c'6972'646e'6574ull;  // "tendrilx"

// Null: the server cannot be asked.
const uint8_t* server_of(Session* session) {
  if (session->server_known.load(std::memory_order_acquire)) return session->server_id;
  wire::cuda::ipc_server_request request;
  wire::cuda::ipc_server_reply reply;
  if (session->call(static_cast<const Context*>(nullptr), request, reply) != CUDA_SUCCESS ||
      reply.id.count != kServerIdBytes)
    return nullptr;
  const base::Locked held(process()->given_out_exports->lock);
  memcpy(session->server_id, reply.id.data, kServerIdBytes);
  session->server_known.store(true, std::memory_order_release);
  return session->server_id;
}

bool is_on(const ExportHandle& handle, Session* session) {
  const uint8_t* server = server_of(session);
  return server != nullptr && memcmp(server, handle.server, kServerIdBytes) == 0;
}

bool is_closed(int fd) {
  pollfd end = {fd, 0, 0};
  return poll(&end, 1, 0) == 1 && (end.revents & (POLLHUP | POLLERR)) != 0;
}

// Takes out the descriptors whose other end is closed in every process.
std::vector<GivenOut> take_closed(GivenOutExports* exports) {
  std::vector<GivenOut> closed;
  if (exports->count.load(std::memory_order_relaxed) == 0) return closed;
  const base::Locked held(exports->lock);
  std::vector<GivenOut>& all = exports->all;
  for (size_t i = 0; i < all.size();) {
    if (!is_closed(all[i].fd)) {
      ++i;
      continue;
    }
    closed.push_back(all[i]);
    all[i] = all.back();
    all.pop_back();
  }
  exports->count.store(static_cast<uint32_t>(all.size()), std::memory_order_relaxed);
  return closed;
}

}  // namespace

CUresult make_export(Session* session, ExportKind kind, const wire::Bytes& token, uint64_t bytes,
                     ExportHandle* out) {
  if (token.count != kExportTokenBytes) return CUDA_ERROR_UNKNOWN;
  *out = {};
  out->magic = kMagic;
  out->kind = kind;
  out->bytes = bytes;
  memcpy(out->token, token.data,
         kExportTokenBytes);  // before another call uses the buffer it lies in
  const uint8_t* server = server_of(session);
  if (server == nullptr) return Session::lost_result();
  memcpy(out->server, server, kServerIdBytes);
  return CUDA_SUCCESS;
}

CUresult read_export(const void* handle, ExportKind kind, const char* call, Session* preferred,
                     Session** session, ExportHandle* out) {
  memcpy(out, handle, sizeof *out);
  if (out->magic != kMagic || out->kind != kind) return CUDA_ERROR_INVALID_VALUE;
  if (preferred != nullptr && is_on(*out, preferred)) {
    *session = preferred;
    return CUDA_SUCCESS;
  }
  for (Session* other : process()->sessions) {
    if (!is_on(*out, other)) continue;
    *session = other;
    return CUDA_SUCCESS;
  }
  for (Session* other : process()->servers) {
    if (other->begun.load() || other->begin() != CUDA_SUCCESS || !is_on(*out, other)) continue;
    *session = other;
    return CUDA_SUCCESS;
  }
  log_once(LogLevel::kError,
           "%s: the handle is of a GPU server that this process has no GPU of; processes share "
           "memory and events on "
           "one server only (start them under one 'tendril run')",
           call);
  return CUDA_ERROR_INVALID_VALUE;
}

int make_export_descriptor(Session* session, const ExportHandle& handle) {
  int ends[2];
  if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0) return -1;
  GivenOut given = {ends[0], session, {}};
  memcpy(given.token, handle.token, sizeof given.token);
  if (send(ends[0], &handle, sizeof handle, MSG_NOSIGNAL) != static_cast<ssize_t>(sizeof handle)) {
    const int error = errno;
    close(ends[0]);
    close(ends[1]);
    errno = error;
    return -1;
  }
  GivenOutExports& exports = process()->given_out_exports.get();
  const base::Locked held(exports.lock);
  exports.all.push_back(given);
  exports.count.store(static_cast<uint32_t>(exports.all.size()), std::memory_order_relaxed);
  return ends[1];
}

bool read_export_descriptor(int fd, ExportHandle* out) {
  uint8_t message[sizeof *out + 1];  // a longer one is none of ours
  const ssize_t got = recv(fd, message, sizeof message, MSG_PEEK | MSG_DONTWAIT);
  if (got != static_cast<ssize_t>(sizeof *out)) return false;
  memcpy(out, message, sizeof *out);
  return true;
}

void drop_closed_exports() {
  if (process() == nullptr) return;
  for (const GivenOut& gone : take_closed(&process()->given_out_exports.get())) {
    close(gone.fd);
    wire::cuda::ipc_drop_request request;
    request.token = {gone.token, sizeof gone.token};
    gone.session->enqueue(nullptr, request);
  }
}

}  // namespace tendril::client::cuda
