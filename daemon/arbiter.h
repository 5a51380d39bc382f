// SPDX-License-Identifier: Apache-2.0
// Gives the turns on this server's GPUs: between the turn policy, which decides, and the pages over which
// workers ask, are told, and say that they are done (wire/turn_page.h). A lease's slice is one tenant of its
// GPU, whatever number of sessions are on it: they have their turns together. One thread for all GPUs, which
// sleeps until a worker rings or a turn is overdue; the methods may be called from any thread and do not
// block. A worker is a stranger: what it writes on its page, and how often it rings, may cost time here, and
// never others their turns. Called by daemon/sessions.h.
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
#include "daemon/turn_policy.h"
#include "daemon/use_history.h"
#include "wire/control.h"
#include "wire/turn_page.h"

namespace tendril::daemon {

struct ArbiterOptions {
  TurnRules rules;
  // Workers set the GPU's own time slices by their shares: they divide what turns cannot.
  bool hardware_slices = true;
  // Off: nobody has turns, to see what the hardware does alone.
  bool turns = true;
};

class Arbiter {
 public:
  static base::Result<std::unique_ptr<Arbiter>> start(const ArbiterOptions& options);
  ~Arbiter();

  // A lease's slices become tenants, and its later terms theirs.
  void open(uint64_t lease_id, const std::vector<wire::SliceGrant>& slices, const wire::LeaseTerms& terms);
  void change(uint64_t lease_id, const std::vector<wire::SliceGrant>& slices, const wire::LeaseTerms& terms);
  // Its sessions have left before.
  void close(uint64_t lease_id);

  // What a session's worker is given: its page and its bell. They stay the arbiter's, until `leave`.
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
  struct Tenant;
  struct Part {  // of a session, on one slice
    wire::TurnPart* page = nullptr;
    uint32_t turn = 0;
    bool held = false;
    uint64_t stalled_ns = 0;  // as its page said last
  };
  struct Session {
    Session(SharedPage<wire::TurnPage> shared, base::Fd fd) : page(std::move(shared)), bell(std::move(fd)) {}
    SharedPage<wire::TurnPage> page;
    base::Fd bell;
    uint64_t lease_id = 0;
    std::vector<Part> parts;  // by slice
  };
  struct Tenant {
    TurnPolicy::Tenant id = 0;
    uint32_t gpu_index = 0, slice = 0, share_millionths = 0;
    bool whole = false;  // the whole GPU is its, or something else limits it
    bool free = false;   // has no turns
    bool holding = false, wanting = false;
    bool claims = false;  // for another one of its lease, `claims_with`, that has its turn or is next
    uint32_t claims_with = 0;
    uint64_t until_ns = 0, window_ns = 0;
    uint32_t hardware_slice_us = 0;
    uint64_t wanted_ns = 0;  // when it last did
    UseHistory history;
    uint64_t used_before_ns = 0, waited_before_ns = 0;  // when it last became free
  };
  struct Lease {
    wire::LeaseTerms terms;
    uint64_t began_ns = 0;
    std::vector<Tenant> tenants;  // by slice
    std::vector<Session*> sessions;
  };
  struct Gpu {
    explicit Gpu(const TurnRules& rules) : policy(rules) {}
    TurnPolicy policy;
    std::map<TurnPolicy::Tenant, std::pair<Lease*, Tenant*>> tenants;
    uint64_t retired_used_ns = 0, turns = 0;
    uint64_t announced_ns = 0, prepared_ns = 0;  // the end of a turn for which that has been done
    bool unsettled = false;                       // something was claimed or cut here from another GPU
    uint64_t overdue_millionths = 0;  // shares of those whose work runs beside the others'
  };

  explicit Arbiter(const ArbiterOptions& options) : options_(options) {}
  base::Status watch(int fd, uint64_t key, uint32_t events);
  void run();
  void arm(uint64_t at_ns);

  // Callers of these hold mutex_.
  Gpu& gpu(uint32_t index);
  TurnTerms policy_terms(const Lease& lease, const Tenant& tenant) const;
  void enlist(uint64_t now_ns, Lease* lease, Tenant* tenant);
  void discharge(uint64_t now_ns, Tenant* tenant);
  uint32_t usual_slice_us(const Tenant& tenant) const;
  void describe(const Tenant& tenant, Part* part) const;
  void liberate(const Tenant& tenant, Part* part) const;
  void read(uint64_t now_ns, Lease* lease, Tenant* tenant);
  static bool asks(const Session& session, const Tenant& tenant);
  static uint64_t newly_stalled_ns(const Lease& lease, const Tenant& tenant);
  bool apply(uint64_t now_ns, const TurnPolicy::Turn& turn, Lease* lease, Tenant* tenant);
  void give(const Tenant& tenant, Part* part);
  static uint64_t window_for(uint64_t now_ns, const Gpu& gpu, const Tenant& tenant);
  void fit_windows(uint64_t now_ns, Gpu* gpu);
  void fit_hardware_slices(Gpu* gpu);
  void prepare(uint64_t now_ns, Gpu* gpu);
  static uint32_t lowest_held(uint64_t now_ns, const Lease& lease);
  static bool yields_to(uint64_t now_ns, const Gpu& gpu, const Lease& lease, uint32_t lowest);
  void claim_others(uint64_t now_ns, Lease* lease, const Tenant& first, bool cut);
  void cut_others(uint64_t now_ns, Gpu* gpu);
  void lapse_claims(uint64_t now_ns, Gpu* gpu);
  void settle(uint64_t now_ns, Gpu* gpu);
  void settle_all(uint64_t now_ns);
  void settle_rest(uint64_t now_ns);

  const ArbiterOptions options_;
  base::Fd epoll_, timer_, stop_;
  std::thread thread_;
  std::mutex mutex_;
  std::map<uint32_t, std::unique_ptr<Gpu>> gpus_;          // guarded by mutex_
  std::map<uint64_t, std::unique_ptr<Lease>> leases_;      // guarded by mutex_
  std::map<uint64_t, std::unique_ptr<Session>> sessions_;  // guarded by mutex_
  uint64_t armed_ns_ = TurnPolicy::kNever;                 // guarded by mutex_
  std::atomic<uint64_t> spin_until_ns_{0};                 // a bell is about to ring
};

}  // namespace tendril::daemon
