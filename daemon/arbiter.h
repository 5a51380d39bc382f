// SPDX-License-Identifier: Apache-2.0
// Gives the turns on this server's GPUs. It provides the thread, the lock, the bells and the clock
// for the rules in lease/lease_turns.h. The rules read the workers' requests from their pages
// (wire/turn_page.h) and write the decisions there. The thread sleeps until a worker rings or a
// turn is overdue. Any thread may call the methods, which do not block.
//
// A worker is not trusted. However often it rings, it may cost time here, but never another's turn.
// Called by daemon/sessions.h.
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

  // open makes the lease's slices tenants. change gives them new shares and terms.
  void open(uint64_t lease_id, const std::vector<wire::SliceGrant>& slices,
            const wire::LeaseTerms& terms);
  void change(uint64_t lease_id, const std::vector<wire::SliceGrant>& slices,
              const wire::LeaseTerms& terms);
  // A paused lease gets no turns.
  void pause(uint64_t lease_id, bool paused);
  // The lease is a part of a gang (lease/lease_turns.h).
  void set_gang(uint64_t lease_id, uint64_t gang);
  bool in_gang(uint64_t lease_id);
  // Call leave for all its sessions first.
  void close(uint64_t lease_id);

  // The page and the bell for a session's worker. The arbiter owns them until `leave`.
  struct Seat {
    int page_fd, bell_fd;
  };
  base::Result<Seat> join(uint64_t session_id, uint64_t lease_id);
  // The worker is gone. Its turns end.
  void leave(uint64_t session_id);

  std::vector<wire::SliceUse> use_of(uint64_t lease_id);  // by slice
  // Adds the worker's counts of what the session has done.
  void describe(uint64_t session_id, wire::SessionRecord* record);
  lease::LeaseTurns::Work work_of(uint64_t lease_id);
  // GPU time used in turns, by all leases so far.
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
