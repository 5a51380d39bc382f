// SPDX-License-Identifier: Apache-2.0
// A server's half of a pool's two phases. A hold keeps slices on the GPUs that the scheduler named,
// for a few seconds. A commit makes a lease of it, which waits for its client. A claim gives it to
// the client's connection. All slices of a hold are taken or none.
//
// Orders may come twice, late and in any order. The same order again has the same answer. What was
// held under an id and has ended is never held again under that id. Orders of a lower term than the
// highest that was heard are refused. A hold that is committed stays until it is claimed, ends, or
// nobody claims it in time.
//
// Pure: no clock, lock or I/O. The daemon calls it under its lock (daemon/sessions.h), the
// simulation with simulated time. Times are monotonic nanoseconds that never run backwards.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <string>
#include <vector>

#include "base/result.h"
#include "lease/lease_book.h"
#include "wire/control.h"

namespace tendril::lease {

struct HoldRules {
  // From the order to the commit, and from the commit to the claim: if an order does not say, and
  // the most that it can say.
  uint64_t hold_ns = 10'000'000'000, hold_most_ns = 60'000'000'000;
  uint64_t claim_ns = 60'000'000'000, claim_most_ns = 600'000'000'000;
  size_t holds_max = 4096;  // held and committed, together
  size_t ended_max = 4096;  // ids that are remembered after their end
};

enum class HoldState : uint8_t { kHeld, kCommitted, kClaimed };

struct Hold {
  uint64_t pool_lease_id = 0;
  uint64_t lease_id = 0;  // on this server, and in the book
  uint64_t term = 0;      // of the scheduler that ordered it
  HoldState state = HoldState::kHeld;
  uint64_t expires_ns = 0;               // 0: it does not
  std::vector<wire::SliceGrant> asked;   // as the order named them
  std::vector<wire::SliceGrant> slices;  // as the book gave them
};

class Holds {
 public:
  static constexpr uint64_t kNever = UINT64_MAX;

  // The book must outlive this object.
  explicit Holds(LeaseBook* book, HoldRules rules = HoldRules());

  // The highest term that was heard. `hear` refuses a lower one, with kRefused.
  uint64_t term() const { return term_; }
  base::Status hear(uint64_t term);

  // Takes these slices in the book under `lease_id`, a number that the book does not know. A share
  // or a memory of 0 follows from the other, as in a request. *is_new: false if that hold was there
  // before; it then keeps its lease_id, and is held anew from now on. kRefused: there is no room
  // now. kInvalid: it can never be.
  base::Result<Hold> hold(uint64_t now_ns, uint64_t term, uint64_t pool_lease_id, uint64_t lease_id,
                          const std::vector<wire::SliceGrant>& slices, bool* is_new,
                          uint64_t keep_ns = 0);
  // kNotFound: the hold has ended, or there was none. Its slices are not promised to anybody.
  base::Status commit(uint64_t now_ns, uint64_t term, uint64_t pool_lease_id, uint64_t keep_ns = 0);
  // Gives a hold or an unclaimed lease back. Ok if nothing is there. kRefused: it is claimed, and
  // must be ended.
  base::Status cancel(uint64_t term, uint64_t pool_lease_id);
  // For the client that has the lease's secret.
  base::Result<Hold> claim(uint64_t pool_lease_id);
  // The lease's slices are these now.
  void changed(uint64_t pool_lease_id, const std::vector<wire::SliceGrant>& slices);
  // The lease is over, whatever its state was. Does nothing for an unknown id.
  void release(uint64_t pool_lease_id, const std::string& why);

  // Gives back what nobody committed or claimed in time, and says what.
  std::vector<Hold> expire(uint64_t now_ns);
  uint64_t next_expiry_ns() const;  // kNever: nothing expires

  const Hold* find(uint64_t pool_lease_id) const;
  const std::map<uint64_t, Hold>& holds() const { return holds_; }  // by pool_lease_id

 private:
  base::Status gone(uint64_t pool_lease_id) const;
  void end(std::map<uint64_t, Hold>::iterator hold, const std::string& why);
  void remember(uint64_t pool_lease_id, const std::string& why);

  LeaseBook* const book_;
  const HoldRules rules_;
  uint64_t term_ = 0;
  size_t unclaimed_ = 0;
  std::map<uint64_t, Hold> holds_;
  std::map<uint64_t, std::string> ended_;  // why, by pool_lease_id
  std::deque<uint64_t> ended_order_;       // the oldest first
};

}  // namespace tendril::lease
