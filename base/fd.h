// SPDX-License-Identifier: Apache-2.0
// A descriptor with one owner. Holds a file, socket or memory object and closes it on destruction.
// It does nothing else to the peer (no shutdown), so that a forked child may drop its copies
// without ending its parent's connections.
#pragma once

#include <unistd.h>

namespace tendril::base {

class Fd {
 public:
  Fd() = default;
  explicit Fd(int fd) : fd_(fd) {}
  Fd(Fd&& other) noexcept : fd_(other.release()) {}
  Fd& operator=(Fd&& other) noexcept {
    if (this != &other) reset(other.release());
    return *this;
  }
  Fd(const Fd&) = delete;
  Fd& operator=(const Fd&) = delete;
  ~Fd() { reset(); }

  int get() const { return fd_; }
  bool valid() const { return fd_ >= 0; }
  int release() {
    int fd = fd_;
    fd_ = -1;
    return fd;
  }
  void reset(int fd = -1) {
    if (fd_ >= 0) ::close(fd_);  // EINTR: Linux has closed it nevertheless
    fd_ = fd;
  }

 private:
  int fd_ = -1;
};

}  // namespace tendril::base
