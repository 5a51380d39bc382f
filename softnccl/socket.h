// SPDX-License-Identifier: Apache-2.0
// TCP between ranks: descriptors, waiting that can be broken off, and messages of fixed size. Any
// thread. Every wait takes a Stop: once it is raised, nothing waits any more.
#pragma once

#include <poll.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace tendril::softnccl {

class Socket {
 public:
  Socket() = default;
  explicit Socket(int fd) : fd_(fd) {}
  Socket(Socket&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Socket& operator=(Socket&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  ~Socket();
  int fd() const { return fd_; }
  explicit operator bool() const { return fd_ >= 0; }

 private:
  int fd_ = -1;
};

// An eventfd that is raised once and stays so.
class Stop {
 public:
  Stop();
  void raise();
  bool raised() const;
  void wait() const;  // until raised
  int fd() const { return event_.fd(); }

 private:
  Socket event_;
};

struct Address {
  uint32_t ip = 0;  // both as the network has them
  uint16_t port = 0;
};

enum class Net {
  kDone,
  kStopped,  // the Stop was raised
  kLost,     // the peer is gone
  kFailed    // this machine refused: too many descriptors, no memory
};

// Listens at the knob's address, on a port of the system's choice.
Net listen_anywhere(Socket* made, Address* at);
Net connect_to(Address at, const Stop& stop, Socket* made);
// Takes a waiting connection without waiting. kLost: there is none.
Net accept_one(const Socket& listener, Socket* made);

Net send_all(const Socket& socket, const void* data, size_t bytes, const Stop& stop);
Net receive_all(const Socket& socket, void* data, size_t bytes, const Stop& stop);

// Takes or gives what can be had without waiting and advances *done. kDone also if that was
// nothing.
Net send_some(const Socket& socket, const void* data, size_t bytes, size_t* done);
Net receive_some(const Socket& socket, void* data, size_t bytes, size_t* done);

// Waits for one of `entries` or for the stop, whose entry this appends and takes away.
Net wait_for(std::vector<pollfd>* entries, const Stop& stop, int timeout_ms = -1);

}  // namespace tendril::softnccl
