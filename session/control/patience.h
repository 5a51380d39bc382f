// SPDX-License-Identifier: Apache-2.0
// What a person is told while a request waits: nothing for two seconds, then a line, then another
// one whenever the news has changed. Pure; the time is passed in.
#pragma once

#include <cstdint>
#include <string>

#include "wire/control.h"

namespace tendril::session {

inline constexpr uint64_t kPatienceNs = 2'000'000'000;

class Patience {
 public:
  // `server`: as the user wrote it. `now_ns`: when the request was sent.
  Patience(std::string server, uint64_t now_ns) : server_(std::move(server)), born_ns_(now_ns) {}
  // News has come. The line to show, or nothing.
  std::string heard(const wire::News& news, uint64_t now_ns);

 private:
  const std::string server_;
  const uint64_t born_ns_;
  std::string said_;
};

}  // namespace tendril::session
