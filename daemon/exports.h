// SPDX-License-Identifier: Apache-2.0
// What workers let each other open: handles and descriptors of the driver under random tokens
// (wire/assignment.h). A token is a capability, as a descriptor is: who knows it may open. Memory
// that its owner has freed, or left behind by dying, lives on while somebody has it open;
// somebody's slice must pay for it then, and this table knows whose. Bookkeeping only; called by
// Sessions under its lock. The peers are workers, which may be hostile: everything is bounded.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "base/fd.h"
#include "wire/assignment.h"

namespace tendril::daemon {

inline constexpr size_t kExportsPerSessionMax = 16'384;
inline constexpr size_t kExportedDescriptorsMax = 8192;  // of all sessions

class Exports {
 public:
  // `user`: what tells operating system users of workers apart. Fills in record->token.
  wire::ExportAnswer publish(uint64_t session, uint32_t user, wire::ExportRecord* record,
                             base::Fd fd);
  // By token and kind. *fd stays ours; -1: the thing has none.
  wire::ExportAnswer fetch(uint64_t session, uint32_t user, wire::ExportRecord* record, int* fd);
  // These three answer whether orphaned_bytes may have changed. `freed`: the owner does not pay for
  // the memory any more.
  bool withdraw(uint64_t session, const wire::ExportRecord& record, bool freed);
  bool release(uint64_t session, const wire::ExportRecord& record);
  // The session's worker is gone, and with it what it had open.
  bool end(uint64_t session);

  // Memory on `gpu` that `session` has open and its owner no longer pays for. Of several sessions
  // that have it open the first pays.
  uint64_t orphaned_bytes(uint64_t session, uint32_t gpu) const;
  size_t size() const { return items_.size(); }

 private:
  struct Item {
    wire::ExportRecord record = {};
    uint64_t owner = 0;
    uint32_t user = 0;
    base::Fd fd;
    bool withdrawn = false, orphaned = false;
    std::map<uint64_t, uint32_t> openers;  // how often, by session
  };
  using Items = std::map<std::string, Item>;

  Items::iterator find(const wire::ExportRecord& record);
  void close(Item* item, bool freed);
  Items::iterator drop_if_done(Items::iterator at);

  Items items_;                        // by token
  std::map<uint64_t, size_t> counts_;  // by owner
  size_t descriptors_ = 0;
};

}  // namespace tendril::daemon
