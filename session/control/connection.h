// SPDX-License-Identifier: Apache-2.0
// A connection, its peer and the keys that seal its bytes (none, today). Client and tendrild speak
// the control protocol over it. Then tendrild hands it to a worker as a descriptor and a
// ConnectionRecord. One thread at a time.
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
  std::string identity;      // its proven identity: "uid 1000"; empty: none
  bool local = false;        // on this host, by its address
  bool unix_socket = false;  // descriptors can be passed
  bool trusted = false;      // over a unix socket, by this process' user or root
};

class Connection {
 public:
  Connection() = default;
  // For an accepted socket. Finds out who the peer is.
  explicit Connection(base::Fd fd);
  // For a socket that is connected to a server.
  Connection(base::Fd fd, std::string server);
  // For a socket that tendrild handed over.
  Connection(base::Fd fd, const wire::ConnectionRecord& record);

  bool valid() const { return fd_.valid(); }
  // For poll and for passing it on; reading and writing are below.
  int descriptor() const { return fd_.get(); }
  const Peer& peer() const { return peer_; }
  const std::string& keys() const { return keys_; }

  base::Status send_all(const void* data, size_t bytes, const base::Deadline& deadline);
  // Returns kClosed at the end of the stream, or kTimeout. *got: the bytes that came before.
  base::Status receive_all(void* into, size_t bytes, const base::Deadline& deadline, size_t* got);
  // Sends with a descriptor attached to the first byte. Unix sockets only.
  base::Status send_all(const void* data, size_t bytes, const base::Fd& riding);
  // Receives as much as comes at once. *riding stays invalid if no descriptor came.
  base::Status receive_some(void* into, size_t bytes, const base::Deadline& deadline, size_t* got,
                            base::Fd* riding);

  // Makes the kernel notice within seconds that a peer has vanished silently. TCP only.
  void keep_alive();
  // Removes the limit on unacknowledged data that control connections have. A session's connections
  // may stall for minutes for good reasons (a stopped client, a long kernel), and the limit also
  // ends connections whose peer merely does not read. Keep-alive stays. TCP only.
  void allow_stalls();
  // True if data was sent again and again, and nothing came back. The removed limit detected this.
  bool is_half_open() const;
  // Both ends see the end of the stream.
  void shutdown();

  // What a worker needs besides the descriptor. Call it when nothing more is sent here.
  wire::ConnectionRecord record() const;
  base::Fd take_descriptor() { return std::move(fd_); }

 private:
  base::Fd fd_;
  Peer peer_;
  std::string keys_;
};

// Passes descriptors and one small message between daemon and worker over a unix socket pair.
base::Status send_descriptors(int socket, const void* message, size_t bytes, const int* fds,
                              size_t count);
// *bytes 0: the other end was closed. The descriptors are close-on-exec and belong to the caller.
base::Result<std::vector<int>> receive_descriptors(int socket, void* message, size_t capacity,
                                                   size_t* bytes);

}  // namespace tendril::session
