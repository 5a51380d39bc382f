// SPDX-License-Identifier: Apache-2.0
// See lease_turns.h.
#include "lease/lease_turns.h"

#include <algorithm>

namespace tendril::lease {
namespace {

// How much work may be unfinished when a turn ends. This work delays the next turn. While a turn
// has no end, it delays a neighbour that comes. More is allowed when no neighbour came for a while.
constexpr uint64_t kWindowNs = 1'000'000, kWindowAloneNs = 5'000'000, kAloneAfterNs = 1'000'000'000;
constexpr uint64_t kWindowUnderHigherNs = 300'000;  // where a tenant of a higher class may come
// A program that waits for its work gets its answer and sends the next piece within this time.
constexpr uint64_t kLingerNs = 1'000'000;
// A lease's turns on several GPUs should begin together. The first constant is how early the
// holders of the other GPUs are warned. The second is how long a worker keeps its turn while it
// waits for another GPU.
constexpr uint64_t kAnnounceNs = 1'000'000, kAwaitNs = 20'000'000;
// Hardware slices are long enough that switching costs little. They are in proportion to the
// shares, unless the shares are extreme. On an H200, slices of 1,000 to 30,000 us divide time as
// they should.
constexpr uint64_t kHardwareWholeUs = 40'000;
constexpr uint64_t kHardwareMinUs = 1'000, kHardwareMaxUs = 30'000;
// While work is overdue, hardware slices divide the GPU. We keep them short, because the hardware
// gives the rest of a slice away when its queue is empty. The turn's holder gets double, and may
// queue more than one piece.
constexpr uint64_t kBesideUs = 3'000, kBesideMinUs = 250;
// With several classes, a higher class waits for the rest of a lower class's slice. So the lower
// class's slice is short and the higher class's is long. (H200: a slice of 500 us makes it wait up
// to 450 us.) Beside overdue work, very short slices would cost more than they save.
constexpr uint32_t kBelowHigherUs = 100, kAboveLowerUs = 20'000, kBelowBesideUs = 1'000;
// The most that is charged for work that ran between two turns, whatever a page says.
constexpr uint64_t kOutsideMaxNs = 100'000'000;
// Each gang has a window in each period. A second has 30, so every second holds as many.
constexpr uint64_t kGangPeriodNs = 33'333'333;
// A collective that has begun on one server alone waits on its GPU until the next window. Meanwhile
// the others' slices are long and its own is short. It must also lose the GPU soon when its window
// ends.
constexpr uint32_t kInWindowUs = 1'000;
// How long it usually takes from the end of a turn until its work is done.
constexpr uint64_t kListenNs = 400'000;

// True if the slice is the whole GPU, or if the vendor's service limits its processors.
bool has_no_turns(const wire::SliceGrant& slice) {
  return slice.packed || slice.share_millionths >= 1'000'000;
}

uint32_t hardware_slice_us(uint32_t share_millionths) {
  const uint64_t part = kHardwareWholeUs * share_millionths / 1'000'000;
  return static_cast<uint32_t>(std::clamp(part, kHardwareMinUs, kHardwareMaxUs));
}

// The slice of an overdue tenant, and the slice of the tenant that has its turn meanwhile.
uint32_t slice_beside_us(uint64_t share_millionths) {
  return static_cast<uint32_t>(std::max(kBesideUs * share_millionths / 1'000'000, kBesideMinUs));
}
uint64_t slice_of_turn_us(uint64_t overdue_millionths) {
  return std::max(
      2 * kBesideUs * (1'000'000 - std::min<uint64_t>(overdue_millionths, 1'000'000)) / 1'000'000,
      kHardwareMinUs);
}

// Beside gangs. In a window both ends' work fits into it, so little is left to divide.
uint32_t gang_slice_us(bool window_open, bool of_gang) {
  if (window_open) return kInWindowUs;
  return of_gang ? kBelowHigherUs : kAboveLowerUs;
}

}  // namespace

LeaseTurns::Gpu& LeaseTurns::gpu(uint32_t index) {
  std::unique_ptr<Gpu>& found = gpus_[index];
  if (found == nullptr) found = std::make_unique<Gpu>(options_.rules);
  return *found;
}

TurnTerms LeaseTurns::policy_terms(const Lease& lease, const Tenant& tenant) const {
  return {tenant.share_millionths, lease.terms.policy == wire::SharePolicy::kCap,
          lease.terms.priority};
}

void LeaseTurns::enlist(uint64_t now_ns, Lease* lease, Tenant* tenant) {
  Gpu& on = gpu(tenant->gpu_index);
  on.policy.add(now_ns, tenant->id, policy_terms(*lease, *tenant));
  on.tenants[tenant->id] = {lease, tenant};
  if (lease->gang != 0) on.of_gangs.insert(tenant->id);
  Class& among = on.classes[lease->terms.priority];
  ++among.tenants;
  if (tenant->wanted_ns != 0) note_wanted(&among, *tenant);
  on.terms_changed = true;
  tenant->history = UseHistory();
  tenant->history.record(now_ns, tenant->used_before_ns);
}

// The tenant wants a turn, or wanted one until now.
void LeaseTurns::note_wanted(Class* among, const Tenant& tenant) {
  if (tenant.wanted_ns >= among->last_ns) {
    if (among->last != tenant.id) {
      among->before_last = std::exchange(among->last, tenant.id);
      among->before_last_ns = among->last_ns;
    }
    among->last_ns = tenant.wanted_ns;
  } else if (tenant.wanted_ns > among->before_last_ns) {
    among->before_last = tenant.id;
    among->before_last_ns = tenant.wanted_ns;
  }
}

void LeaseTurns::count_classes(Gpu* on) {
  on->classes.clear();
  for (const auto& [id, entry] : on->tenants) {
    const auto& [lease, tenant] = entry;
    Class& among = on->classes[lease->terms.priority];
    ++among.tenants;
    among.wanting += tenant->wanting;
    if (tenant->wanted_ns != 0) note_wanted(&among, *tenant);
  }
}

void LeaseTurns::set_wanting(uint64_t now_ns, Lease* lease, Tenant* tenant, bool wanting) {
  Gpu& on = gpu(tenant->gpu_index);
  Class& among = on.classes[lease->terms.priority];
  if (wanting || tenant->wanting) {
    tenant->wanted_ns = now_ns;
    note_wanted(&among, *tenant);
  }
  among.wanting += wanting;
  among.wanting -= tenant->wanting;
  tenant->wanting = wanting;
  on.policy.set_wanting(now_ns, tenant->id, wanting);
  record_use(now_ns, tenant);
}

void LeaseTurns::set_claims(Tenant* tenant, bool claims) {
  if (tenant->claims == claims) return;
  tenant->claims = claims;
  std::set<TurnPolicy::Tenant>& claiming = gpu(tenant->gpu_index).claiming;
  if (claims)
    claiming.insert(tenant->id);
  else
    claiming.erase(tenant->id);
}

// For a tenant that has work or had it until now. The use of the others does not grow.
void LeaseTurns::record_use(uint64_t now_ns, Tenant* tenant) {
  const TurnPolicy::Use use = gpu(tenant->gpu_index).policy.use(now_ns, tenant->id);
  tenant->history.record(now_ns, tenant->used_before_ns + use.used_ns);
}

void LeaseTurns::discharge(uint64_t now_ns, Lease* lease, Tenant* tenant) {
  Gpu& on = gpu(tenant->gpu_index);
  const TurnPolicy::Use use = on.policy.use(now_ns, tenant->id);
  tenant->used_before_ns += use.used_ns;
  tenant->waited_before_ns += use.waited_ns;
  on.retired_used_ns += use.used_ns;
  on.policy.remove(now_ns, tenant->id);
  on.tenants.erase(tenant->id);
  on.of_gangs.erase(tenant->id);
  const auto among = on.classes.find(lease->terms.priority);
  --among->second.tenants;
  among->second.wanting -= tenant->wanting;
  if (among->second.last == tenant->id || among->second.before_last == tenant->id)
    count_classes(&on);
  else if (among->second.tenants == 0)
    on.classes.erase(among);
  tenant->holding = tenant->wanting = false;
  set_claims(tenant, false);
  on.terms_changed = true;
}

void LeaseTurns::open(uint64_t now_ns, uint64_t lease_id,
                      const std::vector<wire::SliceGrant>& slices, const wire::LeaseTerms& terms) {
  auto lease = std::make_unique<Lease>();
  lease->terms = terms;
  lease->began_ns = now_ns;
  lease->tenants.resize(slices.size());
  for (uint32_t slice = 0; slice < slices.size(); ++slice) {
    Tenant& tenant = lease->tenants[slice];
    tenant.id = lease_id * wire::kSlicesMax + slice;
    tenant.slice = slice;
    tenant.gpu_index = slices[slice].gpu_index;
    tenant.share_millionths = slices[slice].share_millionths;
    tenant.whole = has_no_turns(slices[slice]);
    tenant.free = tenant.whole || !options_.turns;
    tenant.hardware_slice_us = usual_slice_us(tenant);
    if (!tenant.free) enlist(now_ns, lease.get(), &tenant);
  }
  leases_[lease_id] = std::move(lease);
}

uint32_t LeaseTurns::usual_slice_us(const Tenant& tenant) const {
  return options_.hardware_slices && !tenant.whole ? hardware_slice_us(tenant.share_millionths) : 0;
}

// Writes on the page what the worker must know of its slice.
void LeaseTurns::describe(const Tenant& tenant, Part* part) const {
  wire::TurnPart* const page = part->page;
  page->share_millionths.store(tenant.share_millionths, std::memory_order_relaxed);
  page->hardware_slice_us.store(tenant.hardware_slice_us, std::memory_order_relaxed);
  page->linger_ns.store(kLingerNs, std::memory_order_relaxed);
  page->window_ns.store(kWindowNs, std::memory_order_relaxed);
  page->ends_exactly.store(tenant.in_gang ? 1 : 0, std::memory_order_relaxed);
  page->regime.store(tenant.free ? wire::TurnRegime::kFree : wire::TurnRegime::kTurns,
                     std::memory_order_release);
}

// Lets the slice run without turns. The new turn number keeps a worker awake that was about to
// sleep.
void LeaseTurns::liberate(const Tenant& tenant, Part* part) const {
  describe(tenant, part);
  part->held = false;
  part->page->until_ns.store(wire::kTurnWithoutEnd, std::memory_order_relaxed);
  if (++part->turn == 0) ++part->turn;
  part->page->turn.store(part->turn, std::memory_order_release);
  wake_(part->page);
}

void LeaseTurns::change(uint64_t now_ns, uint64_t lease_id,
                        const std::vector<wire::SliceGrant>& slices,
                        const wire::LeaseTerms& terms) {
  const auto found = leases_.find(lease_id);
  if (found == leases_.end()) return;
  Lease* const lease = found->second.get();
  lease->terms = terms;
  for (Tenant& tenant : lease->tenants) {
    if (tenant.free) continue;
    count_classes(&gpu(tenant.gpu_index));
    gpu(tenant.gpu_index).terms_changed = true;
  }
  for (Tenant& tenant : lease->tenants) {
    tenant.share_millionths = slices[tenant.slice].share_millionths;
    tenant.whole = has_no_turns(slices[tenant.slice]);
    refit(now_ns, lease, &tenant);
  }
  settle_those_of(now_ns, *lease);
}

void LeaseTurns::refit(uint64_t now_ns, Lease* lease, Tenant* tenant) {
  const bool was_free = tenant->free, was_paused = tenant->paused;
  tenant->paused = lease->paused;
  tenant->free = (tenant->whole || !options_.turns) && !tenant->paused;
  tenant->hardware_slice_us = usual_slice_us(*tenant);
  if (!was_free && tenant->free) {
    discharge(now_ns, lease, tenant);
  } else if (was_free && !tenant->free) {
    enlist(now_ns, lease, tenant);
  } else if (!tenant->free) {
    gpu(tenant->gpu_index).policy.change(now_ns, tenant->id, policy_terms(*lease, *tenant));
  }
  for (Session* const session : lease->sessions) {
    Part& part = session->parts[tenant->slice];
    if (tenant->free) {
      if (!was_free) liberate(*tenant, &part);
      continue;
    }
    // A slice that had the whole GPU holds no turn now. It must ask for one. A paused one holds
    // none for long.
    if (was_free || tenant->paused) part.page->until_ns.store(now_ns, std::memory_order_relaxed);
    describe(*tenant, &part);
    wake_(part.page);
  }
  // Its workers may have asked while nothing could be had, and wait.
  if (!tenant->free && (tenant->paused || was_paused)) read(now_ns, lease, tenant);
}

void LeaseTurns::pause(uint64_t now_ns, uint64_t lease_id, bool paused) {
  const auto found = leases_.find(lease_id);
  if (found == leases_.end() || found->second->paused == paused) return;
  Lease* const lease = found->second.get();
  lease->paused = paused;
  for (Tenant& tenant : lease->tenants) refit(now_ns, lease, &tenant);
  settle_those_of(now_ns, *lease);
}

void LeaseTurns::set_gang(uint64_t lease_id, uint64_t gang) {
  const auto found = leases_.find(lease_id);
  if (found == leases_.end() || gang == 0 || found->second->gang != 0) return;
  found->second->gang = gang;
  for (Tenant& tenant : found->second->tenants) {
    tenant.in_gang = true;
    if (!tenant.free) gpu(tenant.gpu_index).of_gangs.insert(tenant.id);
    for (Session* const session : found->second->sessions)
      describe(tenant, &session->parts[tenant.slice]);
  }
}

bool LeaseTurns::in_gang(uint64_t lease_id) const {
  const auto found = leases_.find(lease_id);
  if (found == leases_.end() || found->second->gang == 0) return false;
  const std::vector<Tenant>& tenants = found->second->tenants;
  return std::any_of(tenants.begin(), tenants.end(),
                     [](const Tenant& tenant) { return !tenant.free; });
}

void LeaseTurns::close(uint64_t now_ns, uint64_t lease_id) {
  const auto found = leases_.find(lease_id);
  if (found == leases_.end()) return;
  const std::unique_ptr<Lease> lease = std::move(found->second);
  leases_.erase(found);
  for (Tenant& tenant : lease->tenants) {
    if (!tenant.free) discharge(now_ns, lease.get(), &tenant);
  }
  settle_those_of(now_ns, *lease);
}

void LeaseTurns::join(uint64_t session_id, uint64_t lease_id, wire::TurnPage* page) {
  auto session = std::make_unique<Session>();
  session->page = page;
  session->lease_id = lease_id;
  Lease* const lease = leases_.at(lease_id).get();
  session->parts.resize(lease->tenants.size());
  for (const Tenant& tenant : lease->tenants) {
    Part& part = session->parts[tenant.slice];
    part.page = &page->slices[tenant.slice];
    describe(tenant, &part);
    if (tenant.free) continue;
    part.page->preempted_ns.store(gpu(tenant.gpu_index).policy.preempted_ns(tenant.id),
                                  std::memory_order_relaxed);
  }
  lease->sessions.push_back(session.get());
  sessions_[session_id] = std::move(session);
}

void LeaseTurns::leave(uint64_t now_ns, uint64_t session_id) {
  const auto found = sessions_.find(session_id);
  if (found == sessions_.end()) return;
  const std::unique_ptr<Session> session = std::move(found->second);
  sessions_.erase(found);
  const auto lease = leases_.find(session->lease_id);
  if (lease == leases_.end()) return;
  auto& sessions = lease->second->sessions;
  sessions.erase(std::remove(sessions.begin(), sessions.end(), session.get()), sessions.end());
  for (Tenant& tenant : lease->second->tenants) {
    if (!tenant.free) read(now_ns, lease->second.get(), &tenant);
  }
  settle_those_of(now_ns, *lease->second);
}

// Stalled time in the turn that is over. 0 with several workers, because another one's work may
// have run meanwhile.
uint64_t LeaseTurns::newly_stalled_ns(const Lease& lease, const Tenant& tenant) {
  uint64_t sum_ns = 0;
  for (Session* const session : lease.sessions) {
    Part& part = session->parts[tenant.slice];
    const uint64_t said_ns = part.page->stalled_ns.load(std::memory_order_relaxed);
    sum_ns += said_ns - std::min(said_ns, part.stalled_ns);
    part.stalled_ns = said_ns;
  }
  return lease.sessions.size() == 1 ? sum_ns : 0;
}

uint64_t LeaseTurns::newly_outside_ns(const Lease& lease, const Tenant& tenant) {
  uint64_t sum_ns = 0;
  for (Session* const session : lease.sessions) {
    Part& part = session->parts[tenant.slice];
    const uint64_t said_ns = part.page->outside_ns.load(std::memory_order_relaxed);
    sum_ns += std::min(said_ns - std::min(said_ns, part.outside_ns), kOutsideMaxNs);
    part.outside_ns = said_ns;
  }
  return sum_ns;
}

// Does the session ask for a turn here? kWantsTurnToo counts only while the tenant claims this GPU
// and the session has a turn on another slice, or waits for one. Otherwise it has no use for a turn
// here.
bool LeaseTurns::asks(const Session& session, const Tenant& tenant) {
  const uint32_t wants = session.parts[tenant.slice].page->wants.load(std::memory_order_acquire);
  if (wants != wire::kWantsTurnToo) return wants != wire::kWantsNothing;
  if (!tenant.claims) return false;
  for (size_t slice = 0; slice < session.parts.size(); ++slice) {
    const Part& part = session.parts[slice];
    const bool waits = part.page->wants.load(std::memory_order_relaxed) == wire::kWantsTurn;
    if (slice != tenant.slice && (part.held || waits)) return true;
  }
  return false;
}

// Reads from the pages of one tenant's workers which have given up their turn and which want one.
void LeaseTurns::read(uint64_t now_ns, Lease* lease, Tenant* tenant) {
  bool wants = false, held = false;
  for (Session* const session : lease->sessions) {
    Part& part = session->parts[tenant->slice];
    if (part.held && part.page->drained.load(std::memory_order_acquire) == part.turn)
      part.held = false;
    const bool asks = !tenant->paused && LeaseTurns::asks(*session, *tenant);
    // A worker that comes during its tenant's turn joins it.
    if (asks && !part.held && tenant->holding && now_ns < tenant->until_ns) give(*tenant, &part);
    wants |= asks;
    held |= part.held;
  }
  TurnPolicy& policy = gpu(tenant->gpu_index).policy;
  if (tenant->holding && !held) {
    tenant->holding = false;
    policy.charge(now_ns, tenant->id, newly_outside_ns(*lease, *tenant));
    policy.drained(now_ns, tenant->id, newly_stalled_ns(*lease, *tenant));
  }
  set_wanting(now_ns, lease, tenant, wants);
}

uint64_t LeaseTurns::window_for(uint64_t now_ns, const Gpu& on, const Lease& lease,
                                const Tenant& tenant) {
  uint64_t window_ns = tenant.until_ns == TurnPolicy::kNever ? kWindowAloneNs : kWindowNs;
  for (const auto& [priority, among] : on.classes) {
    const bool own = priority == lease.terms.priority;
    const size_t wanting = among.wanting - (own && tenant.wanting ? 1 : 0);
    const uint64_t last_ns = among.last == tenant.id ? among.before_last_ns : among.last_ns;
    const bool of_late = last_ns != 0 && now_ns - last_ns < kAloneAfterNs;
    if (wanting == 0 && !of_late) continue;
    window_ns =
        std::min(window_ns, priority > lease.terms.priority ? kWindowUnderHigherNs : kWindowNs);
  }
  if (on.overdue_millionths == 0) return window_ns;
  return std::max(window_ns, 2000 * slice_of_turn_us(on.overdue_millionths));
}

void LeaseTurns::give(const Tenant& tenant, Part* part) {
  wire::TurnPart* const page = part->page;
  static_assert(TurnPolicy::kNever == wire::kTurnWithoutEnd);
  page->until_ns.store(tenant.paused ? 0 : tenant.until_ns, std::memory_order_relaxed);
  page->window_ns.store(tenant.window_ns, std::memory_order_relaxed);
  if (!part->held) {
    part->held = true;
    if (++part->turn == 0) ++part->turn;
    page->turn.store(part->turn, std::memory_order_release);
  }
  wake_(page);
}

// Gives the turn to the tenant's workers. False: none of them wants it any more.
bool LeaseTurns::apply(uint64_t now_ns, const TurnPolicy::Turn& turn, Lease* lease,
                       Tenant* tenant) {
  tenant->until_ns = turn.until_ns;
  tenant->window_ns = window_for(now_ns, gpu(tenant->gpu_index), *lease, *tenant);
  bool held = false;
  for (Session* const session : lease->sessions) {
    Part& part = session->parts[tenant->slice];
    if (turn.begins) part.page->await_ns.store(0, std::memory_order_relaxed);
    if (part.held || (!tenant->paused && asks(*session, *tenant))) give(*tenant, &part);
    held |= part.held;
  }
  tenant->holding = held;
  if (turn.begins) set_claims(tenant, false);
  return held;
}

std::vector<std::pair<LeaseTurns::Lease*, LeaseTurns::Tenant*>> LeaseTurns::holders(const Gpu& on) {
  std::vector<std::pair<Lease*, Tenant*>> found;
  for (const TurnPolicy::Tenant id : on.policy.active()) {
    const auto& entry = on.tenants.at(id);
    if (entry.second->holding) found.push_back(entry);
  }
  return found;
}

// Adapts the windows of turns without end. The window grows when no neighbour has come for a while.
void LeaseTurns::fit_windows(uint64_t now_ns, Gpu* on) {
  for (const auto& [lease, tenant] : holders(*on)) {
    if (tenant->until_ns != TurnPolicy::kNever) continue;
    const uint64_t window_ns = window_for(now_ns, *on, *lease, *tenant);
    if (window_ns != kWindowAloneNs && on->overdue_millionths == 0)
      look_again_at(on, now_ns + kAloneAfterNs);
    if (window_ns == tenant->window_ns) continue;
    tenant->window_ns = window_ns;
    for (Session* const session : lease->sessions) {
      if (session->parts[tenant->slice].held) give(*tenant, &session->parts[tenant->slice]);
    }
  }
}

uint32_t LeaseTurns::slice_us(const Gpu& on, const Lease& lease, const Tenant& tenant) const {
  const uint32_t usual_us = usual_slice_us(tenant);
  if (usual_us == 0) return 0;
  if (!on.of_gangs.empty()) return gang_slice_us(on.window_open, lease.gang != 0);
  const bool below = lease.terms.priority < on.highest_priority;
  const auto of_turn_us = static_cast<uint32_t>(slice_of_turn_us(on.overdue_millionths));
  if (on.policy.is_overdue(tenant.id)) {
    const auto us = static_cast<uint64_t>(slice_beside_us(tenant.share_millionths));
    return static_cast<uint32_t>(below ? std::max(us * kBelowBesideUs / of_turn_us, kBesideMinUs)
                                       : us);
  }
  if (on.overdue_millionths != 0) return below ? kBelowBesideUs : of_turn_us;
  if (below) return kBelowHigherUs;
  return lease.terms.priority > on.lowest_priority ? std::max(usual_us, kAboveLowerUs) : usual_us;
}

// Hardware slices depend on which tenants are overdue and on their classes. Workers apply a new
// value when they next look at their pages.
void LeaseTurns::fit_hardware_slices(Gpu* on) {
  if (on->overdue_changes == on->policy.overdue_changes() && !on->terms_changed) return;
  on->overdue_changes = on->policy.overdue_changes();
  on->terms_changed = false;
  const uint64_t overdue_millionths = on->policy.overdue_millionths();
  on->highest_priority = on->classes.empty() ? INT32_MIN : on->classes.rbegin()->first;
  on->lowest_priority = on->classes.empty() ? INT32_MAX : on->classes.begin()->first;
  const bool plain = overdue_millionths == 0 && on->highest_priority <= on->lowest_priority &&
                     on->of_gangs.empty();
  if (plain && on->plain_slices) return;
  on->plain_slices = plain;
  on->overdue_millionths = overdue_millionths;
  for (const auto& [id, entry] : on->tenants) {
    const auto& [lease, tenant] = entry;
    const uint32_t us = slice_us(*on, *lease, *tenant);
    if (us == tenant->hardware_slice_us) continue;
    tenant->hardware_slice_us = us;
    for (Session* const session : lease->sessions)
      session->parts[tenant->slice].page->hardware_slice_us.store(us, std::memory_order_relaxed);
  }
}

void LeaseTurns::tell_preempted(uint64_t now_ns, Gpu* on) {
  for (const TurnPolicy::Tenant id : on->policy.take_preempted()) {
    const auto found = on->tenants.find(id);
    if (found == on->tenants.end()) continue;
    const auto& [lease, tenant] = found->second;
    const uint64_t ns = on->policy.use(now_ns, id).preempted_ns;
    for (Session* const session : lease->sessions)
      session->parts[tenant->slice].page->preempted_ns.store(ns, std::memory_order_relaxed);
  }
}

// When a turn ends for another tenant's sake, the next turn is about to begin. So we wake the next
// worker in advance, and the arbiter's thread does not sleep until then. Each measure saves the GPU
// from being idle during one wake-up.
void LeaseTurns::prepare(uint64_t now_ns, Gpu* on) {
  const TurnPolicy::Ending ending = on->policy.ending();
  if (ending.until_ns == TurnPolicy::kNever || ending.until_ns == on->prepared_ns) return;
  const auto& [lease, tenant] = on->tenants.at(ending.next);
  if (now_ns < ending.until_ns) {
    const uint64_t announce_ns = ending.until_ns - std::min(ending.until_ns, kAnnounceNs);
    if (lease->tenants.size() == 1 || ending.until_ns == on->announced_ns)
      return look_again_at(on, ending.until_ns);
    if (now_ns < announce_ns) return look_again_at(on, announce_ns);
    on->announced_ns = ending.until_ns;
    claim_others(now_ns, lease, *tenant, false);
    return look_again_at(on, ending.until_ns);
  }
  on->prepared_ns = ending.until_ns;
  listen_until_ns_ = std::max(listen_until_ns_, now_ns + kListenNs);
  cut_others(now_ns, on);
  claim_others(now_ns, lease, *tenant, true);
  for (Session* const session : lease->sessions) {
    const Part& part = session->parts[tenant->slice];
    if (!part.held && part.page->wants.load(std::memory_order_relaxed) != 0) wake_(part.page);
  }
}

// The lowest GPU on which the lease has a turn that is not over.
uint32_t LeaseTurns::lowest_held(uint64_t now_ns, const Lease& lease) {
  uint32_t lowest = UINT32_MAX;
  for (const Tenant& tenant : lease.tenants) {
    if (tenant.holding && tenant.until_ns > now_ns) lowest = std::min(lowest, tenant.gpu_index);
  }
  return lowest;
}

// If two leases have one GPU each and want the other's, the lease with the lower GPU gets both.
bool LeaseTurns::yields_to(uint64_t now_ns, const Gpu& on, const Lease& lease, uint32_t lowest) {
  for (const auto& [other, holder] : holders(on)) {
    if (other == &lease || other->tenants.size() == 1 || holder->until_ns <= now_ns) continue;
    if (lowest_held(now_ns, *other) < lowest) return false;
  }
  return true;
}

// Tenant `first` of the lease has a turn or is next. Claims the other GPUs that the lease wants, so
// that it has them at the same time.
void LeaseTurns::claim_others(uint64_t now_ns, Lease* lease, const Tenant& first, bool cut) {
  if (lease->tenants.size() == 1) return;
  const uint32_t lowest = std::min(first.gpu_index, lowest_held(now_ns, *lease));
  bool awaits = false;
  for (Tenant& other : lease->tenants) {
    if (other.free || other.holding || other.slice == first.slice) continue;
    Gpu& on = gpu(other.gpu_index);
    if (!yields_to(now_ns, on, *lease, lowest)) continue;
    set_claims(&other, true);
    other.claims_with = first.slice;
    read(now_ns, lease, &other);
    if (!other.wanting) set_claims(&other, false);
    if (!other.claims) continue;
    const std::vector<std::pair<Lease*, Tenant*>> holding = holders(on);
    const bool at_once = std::any_of(holding.begin(), holding.end(), [](const auto& entry) {
      return entry.first->tenants.size() > 1;
    });
    const TurnPolicy::Cut how = at_once ? TurnPolicy::Cut::kNow : TurnPolicy::Cut::kSoon;
    on.unsettled = true;
    awaits |= on.policy.claim(now_ns, other.id, cut ? how : TurnPolicy::Cut::kNone);
  }
  if (!awaits) return;
  for (Session* const session : lease->sessions) {
    for (Part& part : session->parts) {
      if (part.held) part.page->await_ns.store(kAwaitNs, std::memory_order_relaxed);
    }
  }
}

// A turn has ended for another tenant's sake. The calls of its lease will soon stop on other GPUs,
// too. So its turns there end as well, if others wait.
void LeaseTurns::cut_others(uint64_t now_ns, Gpu* ended) {
  for (const auto& [lease, holder] : holders(*ended)) {
    if (lease->tenants.size() == 1) continue;
    for (Tenant& other : lease->tenants) {
      if (&other == holder || other.free || !other.holding) continue;
      gpu(other.gpu_index).policy.cut(now_ns, other.id);
      gpu(other.gpu_index).unsettled = true;
    }
  }
}

void LeaseTurns::lapse_claims(uint64_t now_ns, Gpu* on) {
  const std::vector<TurnPolicy::Tenant> claiming(on->claiming.begin(), on->claiming.end());
  for (const TurnPolicy::Tenant id : claiming) {
    const auto& [lease, tenant] = on->tenants.at(id);
    const Tenant& with = lease->tenants[tenant->claims_with];
    const TurnPolicy::Ending ending = gpu(with.gpu_index).policy.ending();
    if (with.holding || (ending.until_ns != TurnPolicy::kNever && ending.next == with.id)) continue;
    set_claims(tenant, false);
    on->policy.disclaim(id);
    read(now_ns, lease, tenant);
  }
}

// A gang has a window in each period: a part of it as large as the tenant's share. What a window
// took too long comes off the next one, so that the share stays what it is.
void LeaseTurns::open_window(uint64_t now_ns, Gpu* on, const Lease& lease, Tenant* tenant) const {
  const uint64_t wall_ns = now_ns + static_cast<uint64_t>(wall_offset_ns_);
  const uint64_t since_ns = wall_ns - lease.gang % kGangPeriodNs;
  const uint64_t number = since_ns / kGangPeriodNs, into_ns = since_ns % kGangPeriodNs;
  look_again_at(on, now_ns + kGangPeriodNs - into_ns);
  if (number == tenant->window_number) return;
  const uint64_t used_ns = on->policy.use(now_ns, tenant->id).used_ns;
  const uint64_t usual_ns = kGangPeriodNs * tenant->share_millionths / 1'000'000;
  const uint64_t took_ns = used_ns - tenant->window_used_ns;
  const uint64_t left_ns = tenant->window_part_ns + usual_ns;
  tenant->window_part_ns = std::clamp(left_ns - std::min(left_ns, took_ns), usual_ns / 2, usual_ns);
  tenant->window_number = number;
  tenant->window_used_ns = used_ns;
  tenant->window_end_ns = now_ns - into_ns + tenant->window_part_ns;
  on->policy.open_window(now_ns, tenant->id, tenant->window_end_ns,
                         now_ns - into_ns + kGangPeriodNs);
}

// Of the gangs that want a turn.
void LeaseTurns::open_windows(uint64_t now_ns, Gpu* on) {
  bool open = false;
  for (const TurnPolicy::Tenant id : on->of_gangs) {
    const auto& [lease, tenant] = on->tenants.at(id);
    if (tenant->wanting || tenant->holding) open_window(now_ns, on, *lease, tenant);
    open = open || now_ns < tenant->window_end_ns;
  }
  on->terms_changed = on->terms_changed || open != on->window_open;
  on->window_open = open;
}

void LeaseTurns::settle(uint64_t now_ns, Gpu* on) {
  on->unsettled = on->heard = false;
  on->look_again_ns = TurnPolicy::kNever;
  lapse_claims(now_ns, on);
  open_windows(now_ns, on);
  for (bool again = true; again;) {
    again = false;
    const std::vector<TurnPolicy::Turn> turns = on->policy.decide(now_ns);
    fit_hardware_slices(on);
    tell_preempted(now_ns, on);
    for (const TurnPolicy::Turn& turn : turns) {
      const auto& [lease, tenant] = on->tenants.at(turn.tenant);
      on->turns += turn.begins;
      if (turn.begins) listen_until_ns_ = 0;  // the awaited bell has rung
      if (apply(now_ns, turn, lease, tenant)) {
        if (turn.begins) claim_others(now_ns, lease, *tenant, true);
        continue;
      }
      // The turn ends at once. The tenant wants none until it rings.
      on->policy.drained(now_ns, turn.tenant);
      set_wanting(now_ns, lease, tenant, false);
      again = true;
    }
  }
  fit_windows(now_ns, on);
  for (const TurnPolicy::Tenant id : on->policy.active())
    record_use(now_ns, on->tenants.at(id).second);
  prepare(now_ns, on);
  look_again_at(on, on->policy.look_again_ns());
}

void LeaseTurns::hear(uint64_t now_ns, const std::vector<uint64_t>& sessions) {
  for (const uint64_t session_id : sessions) {
    const auto found = sessions_.find(session_id);
    if (found == sessions_.end()) continue;
    Lease* const lease = leases_.at(found->second->lease_id).get();
    for (Tenant& tenant : lease->tenants) {
      if (tenant.free) continue;
      read(now_ns, lease, &tenant);
      gpu(tenant.gpu_index).heard = true;
    }
  }
  const bool looks = now_ns >= look_again_ns_;
  for (auto& [index, on] : gpus_) {
    // Claims depend on other GPUs, whose turns may be over.
    const bool due = now_ns >= on->look_again_ns || (looks && !on->claiming.empty());
    if (due || on->heard) settle(now_ns, on.get());
  }
  settle_rest(now_ns);
}

void LeaseTurns::settle_those_of(uint64_t now_ns, const Lease& lease) {
  for (const Tenant& tenant : lease.tenants) gpu(tenant.gpu_index).unsettled = true;
  settle_rest(now_ns);
}

// Settles the effects that one GPU's turns have on another's. A few rounds are usually enough. If
// not, it continues a little later.
void LeaseTurns::settle_rest(uint64_t now_ns) {
  bool any = true;
  for (size_t rounds = 4; any && rounds != 0; --rounds) {
    any = false;
    for (auto& [index, on] : gpus_) {
      if (!on->unsettled) continue;
      any = true;
      settle(now_ns, on.get());
    }
  }
  look_again_ns_ = TurnPolicy::kNever;
  for (auto& [index, on] : gpus_) {
    if (on->unsettled) look_again_at(on.get(), now_ns + kWindowNs);
    look_again_ns_ = std::min(look_again_ns_, on->look_again_ns);
  }
}

std::vector<wire::SliceUse> LeaseTurns::use_of(uint64_t now_ns, uint64_t lease_id) {
  std::vector<wire::SliceUse> uses;
  const auto found = leases_.find(lease_id);
  if (found == leases_.end()) return uses;
  for (const Tenant& tenant : found->second->tenants) {
    wire::SliceUse use;
    use.age_ns = now_ns - found->second->began_ns;
    use.used_ns = tenant.used_before_ns;
    use.waited_ns = tenant.waited_before_ns;
    if (!tenant.free) {
      const TurnPolicy::Use now = gpu(tenant.gpu_index).policy.use(now_ns, tenant.id);
      use.measured = true;
      use.used_ns += now.used_ns;
      use.waited_ns += now.waited_ns;
      use.recent_millionths = tenant.history.recent_millionths(now_ns, use.used_ns);
    }
    uses.push_back(use);
  }
  return uses;
}

void LeaseTurns::describe(uint64_t session_id, wire::SessionRecord* record) const {
  const auto found = sessions_.find(session_id);
  if (found == sessions_.end()) return;
  const auto read = [](const std::atomic<uint64_t>& value) {
    return value.load(std::memory_order_relaxed);
  };
  const wire::SessionCounts& counts = found->second->page->counts;
  record->calls = read(counts.calls);
  record->launches = read(counts.launches);
  record->replies = read(counts.replies);
  record->bytes_in = read(counts.lane_bytes_in) + read(counts.bulk_bytes_in);
  record->bytes_out = read(counts.lane_bytes_out) + read(counts.bulk_bytes_out);
  record->awaited_ns = read(counts.awaited_ns);
  record->waiting = counts.replies_due.load(std::memory_order_relaxed) > 0;
  const auto lease = leases_.find(found->second->lease_id);
  if (lease == leases_.end()) return;
  for (const Tenant& tenant : lease->second->tenants) {
    record->measured |= !tenant.free;
    record->gpu_ns += read(found->second->parts[tenant.slice].page->busy_ns);
  }
}

LeaseTurns::Work LeaseTurns::work_of(uint64_t lease_id) const {
  Work work;
  const auto found = leases_.find(lease_id);
  if (found == leases_.end()) return work;
  for (const Session* const session : found->second->sessions) {
    const wire::SessionCounts& counts = session->page->counts;
    work.pieces += counts.launches.load(std::memory_order_relaxed) +
                   counts.transfers.load(std::memory_order_relaxed);
    work.replies += counts.replies.load(std::memory_order_relaxed);
    work.waiting |= counts.replies_due.load(std::memory_order_relaxed) > 0;
    work.known &= counts.counts_work.load(std::memory_order_relaxed) != 0;
    for (const Part& part : session->parts)
      work.pieces += part.page->busy_ns.load(std::memory_order_relaxed);
  }
  return work;
}

uint64_t LeaseTurns::used_ns(uint64_t now_ns, uint32_t gpu_index) {
  const auto found = gpus_.find(gpu_index);
  if (found == gpus_.end()) return 0;
  uint64_t sum_ns = found->second->retired_used_ns;
  for (const auto& [id, entry] : found->second->tenants)
    sum_ns += found->second->policy.use(now_ns, id).used_ns;
  return sum_ns;
}

uint64_t LeaseTurns::turns_given(uint32_t gpu_index) const {
  const auto found = gpus_.find(gpu_index);
  return found == gpus_.end() ? 0 : found->second->turns;
}

}  // namespace tendril::lease
