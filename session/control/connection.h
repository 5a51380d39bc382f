// SPDX-License-Identifier: Apache-2.0
// A connection, its peer and the keys that seal its bytes. Client and tendrild speak the control
// protocol over it, the client perhaps inside a seal (seal.h). Then tendrild hands it to a worker
// as a descriptor and a ConnectionRecord. One thread at a time.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/fd.h"
#include "base/result.h"
#include "session/control/seal.h"
#include "wire/assignment.h"

namespace tendril::session {

struct Peer {
  std::string text;          // "192.0.2.7:4711", "unix pid 17 uid 1000"
  std::string address;       // what counts as one address: "192.0.2.7", "2001:db8::/64", "uid 1000"
  std::string identity;      // its proven identity: "uid 1000", "spiffe://..."; empty: none
  std::string proof;         // how it was proven: "uid", "certificate", "token"; empty: not at all
  bool local = false;        // on this host, by its address
  bool unix_socket = false;  // descriptors can be passed
  // Of an accepted unix connection: the listener's name ('@' first: abstract), and the peer's user,
  // as the kernel says.
  std::string socket_path;
  uint32_t user = 0;
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
  // Waits until something can be received (or the end be seen). kTimeout; kUnavailable: `other`,
  // unless it is -1, became readable before.
  base::Status await(int other, const base::Deadline& deadline);
  // Receives what there is, at least one byte.
  base::Status receive_any(void* into, size_t bytes, const base::Deadline& deadline, size_t* got);

  // Client: runs the handshake of the seal. From then on bytes travel inside it, except those of
  // the two functions for descriptors. A sealed connection cannot be handed to anybody.
  base::Status secure(std::unique_ptr<Seal> seal, const base::Deadline& deadline);
  const Seal* seal() const { return seal_.get(); }
  // True if the peer has ended the connection. Does not wait. Call it only when no answer is due:
  // it drops what the peer has sent unasked.
  bool has_ended();

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
  void set_keys(std::string keys) { keys_ = std::move(keys); }
  base::Fd take_descriptor() { return std::move(fd_); }

 private:
  // Waits for bytes of the seal, and opens them into plain_.
  base::Status open_some(const base::Deadline& deadline);
  base::Status send_sealed(const std::vector<uint8_t>& network, const base::Deadline& deadline);

  base::Fd fd_;
  Peer peer_;
  std::string keys_;
  std::unique_ptr<Seal> seal_;
  std::vector<uint8_t> plain_;  // opened, and not yet received
};

wire::ConnectionRecord record_of(const Peer& peer, const std::string& keys);

// Passes descriptors and one small message between daemon and worker over a unix socket pair.
base::Status send_descriptors(int socket, const void* message, size_t bytes, const int* fds,
                              size_t count);
// *bytes 0: the other end was closed. The descriptors are close-on-exec and belong to the caller.
base::Result<std::vector<int>> receive_descriptors(int socket, void* message, size_t capacity,
                                                   size_t* bytes);

}  // namespace tendril::session
