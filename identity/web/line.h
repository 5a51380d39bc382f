// SPDX-License-Identifier: Apache-2.0
// A connection to somebody else's HTTP server, inside TLS or not: an identity provider's
// (identity/web/fetch.h), etcd's (store/). Bytes only. Blocks until a deadline at most. A process
// that writes more than one request ignores SIGPIPE. One thread at a time.
#pragma once

#include <cstddef>
#include <memory>
#include <string>

#include "base/clock.h"
#include "base/result.h"

namespace tendril::identity {

struct Address {
  bool secure = false;
  std::string host, port, path;
};
// "https://host:port/path" or http. False: it is neither.
bool read_address(const std::string& text, Address* address);
// Whether the name means this machine and no other.
bool is_loopback(const std::string& host);

class Line {
 public:
  // Connects to the server and, if that is asked for, shakes hands with it. `ca_file`: whom to
  // believe; empty: the system's authorities. `who`: what messages call the other end, such as
  // "the provider".
  static base::Result<Line> open(const Address& address, const std::string& ca_file,
                                 const std::string& who, const base::Deadline& deadline);
  Line(Line&&) noexcept;
  Line& operator=(Line&&) noexcept;
  ~Line();

  base::Status put(const std::string& text, const base::Deadline& deadline);
  // At least one byte, at most `bytes`; 0: the other end closed the connection.
  base::Result<size_t> take(char* into, size_t bytes, const base::Deadline& deadline);

 private:
  struct State;
  explicit Line(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace tendril::identity
