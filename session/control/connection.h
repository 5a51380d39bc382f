// SPDX-License-Identifier: Apache-2.0
// A connection with its peer: who that is, and what its bytes are sealed with (nothing, today). The
// control protocol is spoken over it by client and tendrild. Then tendrild hands it to a worker,
// with all that belongs to it, as a descriptor and a ConnectionRecord. One thread at a time.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/fd.h"
#include "base/result.h"
#include "wire/assignment.h"

namespace tendril::session {

struct Peer {
  std::string text;          // "192.0.2.7:4711", "unix pid 17 uid 1000"
  std::string identity;      // who it has proven to be: "uid 1000"; empty: nobody
  bool local = false;        // on this host, by its address
  bool unix_socket = false;  // descriptors can be passed
  bool trusted = false;      // over a unix socket, by this process' user or root
};

class Connection {
 public:
  Connection() = default;
  // Accepted: looks at who the peer is.
  explicit Connection(base::Fd fd);
  // Connected to a server.
  Connection(base::Fd fd, std::string server);
  // Handed over by tendrild.
  Connection(base::Fd fd, const wire::ConnectionRecord& record);

  bool valid() const { return fd_.valid(); }
  // For poll and for passing it on; reading and writing are below.
  int descriptor() const { return fd_.get(); }
  const Peer& peer() const { return peer_; }
  const std::string& keys() const { return keys_; }

  base::Status send_all(const void* data, size_t bytes, const base::Deadline& deadline);
  // kClosed at the end of the stream, kTimeout. *got: what came before that.
  base::Status receive_all(void* into, size_t bytes, const base::Deadline& deadline, size_t* got);
  // With a descriptor riding on the first byte. Unix sockets only.
  base::Status send_all(const void* data, size_t bytes, const base::Fd& riding);
  // As much as comes at once. *riding stays invalid where none came.
  base::Status receive_some(void* into, size_t bytes, const base::Deadline& deadline, size_t* got,
                            base::Fd* riding);

  // A peer that vanished without a word is noticed within seconds. TCP only.
  void keep_alive();
  // A session's connections may stall for minutes for good reasons (a stopped client, a long
  // kernel). This takes back the limit on unacknowledged data that control connections have, for
  // that limit also ends connections whose peer merely does not read. Keep-alive stays. TCP only.
  void allow_stalls();
  // What that limit was for, looked up: data was sent again and again, and nothing came back.
  bool is_half_open() const;
  // Both ends see the end of the stream.
  void shutdown();

  // What a worker needs beside the descriptor. Taken when nothing more is said here.
  wire::ConnectionRecord record() const;
  base::Fd take_descriptor() { return std::move(fd_); }

 private:
  base::Fd fd_;
  Peer peer_;
  std::string keys_;
};

// Passing descriptors and one small message between daemon and worker over a unix socket pair.
base::Status send_descriptors(int socket, const void* message, size_t bytes, const int* fds,
                              size_t count);
// *bytes 0: the other end was closed. The descriptors are close-on-exec and the caller's.
base::Result<std::vector<int>> receive_descriptors(int socket, void* message, size_t capacity,
                                                   size_t* bytes);

}  // namespace tendril::session
