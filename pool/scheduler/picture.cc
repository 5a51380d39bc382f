// SPDX-License-Identifier: Apache-2.0
// The pool as the page shows it (view/picture.h): what status and queue say, as values that can be
// compared with the picture before. Names of owners are in it; who shows it leaves them out for
// those who may not see them.
#include <algorithm>

#include "pool/scheduler/state.h"
#include "view/picture.h"

namespace tendril::pool {

namespace {

// A page asks again each second; a server tells every two.
constexpr uint64_t kWatchedNs = 15 * kSecond, kCountedNs = 10 * kSecond;
constexpr size_t kWatchedAtOnce = 1024;

int64_t seconds_of(uint64_t nanoseconds) { return int64_t(nanoseconds / kSecond); }

}  // namespace

void Scheduler::State::picture_server(const Member& server, view::PictureServer* out) const {
  const wire::ServerFacts& facts = server.record.facts;
  out->name = server.record.name;
  out->endpoint = facts.endpoint;
  out->state = server.silent ? "silent" : speaks(server) ? "up" : "joining";
  if (server.silent && server.last_report_ns != 0) {
    out->silent_since_at = now_.wall_s - seconds_of(now_.monotonic_ns - server.last_report_ns);
  }
  out->draining = server.record.drained || facts.draining;
  if (out->draining)
    out->drain_why = server.record.drained ? server.record.drain_why : "the server drains";
  out->version = facts.product_version;
  out->driver = facts.driver;
  out->transports = facts.transports;
  if (!server.facts.empty()) {
    for (const auto& [key, value] : server.facts[0].labels)
      out->labels.push_back(key + "=" + value);
  }
  for (const MaintenanceWindow& window : server.record.maintenance)
    out->maintenance.push_back({window.from_s, window.to_s, window.why});
  out->leases = server.jobs.size();
  for (size_t i = 0; i < facts.gpus.size(); ++i) {
    const wire::GpuRecord& gpu = facts.gpus[i];
    view::PictureGpu shown;
    shown.index = gpu.index;
    shown.model = gpu.name;
    shown.type = gpu.type;
    const auto gpu_class =
        i < server.facts.size() ? class_of(effective_, server.facts[i]) : std::optional<uint32_t>();
    if (gpu_class) shown.gpu_class = class_name(*gpu_class);
    shown.memory_bytes = gpu.memory_usable_bytes;
    shown.utilization_percent = gpu.utilization_percent;
    shown.temperature_c = gpu.temperature_c;
    shown.power_mw = gpu.power_mw;
    out->gpus.push_back(std::move(shown));
  }
}

// Sums of all parts, and of the leases of a server's GPUs.
void Scheduler::State::picture_parts(const Job& job, view::PictureLease* out,
                                     std::vector<view::PictureServer*>* servers) const {
  uint64_t idle_ns = wire::kIdleUnknown;
  size_t counted = 0;
  for (const Part& part : job.parts) {
    const Member* server = member(part.server);
    view::PictureServer* const shown =
        part.server < servers->size() ? (*servers)[part.server] : nullptr;
    uint64_t stays_bytes = 0;
    for (size_t i = 0; i < part.slices.size(); ++i) {
      const wire::SliceGrant& slice = part.slices[i];
      const uint64_t stays = i < part.stays_bytes.size() ? part.stays_bytes[i] : 0;
      stays_bytes += stays;
      out->slices.push_back({server == nullptr ? std::string() : server->record.name,
                             slice.gpu_index, slice.share_millionths, slice.memory_bytes});
      if (shown == nullptr || part.phase == PartPhase::kEnded) continue;
      const uint32_t at = position_of(*server, slice.gpu_index);
      if (at >= shown->gpus.size()) continue;
      view::PictureGpu& gpu = shown->gpus[at];
      if (part.parked) {
        gpu.memory_promised_bytes += stays;
        gpu.memory_used_bytes += stays;
        continue;
      }
      gpu.given_millionths += slice.share_millionths;
      gpu.memory_promised_bytes += slice.memory_bytes;
      gpu.memory_used_bytes += part.memory_used_bytes / std::max<size_t>(part.slices.size(), 1);
      gpu.packed = slice.packed;
    }
    if (part.parked)
      out->use.memory_parked_bytes +=
          part.memory_used_bytes - std::min(part.memory_used_bytes, stays_bytes);
    if (part.standing != wire::Standing::kGranted) {
      out->standing = wire::standing_name(part.standing);
      if (part.standing_since_s != kNever) out->standing_since_at = part.standing_since_s;
    }
    if (part.counted_ns != 0 && now_.monotonic_ns - part.counted_ns < kCountedNs) {
      ++counted;
      out->use.calls += part.counts.calls;
      out->use.round_trips += part.counts.round_trips;
      out->use.awaited_ns += part.counts.awaited_ns;
      out->use.bytes_in += part.counts.bytes_in;
      out->use.bytes_out += part.counts.bytes_out;
      if (out->links.find(part.counts.links) == std::string::npos)
        out->links += (out->links.empty() ? "" : ", ") + part.counts.links;
    }
    out->use.age_ns = std::max(out->use.age_ns, part.age_ns);
    out->use.used_ns += part.used_ns;
    out->use.waited_ns += part.waited_ns;
    out->use.idle_ns += part.idle_total_ns;
    out->use.memory_used_bytes += part.memory_used_bytes;
    out->processes += part.processes;
    out->paused = out->paused || part.paused;
    if (part.idle_ns < idle_ns) {
      idle_ns = part.idle_ns;
      // Since when does not depend on when this is asked.
      const uint64_t age_ns = part.idle_ns + (now_.monotonic_ns - part.reported_ns);
      const bool idle = part.idle_ns >= kIdleShownNs && part.idle_ns != wire::kIdleUnknown;
      out->idle_since_at = idle ? now_.wall_s - seconds_of(age_ns) : view::kNoMoment;
    }
  }
  out->use.counts_calls = counted != 0 && counted == job.parts.size();
}

void Scheduler::State::picture_lease(const Job& job, view::PictureLease* out,
                                     std::vector<view::PictureServer*>* servers) const {
  out->id = job.id;
  out->state = stage_name(job);
  out->owner_id = job.who.id;
  out->owner = job.who.name;
  out->account = job.account;
  out->user_class = job.user_class;
  out->gpu_class = job.gpu_class;
  out->program = job.request.client.program;
  out->host = job.request.client.host;
  out->priority = job.request.terms.priority;
  out->capped = job.request.terms.policy == wire::SharePolicy::kCap;
  out->local = job.local;
  out->shrunk = job.life.shrunk();
  out->reclaimed = job.reclaim;
  out->granted_at = job.granted_s;
  out->queued_s = job.waited_s;
  const uint64_t wall_s = rules_of(job).max_wall_s;
  if (wall_s != 0) out->ends_at = job.granted_s + int64_t(wall_s);
  picture_parts(job, out, servers);
}

void Scheduler::State::picture_request(const Job& job, const EngineWaiting* waiting,
                                       view::PictureRequest* out) const {
  const auto moment = [](int64_t at_s) { return at_s == kNever ? view::kNoMoment : at_s; };
  out->id = job.id;
  out->state = stage_name(job);
  out->owner_id = job.who.id;
  out->owner = job.who.name;
  out->account = job.account;
  out->user_class = job.user_class;
  out->program = job.request.client.program;
  out->host = job.request.client.host;
  out->filter = job.request.wish.filter;
  out->slices = job.request.count;
  out->share_millionths = job.request.slice.share_millionths;
  out->memory_bytes = job.request.slice.memory_bytes;
  out->submitted_at = job.submitted_s;
  out->present = job.connection != 0;
  out->held = !job.held.empty();
  if (waiting != nullptr) {
    if (job.stored) {
      out->place = waiting->place;
      out->of = waiting->of;
      out->queue = class_name(waiting->gpu_class);
    }
    out->reason = wait_reason_name(waiting->reason);
    out->numbers = numbers_text(*waiting);
    out->start_why = waiting->start_why;
    out->promised = waiting->promised;
    const ToldTimes times = times_of(*waiting);
    out->start_from_at = moment(times.from_s);
    out->start_to_at = moment(times.to_s);
    out->reclaimed_at = moment(times.reclaimed_s);
  } else if (!job.parked.empty()) {
    out->reason = wait_reason_name(planning_ ? WaitReason::kSchedule : WaitReason::kServersDown);
    out->numbers = job.parked;
  }
}

void Scheduler::State::picture_accounts(view::Picture* out) const {
  std::map<std::string, uint64_t> waiting;
  for (const auto& [id, job] : jobs_) {
    if (job.stage < Stage::kGranted) ++waiting[job.account];
  }
  const auto amount = [](const Amounts& of, size_t at) {
    return at < of.size() && of[at] != kUnlimited ? of[at] : view::kNoAmount;
  };
  for (uint32_t i = 0; i < effective_.accounts.size(); ++i) {
    const Account& account = effective_.accounts[i];
    view::PictureAccount shown;
    shown.name = account.name;
    if (account.parent < effective_.accounts.size())
      shown.parent = effective_.accounts[account.parent].name;
    shown.weight = account.over_quota_weight;
    for (uint32_t c = 0; c < effective_.gpu_classes.size(); ++c) {
      shown.classes[effective_.gpu_classes[c].name] = {amount(account.quota, c),
                                                       amount(account.limit, c), engine_.used(i, c),
                                                       engine_.lent(i, c)};
    }
    shown.waiting = waiting[account.name];
    shown.usage_gpu_s = engine_.decayed_gpu_seconds(i);
    out->accounts.push_back(std::move(shown));
  }
}

view::Picture Scheduler::State::picture(Now now) {
  arrive(now);
  view::Picture out;
  out.at = now.wall_s;
  out.head.is_pool = true;
  out.head.name = options.pool;
  out.head.scheduler = options.scheduler;
  out.head.version = wire::product_version();
  out.head.term = options.term;
  out.head.planning = may_plan(&out.head.planning_why);
  out.head.policy_revision = policy_record.revision;
  out.head.store_trouble = store_trouble_;
  for (uint32_t i = 0; i < effective_.gpu_classes.size(); ++i) {
    out.head.classes.push_back(
        {effective_.gpu_classes[i].name, engine_.capacity(i), given(i), engine_.unused(i)});
  }
  std::vector<view::PictureServer*> by_number(members_.size());
  out.servers.reserve(members_.size());  // by_number points into it
  for (const auto& each : members_) {
    if (each == nullptr) continue;
    out.servers.emplace_back();
    by_number[each->number] = &out.servers.back();
    picture_server(*each, &out.servers.back());
  }
  waiting_ = engine_.waiting(seconds());
  std::set<uint64_t> listed;
  for (const EngineWaiting& waiting : waiting_) {
    const auto found = jobs_.find(waiting.id);
    if (found == jobs_.end()) continue;
    listed.insert(waiting.id);
    picture_request(found->second, &waiting, &out.queue.emplace_back());
  }
  for (const auto& [id, job] : jobs_) {
    if (job.stage >= Stage::kGranted)
      picture_lease(job, &out.leases.emplace_back(), &by_number);
    else if (listed.count(id) == 0)
      picture_request(job, nullptr, &out.queue.emplace_back());
  }
  picture_accounts(&out);
  return out;
}

void Scheduler::State::watch(uint64_t lease, Now now) {
  if (jobs_.count(lease) == 0) return;
  if (watched_.size() >= kWatchedAtOnce && watched_.count(lease) == 0) return;
  watched_[lease] = now.monotonic_ns + kWatchedNs;
}

view::Picture Scheduler::picture(Now now) { return state_->picture(now); }

void Scheduler::watch(uint64_t lease, Now now) { state_->watch(lease, now); }

}  // namespace tendril::pool
