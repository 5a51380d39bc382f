// SPDX-License-Identifier: Apache-2.0
// Gives the turns on this server's GPUs: the thread, the lock, the bells and the clock around the
// rules (lease/lease_turns.h), which are told what workers ask over their pages
// (wire/turn_page.h), and write there what is decided. It sleeps until a worker rings or a turn is
// overdue; the methods may be called from any thread and do not block. A worker is a stranger: how
// often it rings may cost time here, and never others their turns. Called by daemon/sessions.h.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "base/fd.h"
#include "base/result.h"
#include "daemon/shared_page.h"
#include "lease/lease_turns.h"
#include "wire/control.h"
#include "wire/turn_page.h"

namespace tendril::daemon {

class Arbiter {
 public:
  static base::Result<std::unique_ptr<Arbiter>> start(const lease::SharingOptions& options);
  ~Arbiter();

  // A lease's slices become tenants, and its later terms theirs.
  void open(uint64_t lease_id, const std::vector<wire::SliceGrant>& slices,
            const wire::LeaseTerms& terms);
  void change(uint64_t lease_id, const std::vector<wire::SliceGrant>& slices,
              const wire::LeaseTerms& terms);
  // Its sessions have left before.
  void close(uint64_t lease_id);

  // What a session's worker is given: its page and its bell. They stay the arbiter's, until
  // `leave`.
  struct Seat {
    int page_fd, bell_fd;
  };
  base::Result<Seat> join(uint64_t session_id, uint64_t lease_id);
  // The worker is gone, and with it what it held.
  void leave(uint64_t session_id);

  std::vector<wire::SliceUse> use_of(uint64_t lease_id);  // by slice
  // Adds what the session's worker says that it has done.
  void describe(uint64_t session_id, wire::SessionRecord* record);
  // In turns, by all leases that ever were.
  uint64_t used_ns(uint32_t gpu_index);
  uint64_t turns_given(uint32_t gpu_index);

 private:
  struct Place {  // of a session
    Place(SharedPage<wire::TurnPage> shared, base::Fd fd)
        : page(std::move(shared)), bell(std::move(fd)) {}
    SharedPage<wire::TurnPage> page;
    base::Fd bell;
  };

  explicit Arbiter(const lease::SharingOptions& options);
  base::Status watch(int fd, uint64_t key, uint32_t events);
  void run();
  void follow();

  base::Fd epoll_, timer_, stop_;
  std::thread thread_;
  std::mutex mutex_;
  lease::LeaseTurns turns_;                            // guarded by mutex_
  std::map<uint64_t, std::unique_ptr<Place>> places_;  // guarded by mutex_
  uint64_t armed_ns_ = lease::TurnPolicy::kNever;      // guarded by mutex_
  std::atomic<uint64_t> spin_until_ns_{0};             // a bell is about to ring
};

}  // namespace tendril::daemon
