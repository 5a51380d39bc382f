// SPDX-License-Identifier: Apache-2.0
// Which leases are parked: their device memory is in their server's host memory, and share and
// memory are free for others. A lease goes through these states, and only in this order:
//
//   granted -> parking     its workers copy their memory to the host; it holds all that it held
//           -> parked      it holds no share and little memory
//           -> waking      it wants its slices back, and waits until the book has room
//           -> returning   it has its slices again, and its workers copy back
//           -> granted
//
// A park that fails goes back to granted. A wish to wake that comes while the lease is parking is
// remembered. Host memory for parked bytes has a budget; a lease that would pass it is not parked.
//
// A lease that is back keeps its copies in the host's memory, so that it can be parked again at
// once. One that is idle may have them made ahead. They count in the budget, and go when others
// that are parked need the room.
//
// Pure: no clock, lock or I/O. The daemon calls it under its own lock (daemon/sessions.h) and
// passes monotonic nanoseconds.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "base/result.h"
#include "lease/lease_book.h"

namespace tendril::lease {

using wire::Standing;

class Parking {
 public:
  // The book must outlive this object.
  explicit Parking(LeaseBook* book) : book_(book) {}
  // Host memory for parked bytes, and files for those that it has no room for. At first there is
  // none.
  void allow(uint64_t host_budget_bytes, uint64_t file_budget_bytes = 0) {
    host_budget_bytes_ = host_budget_bytes;
    file_budget_bytes_ = file_budget_bytes;
  }

  struct Parked {
    Standing standing = Standing::kGranted;
    uint64_t since_ns = 0;     // of the standing
    uint64_t host_bytes = 0;   // of the budget; what is parked
    bool in_file = false;      // of the files' budget
    uint64_t kept_bytes = 0;   // of the budget; copies of what is on its GPUs
    uint64_t kept_ns = 0;      // since when
    uint64_t new_bytes = 0;    // while it parks: of host_bytes, what was not kept before
    bool wake_wanted = false;  // came while it was parking
    int32_t priority = 0;      // of that wish
    uint64_t parks = 0, wakes = 0;
    uint64_t waited_ns = 0;  // from the wish to wake to its bytes being back, all so far
    uint64_t asked_ns = 0;   // the last wish
  };

  // Which leases must forget their copies (`forget`) so that the budget, or `more_bytes` more than
  // it, has room for this one's `host_bytes`: those that have kept them longest. They are chosen as
  // far as they help.
  std::vector<uint64_t> to_forget(uint64_t lease_id, uint64_t host_bytes,
                                  uint64_t more_bytes = 0) const;
  // The lease has no copies any more. Returns how many bytes that were.
  uint64_t forget(uint64_t lease_id);
  // Its copies are made ahead. False: the budget has no room, or it is not granted.
  bool copy_ahead(uint64_t now_ns, uint64_t lease_id, uint64_t host_bytes);

  // The lease begins to park. `host_bytes`: at most what its workers will copy, to files if
  // `in_file`. kRefused: the budget is used up, the lease is packed, or it is not granted. The text
  // says so.
  base::Status begin(uint64_t now_ns, uint64_t lease_id, uint64_t host_bytes, bool in_file = false);
  // All its workers have copied and released. `stays_bytes`: what stays on its GPUs, by slice.
  void parked(uint64_t now_ns, uint64_t lease_id, uint64_t host_bytes,
              const std::vector<uint64_t>& stays_bytes);
  // The park failed, and everything is where it was.
  void failed(uint64_t now_ns, uint64_t lease_id);
  // It wants to work. Nothing, if it is granted, waking or returning.
  void ask(uint64_t now_ns, uint64_t lease_id, int32_t priority);
  // Those that have their slices again, and are to copy back now. Call it when room may have come.
  std::vector<uint64_t> grant(uint64_t now_ns);
  void returned(uint64_t now_ns, uint64_t lease_id);
  // The lease is over. Call it before the book releases it.
  void end(uint64_t lease_id);

  Standing standing(uint64_t lease_id) const;
  // Null: it has never been parked.
  const Parked* find(uint64_t lease_id) const;
  uint64_t host_used_bytes() const { return host_used_bytes_; }
  uint64_t file_used_bytes() const { return file_used_bytes_; }
  uint64_t file_budget_bytes() const { return file_budget_bytes_; }
  uint64_t host_budget_bytes() const { return host_budget_bytes_; }
  uint64_t kept_bytes(uint64_t lease_id) const;
  // Of it, what leases that are parking now may still take of the machine's free memory.
  uint64_t host_coming_bytes() const;

  // Of these leases, which are to be parked so that `waking` gets its slices: those that have been
  // idle longest, then those that work and have had their memory longest, on the GPUs where it
  // lacks something, until it lacks nothing. Empty: no choice of them helps.
  struct Idle {
    uint64_t lease_id = 0;
    uint64_t idle_ns = 0;  // 0: it works
    uint64_t stay_ns = 0;  // since its memory was back
    std::vector<wire::SliceGrant> slices;
    std::vector<uint64_t> leaves_bytes;  // of each slice, if it is parked
  };
  std::vector<uint64_t> make_room_for(uint64_t waking, std::vector<Idle> idle) const;

 private:
  void stand(Parked* parked, Standing standing, uint64_t now_ns);
  uint64_t& used_of(const Parked& parked) {
    return parked.in_file ? file_used_bytes_ : host_used_bytes_;
  }

  LeaseBook* const book_;
  uint64_t host_budget_bytes_ = 0;
  uint64_t host_used_bytes_ = 0;
  uint64_t file_budget_bytes_ = 0, file_used_bytes_ = 0;
  std::map<uint64_t, Parked> leases_;
};

}  // namespace tendril::lease
