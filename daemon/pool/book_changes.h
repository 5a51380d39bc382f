// SPDX-License-Identifier: Apache-2.0
// What of a server's book its scheduler has not heard yet: all of it at first, then what changed.
// One object for each connection to a scheduler. Pure: book and time are passed in.
//
// A change of what a lease is or holds is told at once, and so is the end or the beginning of idle
// time. Sums that only grow are told every ten seconds. A lease whose last entry was idle and that
// is not told again is still idle, and one whose last entry was active is still active.
#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "wire/pool.h"

namespace tendril::daemon {

class BookChanges {
 public:
  // The whole book again from the next call on.
  void forget();
  // The entries to tell now, at most `limit`; *more: there are others.
  std::vector<wire::BookEntry> take(const std::vector<wire::BookEntry>& book, uint64_t now_ns,
                                    bool* more, size_t limit = wire::kBookEntriesMax);

 private:
  struct Told {
    wire::BookEntry entry;
    uint64_t at_ns = 0;
    uint64_t round = 0;  // the last call that saw the lease
  };
  std::map<uint64_t, Told> told_;  // by lease_id
  uint64_t round_ = 0;
};

// What living leases did so far, if `entries` does not have them; kLeaseUsesMax at most.
std::vector<wire::LeaseUse> uses_of(const std::vector<wire::BookEntry>& book,
                                    const std::vector<wire::BookEntry>& entries);

}  // namespace tendril::daemon
