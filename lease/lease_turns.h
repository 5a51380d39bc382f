// SPDX-License-Identifier: Apache-2.0
// The rules by which leases take turns on this server's GPUs. LeaseTurns reads the workers'
// requests from their pages, asks each GPU's turn policy, and writes the answers. It also
// coordinates the turns of one lease on several GPUs
// (docs/decisions/0014-turns-on-several-gpus.md). A lease's slice is one tenant of its GPU. All
// sessions on a slice have their turns together.
//
// A tenant without work costs nothing. So the time for each request depends on how many tenants of
// the GPU have work, and not on how many there are.
//
// Apart from the pages it is pure: no clock, lock or file. daemon/arbiter.h calls it under its lock
// and passes the time, which never runs backwards. Tests pass simulated time. The worker at the
// other end of a page is not trusted. What it writes may cost time here, but never another's turn.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <utility>
#include <vector>

#include "lease/turn_policy.h"
#include "lease/use_history.h"
#include "wire/control.h"
#include "wire/turn_page.h"

namespace tendril::lease {

struct SharingOptions {
  TurnRules rules;
  // Workers set the GPU's own time slices by their shares. These divide what turns cannot divide.
  bool hardware_slices = true;
  // False: nobody has turns. This shows what the hardware does alone.
  bool turns = true;
};

class LeaseTurns {
 public:
  // Wakes every worker that sleeps on this part's turn, so that it looks at the page again.
  using Wake = void (*)(wire::TurnPart* part);
  LeaseTurns(const SharingOptions& options, Wake wake) : options_(options), wake_(wake) {
    options_.rules.preempts = options.hardware_slices;
  }

  // open makes the lease's slices tenants. change gives them new shares and terms.
  void open(uint64_t now_ns, uint64_t lease_id, const std::vector<wire::SliceGrant>& slices,
            const wire::LeaseTerms& terms);
  void change(uint64_t now_ns, uint64_t lease_id, const std::vector<wire::SliceGrant>& slices,
              const wire::LeaseTerms& terms);
  // A paused lease gets no turns, whatever its shares are. Its calls wait and none fails. What it
  // has submitted still ends.
  void pause(uint64_t now_ns, uint64_t lease_id, bool paused);
  // The lease is a part of a gang: others of that number, on other servers, have their turns in the
  // same windows. Windows follow the wall clock, so servers need not talk to each other. The first
  // number stays (docs/decisions/0029-gang-windows.md).
  void set_gang(uint64_t lease_id, uint64_t gang);
  bool in_gang(uint64_t lease_id) const;  // and has parts of GPUs
  // The wall clock less the clock of `now_ns`. Windows come as exactly together as servers' wall
  // clocks agree.
  void set_wall_offset(int64_t offset_ns) { wall_offset_ns_ = offset_ns; }
  // Call leave for all its sessions first.
  void close(uint64_t now_ns, uint64_t lease_id);

  bool has_lease(uint64_t lease_id) const { return leases_.count(lease_id) != 0; }
  // Adds a session to a known lease. The page must stay valid until `leave`.
  void join(uint64_t session_id, uint64_t lease_id, wire::TurnPage* page);
  // The worker is gone. Its turns end.
  void leave(uint64_t now_ns, uint64_t session_id);

  // Handles the requests of these sessions, whose workers rang, and what the passing of time
  // changed. Call it without sessions at look_again_ns().
  void hear(uint64_t now_ns, const std::vector<uint64_t>& sessions);
  uint64_t look_again_ns() const { return look_again_ns_; }
  // Until then a bell is likely to ring at any moment. A GPU stands idle while nobody hears it.
  uint64_t listen_until_ns() const { return listen_until_ns_; }

  std::vector<wire::SliceUse> use_of(uint64_t now_ns, uint64_t lease_id);  // by slice
  // Adds the worker's counts of what the session has done.
  void describe(uint64_t session_id, wire::SessionRecord* record) const;
  // What the lease's sessions have had done so far. Only whether it grows matters.
  struct Work {
    uint64_t pieces = 0;  // launches, copies and GPU time
    uint64_t replies = 0;
    bool waiting = false;  // a reply is due
    bool known = true;     // false: a worker does not count
  };
  Work work_of(uint64_t lease_id) const;
  // GPU time used in turns, by all leases so far.
  uint64_t used_ns(uint64_t now_ns, uint32_t gpu_index);
  uint64_t turns_given(uint32_t gpu_index) const;

 private:
  struct Part {  // one session's part on one slice
    wire::TurnPart* page = nullptr;
    uint32_t turn = 0;
    bool held = false;
    uint64_t stalled_ns = 0, outside_ns = 0;  // as last read from its page
  };
  struct Session {
    wire::TurnPage* page = nullptr;
    uint64_t lease_id = 0;
    std::vector<Part> parts;  // by slice
  };
  struct Tenant {
    TurnPolicy::Tenant id = 0;
    uint32_t gpu_index = 0, slice = 0, share_millionths = 0;
    bool whole = false;  // it has the whole GPU, or the vendor's service limits it
    bool free = false;   // has no turns, and needs none
    bool paused = false;
    bool in_gang = false;  // its lease is a part of one
    bool holding = false, wanting = false;
    // It wants its turn now, because slice `claims_with` of its lease has a turn or is next.
    bool claims = false;
    uint32_t claims_with = 0;
    uint64_t until_ns = 0, window_ns = 0;
    uint32_t hardware_slice_us = 0;
    uint64_t wanted_ns = 0;  // when it last wanted a turn
    // Its gang's last window, how much of it was the tenant's, and the use when it began.
    uint64_t window_number = 0, window_part_ns = 0, window_used_ns = 0, window_end_ns = 0;
    UseHistory history;
    uint64_t used_before_ns = 0, waited_before_ns = 0;  // as of when it last ceased to have turns
  };
  struct Lease {
    wire::LeaseTerms terms;
    uint64_t gang = 0;  // 0: none
    uint64_t began_ns = 0;
    bool paused = false;
    std::vector<Tenant> tenants;  // by slice
    std::vector<Session*> sessions;
  };
  // The tenants of one priority on one GPU.
  struct Class {
    size_t tenants = 0, wanting = 0;
    // The two that wanted a turn last: each of them can then see when another one did. 0: none.
    TurnPolicy::Tenant last = 0, before_last = 0;
    uint64_t last_ns = 0, before_last_ns = 0;
  };
  struct Gpu {
    explicit Gpu(const TurnRules& rules) : policy(rules) {}
    TurnPolicy policy;
    std::map<TurnPolicy::Tenant, std::pair<Lease*, Tenant*>> tenants;
    std::map<int32_t, Class> classes;  // by priority; none is empty
    std::set<TurnPolicy::Tenant> claiming;
    std::set<TurnPolicy::Tenant> of_gangs;
    bool window_open = false;  // one of them has its window
    uint64_t retired_used_ns = 0, turns = 0;
    uint64_t announced_ns = 0, prepared_ns = 0;  // the end of the turn for which this has been done
    uint64_t look_again_ns = TurnPolicy::kNever;
    bool unsettled = false;        // another GPU's turns claimed or cut something here
    bool heard = false;            // one of its workers rang
    bool terms_changed = false;    // since the hardware slices were fitted
    uint64_t overdue_changes = 0;  // of the policy, as of when the hardware slices were fitted
    int32_t highest_priority = 0, lowest_priority = 0;
    uint64_t overdue_millionths = 0;  // sum of the shares of overdue tenants
    bool plain_slices = true;         // hardware slices follow the shares alone
  };

  static void look_again_at(Gpu* on, uint64_t at_ns) {
    on->look_again_ns = at_ns < on->look_again_ns ? at_ns : on->look_again_ns;
  }
  Gpu& gpu(uint32_t index);
  // The tenant's share, terms or pause may have changed.
  void refit(uint64_t now_ns, Lease* lease, Tenant* tenant);
  TurnTerms policy_terms(const Lease& lease, const Tenant& tenant) const;
  void enlist(uint64_t now_ns, Lease* lease, Tenant* tenant);
  void discharge(uint64_t now_ns, Lease* lease, Tenant* tenant);
  static void count_classes(Gpu* on);
  static void note_wanted(Class* among, const Tenant& tenant);
  void set_wanting(uint64_t now_ns, Lease* lease, Tenant* tenant, bool wanting);
  void set_claims(Tenant* tenant, bool claims);
  void record_use(uint64_t now_ns, Tenant* tenant);
  uint32_t usual_slice_us(const Tenant& tenant) const;
  uint32_t slice_us(const Gpu& gpu, const Lease& lease, const Tenant& tenant) const;
  void describe(const Tenant& tenant, Part* part) const;
  void liberate(const Tenant& tenant, Part* part) const;
  void read(uint64_t now_ns, Lease* lease, Tenant* tenant);
  static bool asks(const Session& session, const Tenant& tenant);
  static uint64_t newly_stalled_ns(const Lease& lease, const Tenant& tenant);
  static uint64_t newly_outside_ns(const Lease& lease, const Tenant& tenant);
  bool apply(uint64_t now_ns, const TurnPolicy::Turn& turn, Lease* lease, Tenant* tenant);
  void give(const Tenant& tenant, Part* part);
  static uint64_t window_for(uint64_t now_ns, const Gpu& gpu, const Lease& lease,
                             const Tenant& tenant);
  void fit_windows(uint64_t now_ns, Gpu* gpu);
  void fit_hardware_slices(Gpu* gpu);
  static void tell_preempted(uint64_t now_ns, Gpu* gpu);
  static std::vector<std::pair<Lease*, Tenant*>> holders(const Gpu& gpu);
  void prepare(uint64_t now_ns, Gpu* gpu);
  static uint32_t lowest_held(uint64_t now_ns, const Lease& lease);
  static bool yields_to(uint64_t now_ns, const Gpu& gpu, const Lease& lease, uint32_t lowest);
  void claim_others(uint64_t now_ns, Lease* lease, const Tenant& first, bool cut);
  void cut_others(uint64_t now_ns, Gpu* gpu);
  void lapse_claims(uint64_t now_ns, Gpu* gpu);
  void open_windows(uint64_t now_ns, Gpu* gpu);
  void open_window(uint64_t now_ns, Gpu* gpu, const Lease& lease, Tenant* tenant) const;
  void settle(uint64_t now_ns, Gpu* gpu);
  void settle_those_of(uint64_t now_ns, const Lease& lease);
  void settle_rest(uint64_t now_ns);

  SharingOptions options_;
  const Wake wake_;
  std::map<uint32_t, std::unique_ptr<Gpu>> gpus_;
  std::map<uint64_t, std::unique_ptr<Lease>> leases_;
  std::map<uint64_t, std::unique_ptr<Session>> sessions_;
  uint64_t look_again_ns_ = TurnPolicy::kNever;
  uint64_t listen_until_ns_ = 0;
  int64_t wall_offset_ns_ = 0;
};

}  // namespace tendril::lease
