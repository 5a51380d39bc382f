// SPDX-License-Identifier: Apache-2.0
// What servers tell the holder of a lease: a line for people, and when the program gets which
// signal. Pure; the time is passed in. Used by run.cc.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "base/result.h"
#include "wire/pool.h"

namespace tendril::cli {

// "USR1@120": that signal, 120 seconds before the program loses its GPUs.
struct SignalWish {
  int number = 0;  // 0: none
  uint64_t before_s = 60;
};
// "USR1", "SIGUSR1@120", "10@2m".
base::Result<SignalWish> parse_signal(const std::string& text);

class Notices {
 public:
  static constexpr uint64_t kNever = UINT64_MAX;
  // From the end of a requeue's grace, with SIGTERM, to SIGKILL.
  static constexpr uint64_t kStubbornNs = 5'000'000'000;

  explicit Notices(SignalWish wish) : wish_(wish) {}

  // A notice has come. The line to show; empty: it was shown before (each part of a lease has one).
  std::string heard(const wire::Notice& notice, uint64_t now_ns);
  // The servers are lost and the program is to be started again elsewhere.
  void requeue(uint64_t now_ns);

  // When `due` is to be called. kNever: not.
  uint64_t next_ns() const;
  // The signal that the program gets now, or none.
  std::optional<int> due(uint64_t now_ns);

  // The program is to be started again when it has ended.
  bool requeues() const { return requeues_; }
  // The last word was heard.
  bool has_ended() const { return ended_; }

 private:
  void expect_end(uint64_t end_ns);
  void stop_within(uint64_t in_ns, uint64_t now_ns);

  const SignalWish wish_;
  std::string said_;
  uint64_t said_ns_ = 0;
  bool requeues_ = false, ended_ = false;
  uint64_t end_ns_ = kNever;  // of the GPUs, as far as it was told
  uint64_t signal_ns_ = kNever, term_ns_ = kNever, kill_ns_ = kNever;
};

}  // namespace tendril::cli
