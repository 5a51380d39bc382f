// SPDX-License-Identifier: Apache-2.0
// See page_source.h.
#include "daemon/page/page_source.h"

#include <stdlib.h>
#include <time.h>

#include <algorithm>

#include "access/decide.h"
#include "base/text.h"
#include "config/quantity.h"

namespace tendril::daemon {

using base::Code;
using base::Status;

namespace {

void add_server(const wire::ListReply& list, bool drains, view::Picture* out) {
  view::PictureServer server;
  server.name = list.server;
  server.state = "up";
  server.draining = drains;
  server.version = list.product_version;
  server.driver = list.driver;
  server.leases = list.leases.size();
  for (const wire::GpuRecord& gpu : list.gpus) {
    view::PictureGpu shown;
    shown.index = gpu.index;
    shown.model = gpu.name;
    shown.type = gpu.type;
    shown.memory_bytes = gpu.memory_usable_bytes;
    shown.memory_promised_bytes = gpu.memory_promised_bytes;
    shown.memory_used_bytes = gpu.memory_used_bytes;
    shown.given_millionths = gpu.share_used_millionths;
    shown.packed = gpu.packed;
    shown.utilization_percent = gpu.utilization_percent;
    shown.temperature_c = gpu.temperature_c;
    shown.power_mw = gpu.power_mw;
    server.gpus.push_back(std::move(shown));
  }
  out->servers.push_back(std::move(server));
}

view::PictureLease lease_of(const wire::ListReply& list, const wire::LeaseRecord& record,
                            int64_t now_s) {
  view::PictureLease lease;
  lease.id = record.lease_id;
  lease.state = record.processes == 0 ? "granted" : "running";
  lease.owner = record.client.owner.empty() ? record.client.user : record.client.owner;
  lease.program = record.client.program;
  lease.host = record.client.host;
  lease.links = record.links;
  lease.processes = record.processes;
  lease.priority = record.terms.priority;
  lease.capped = record.terms.policy == wire::SharePolicy::kCap;
  lease.local = true;
  lease.granted_at = now_s - int64_t(record.age_s);
  lease.use.age_ns = record.age_s * 1'000'000'000;
  for (const wire::SliceGrant& slice : record.slices) {
    lease.slices.push_back(
        {list.server, slice.gpu_index, slice.share_millionths, slice.memory_bytes});
  }
  for (const uint64_t bytes : record.memory_used_bytes) lease.use.memory_used_bytes += bytes;
  for (const uint64_t bytes : record.memory_parked_bytes) lease.use.memory_parked_bytes += bytes;
  lease.standing = wire::standing_name(record.standing);
  if (record.standing != wire::Standing::kGranted)
    lease.standing_since_at = now_s - int64_t(record.standing_s);
  lease.parks = record.parks;
  lease.use.measured = !record.uses.empty();
  for (const wire::SliceUse& use : record.uses) {
    lease.use.measured = lease.use.measured && use.measured;
    lease.use.used_ns += use.used_ns;
    lease.use.waited_ns += use.waited_ns;
    lease.use.age_ns = std::max(lease.use.age_ns, use.age_ns);
  }
  return lease;
}

}  // namespace

void PageSource::look(Done<view::Picture> done) {
  const wire::ListReply list = list_();
  view::Picture out;
  out.at = static_cast<int64_t>(time(nullptr));
  out.head.name = list.server;
  out.head.scheduler = list.server;
  out.head.version = list.product_version;
  add_server(list, sessions_->is_draining(), &out);
  std::map<uint64_t, size_t> by_id;
  for (const wire::LeaseRecord& record : list.leases) {
    by_id[record.lease_id] = out.leases.size();
    out.leases.push_back(lease_of(list, record, out.at));
    const auto owner = sessions_->owner_of(record.lease_id);
    if (owner) out.leases.back().owner_id = owner->id;
  }
  for (const wire::SessionRecord& session : list.sessions) {
    const auto found = by_id.find(session.lease_id);
    if (found == by_id.end()) continue;
    view::PictureUse& use = out.leases[found->second].use;
    use.counts_calls = true;
    use.calls += session.calls;
    use.round_trips += session.replies;
    use.awaited_ns += session.awaited_ns;
    use.bytes_in += session.bytes_in;
    use.bytes_out += session.bytes_out;
  }
  done(std::move(out));
}

Status PageSource::ask(const access::Principal& who, access::Action action, uint64_t lease_id,
                       const access::Guard::Details& details) {
  const std::string object = "lease " + std::to_string(lease_id);
  const auto owner = sessions_->owner_of(lease_id);
  if (!owner) return Status(Code::kNotFound, "there is no " + object + " on this server");
  access::Guard::Details more = details;
  more.emplace_back("owner", owner->id);
  const access::Decision decision = access::decide(who, action, owner->id);
  return guard_->record(who, access::action_name(action), object, decision, more).status();
}

Status PageSource::release(const access::Principal& who, uint64_t lease_id) {
  const Status asked = ask(who, access::Action::kRelease, lease_id, {});
  if (!asked.ok()) return asked;
  const auto owner = sessions_->owner_of(lease_id);
  const bool own = owner && owner->id == who.id;
  return sessions_->release(
      lease_id, own ? "its owner ended it" : base::printable(who.name, 64) + " ended it");
}

Status PageSource::park(const access::Principal& who, uint64_t lease_id, bool wake) {
  const Status asked =
      ask(who, access::Action::kChange, lease_id, {{"memory", wake ? "wake" : "park"}});
  if (!asked.ok()) return asked;
  return sessions_->begin_move({lease_id, wake}, base::printable(who.name, 64) + " parked it");
}

Status PageSource::change(const access::Principal& who, uint64_t lease_id,
                          const std::vector<std::string>& words) {
  wire::ChangeRequest request;
  request.lease_id = lease_id;
  access::Guard::Details details;
  for (size_t i = 1; i < words.size(); ++i) {
    const size_t equals = std::min(words[i].find('='), words[i].size());
    const std::string name = words[i].substr(0, equals);
    const std::string value = words[i].substr(std::min(equals + 1, words[i].size()));
    details.emplace_back(name, value);
    if (name == "share") {
      auto share = config::parse_fraction(value);
      if (!share.ok()) return share.status();
      request.share_millionths = *share;
    } else if (name == "policy" && (value == "cap" || value == "lend")) {
      request.sets_policy = true;
      request.terms.policy = value == "cap" ? wire::SharePolicy::kCap : wire::SharePolicy::kLend;
    } else if (name == "priority") {
      request.sets_priority = true;
      request.terms.priority = int32_t(strtol(value.c_str(), nullptr, 10));
    } else {
      return Status(Code::kInvalid, "a lease has share, policy (cap or lend) and priority");
    }
  }
  const Status asked = ask(who, access::Action::kChange, lease_id, details);
  if (!asked.ok()) return asked;
  access::Decision limits{true, std::string(), std::string()};
  const Status changed = sessions_->change(who, request, &limits);
  if (!limits.allowed) {
    guard_->note(who, access::action_name(access::Action::kChange),
                 "lease " + std::to_string(lease_id), limits, details);
  }
  return changed;
}

void PageSource::command(const access::Principal& who, const std::string& /*address*/,
                         wire::PoolCommand command, Done<std::string> done) {
  char* end = nullptr;
  const std::string number = command.arguments.empty() ? "" : command.arguments[0];
  const uint64_t lease_id = strtoull(number.c_str(), &end, 10);
  Status status(Code::kUnsupported, "a lone server has no pool's policy and drains on SIGTERM");
  const bool moves = command.verb == "park" || command.verb == "wake";
  const bool about_lease = command.verb == "release" || command.verb == "change" || moves;
  if (command.verb == "events") {
    status = Status(Code::kUnsupported,
                    "a lone server keeps events in its audit log's file. A pool keeps them in its "
                    "store");
  } else if (command.verb == "history") {
    status = Status(Code::kUnsupported,
                    "a lone server keeps no history. A pool does: start 'tendril pool serve', and "
                    "this server with --pool");
  } else if (about_lease && (number.empty() || *end != 0)) {
    status = Status(Code::kInvalid, "a lease has a number");
  } else if (moves) {
    status = park(who, lease_id, command.verb == "wake");
  } else if (command.verb == "release") {
    status = release(who, lease_id);
  } else if (command.verb == "change") {
    status = change(who, lease_id, command.arguments);
  }
  if (!status.ok()) return done(status);
  done("{\"lease\":" + std::to_string(lease_id) + "}");
}

}  // namespace tendril::daemon
