// SPDX-License-Identifier: Apache-2.0
// What workers let each other open: handles and descriptors of the driver under random tokens
// (wire/assignment.h). A token is a capability, like a descriptor: whoever knows it may open.
//
// Memory that its owner has freed, or left behind by dying, exists as long as somebody has it open.
// Then that session's slice must pay for it. This table knows which session pays. It only keeps
// books. Sessions calls it under its lock. The peers are workers, which may be hostile, so
// everything is bounded.
#pragma once

#include <cstdint>
#include <map>
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

  // `user` distinguishes the operating system users of workers. Fills in record->token.
  wire::ExportAnswer publish(uint64_t session, uint32_t user, wire::ExportRecord* record,
                             base::Fd fd);
  // By token and kind. *fd remains this table's. -1: the thing has none.
  wire::ExportAnswer fetch(uint64_t session, uint32_t user, wire::ExportRecord* record, int* fd);
  // These three return whether orphaned_bytes may have changed. `freed`: the owner does not pay for
  // the memory any more.
  bool withdraw(uint64_t session, const wire::ExportRecord& record, bool freed);
  bool release(uint64_t session, const wire::ExportRecord& record);
  // The session's worker is gone and has nothing open any more.
  bool end(uint64_t session);

  // Memory on `gpu` that `session` has open and whose owner no longer pays. If several sessions
  // have it open, the first pays.
  uint64_t orphaned_bytes(uint64_t session, uint32_t gpu) const;
  size_t size() const { return items_.size(); }

 private:
  struct Item {
    wire::ExportRecord record = {};
    uint64_t owner = 0;
    uint32_t user = 0;
    base::Fd fd;
    bool withdrawn = false, orphaned = false;
    std::map<uint64_t, uint32_t> openers;  // number of openings, by session
    uint64_t payer = 0;                    // the session that pays for the orphan
  };
  using Items = std::map<std::string, Item>;
  struct Owner {
    size_t items = 0, descriptors = 0;
  };
  struct Orphans {
    uint64_t bytes = 0;
    size_t items = 0;
  };

  Items::iterator find(const wire::ExportRecord& record);
  void close(Item* item, bool freed);
  // Finds which session pays now. Returns whether that changed.
  bool settle(Item* item);
  Items::iterator drop_if_done(Items::iterator at);

  const size_t descriptors_max_;
  Items items_;                                               // by token
  std::map<uint64_t, Owner> owners_;                          // by session
  std::map<std::pair<uint64_t, uint32_t>, Orphans> orphans_;  // by payer and GPU
  size_t descriptors_ = 0;
};

}  // namespace tendril::daemon
