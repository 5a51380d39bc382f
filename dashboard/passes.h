// SPDX-License-Identifier: Apache-2.0
// Who has signed in at the page: passes that work once (`tendril page` shows one), and the sessions
// of browsers, which a cookie names. Random, bounded in number and time, and gone when the process
// ends. The time is passed in. Any thread.
#pragma once

#include <cstdint>
#include <map>
#include <mutex>
#include <optional>
#include <string>

#include "access/principal.h"
#include "base/result.h"

namespace tendril::dashboard {

inline constexpr uint64_t kPassNs = 300ull * 1'000'000'000;          // five minutes
inline constexpr uint64_t kSessionNs = 8ull * 3600 * 1'000'000'000;  // a working day
inline constexpr size_t kPassesMax = 1000, kSessionsMax = 1000;

class Passes {
 public:
  // A pass for this principal. kExhausted: the kernel gives no random bytes.
  base::Result<std::string> give_pass(const access::Principal& who, uint64_t now_ns);
  // Whose it was. It does not work again. Nothing: it is unknown, used or too old.
  std::optional<access::Principal> use_pass(const std::string& pass, uint64_t now_ns);

  base::Result<std::string> begin_session(const access::Principal& who, uint64_t now_ns);
  std::optional<access::Principal> session(const std::string& secret, uint64_t now_ns);
  void end_session(const std::string& secret);

 private:
  struct Entry {
    std::string rest;  // of the secret
    access::Principal who;
    uint64_t until_ns = 0;
  };
  using Entries = std::map<std::string, Entry>;  // by the beginning of the secret
  static Entries::iterator find(const std::string& secret, uint64_t now_ns, Entries* entries);
  static base::Result<std::string> add(const access::Principal& who, uint64_t until_ns,
                                       uint64_t now_ns, size_t most, Entries* entries);
  std::mutex mutex_;
  Entries passes_, sessions_;  // guarded by mutex_
};

}  // namespace tendril::dashboard
