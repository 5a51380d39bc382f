// SPDX-License-Identifier: Apache-2.0
// What workers let each other open: handles and descriptors of the driver under random tokens
// (wire/assignment.h). A token is a capability, like a descriptor: whoever knows it may open.
//
// Memory that its owner has freed, or left behind by dying, exists as long as somebody has it open.
// Then the opener's lease must pay for it. If that is the owner's own lease, it pays as much as
// before. A session of another lease might be without room at that moment, so its lease pays from
// the opening on, beside the owner. This table knows which leases pay. It only keeps books.
// Sessions calls it under its lock. The peers are workers, which may be hostile, so everything is
// bounded.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <utility>

#include "base/fd.h"
#include "wire/assignment.h"

namespace tendril::daemon {

inline constexpr size_t kExportsPerSessionMax = 16'384;

class Exports {
 public:
  // `descriptors_max`: how many descriptors it may hold. One session gets a quarter of them.
  explicit Exports(size_t descriptors_max) : descriptors_max_(descriptors_max) {}

  // A worker's session, the lease that it is on, and the operating system user that it runs as.
  struct Peer {
    uint64_t session = 0, lease = 0;
    uint32_t user = 0;
  };

  // Fills in record->token.
  wire::ExportAnswer publish(const Peer& peer, wire::ExportRecord* record, base::Fd fd);
  // By token and kind. *fd remains this table's. -1: the thing has none. *charges: charged_bytes of
  // the peer's lease has grown. If the lease has no room, the caller must release the thing again.
  wire::ExportAnswer fetch(const Peer& peer, wire::ExportRecord* record, int* fd, bool* charges);
  // These three return whether charged_bytes may have changed. `freed`: the owner does not pay for
  // the memory any more, as soon as it is told so.
  bool withdraw(uint64_t session, const wire::ExportRecord& record, bool freed);
  bool release(uint64_t session, const wire::ExportRecord& record);
  // The session's worker is gone and has nothing open any more.
  bool end(uint64_t session);

  // Memory on `gpu` that sessions of `lease` have open and that the lease pays for, once.
  uint64_t charged_bytes(uint64_t lease, uint32_t gpu) const;
  size_t size() const { return items_.size(); }

 private:
  struct Opener {
    uint64_t lease = 0;
    uint32_t count = 0;
  };
  struct Item {
    wire::ExportRecord record = {};
    Peer owner;
    base::Fd fd;
    bool withdrawn = false, orphaned = false;
    std::map<uint64_t, Opener> openers;  // by session
    std::set<uint64_t> payers;           // leases
  };
  using Items = std::map<std::string, Item>;
  struct Owner {
    size_t items = 0, descriptors = 0;
  };
  struct Charged {
    uint64_t bytes = 0;
    size_t items = 0;
  };

  Items::iterator find(const wire::ExportRecord& record);
  void close(Item* item, bool freed);
  // Finds which leases pay now. Returns whether that changed.
  bool settle(Item* item);
  Items::iterator drop_if_done(Items::iterator at);

  const size_t descriptors_max_;
  Items items_;                                               // by token
  std::map<uint64_t, Owner> owners_;                          // by session
  std::map<std::pair<uint64_t, uint32_t>, Charged> charged_;  // by lease and GPU
  size_t descriptors_ = 0;
};

}  // namespace tendril::daemon
