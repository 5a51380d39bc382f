// SPDX-License-Identifier: Apache-2.0
// See rates.h.
#include "view/rates.h"

#include <algorithm>

#include "base/text.h"
#include "config/quantity.h"
#include "view/listing.h"
#include "view/table.h"
#include "view/text.h"

namespace tendril::view {
namespace {

double per_second(uint64_t before, uint64_t after, double interval_s) {
  return after > before && interval_s > 0 ? static_cast<double>(after - before) / interval_s : 0;
}

SessionRates rates_of(const wire::SessionRecord& before, const wire::SessionRecord& after,
                      double interval_s) {
  SessionRates rates;
  rates.session = after;
  rates.calls_per_s = per_second(before.calls, after.calls, interval_s);
  rates.launches_per_s = per_second(before.launches, after.launches, interval_s);
  rates.round_trips_per_s = per_second(before.replies, after.replies, interval_s);
  rates.bytes_in_per_s = per_second(before.bytes_in, after.bytes_in, interval_s);
  rates.bytes_out_per_s = per_second(before.bytes_out, after.bytes_out, interval_s);
  rates.waiting = std::min(1.0, per_second(before.awaited_ns, after.awaited_ns, interval_s) / 1e9);
  rates.processors = per_second(before.processor_ns, after.processor_ns, interval_s) / 1e9;
  if (after.measured) rates.delivered = per_second(before.gpu_ns, after.gpu_ns, interval_s) / 1e9;
  return rates;
}

const wire::LeaseRecord* lease_of(const wire::ListReply& list, uint64_t id) {
  for (const wire::LeaseRecord& lease : list.leases) {
    if (lease.lease_id == id) return &lease;
  }
  return nullptr;
}

std::string bytes_text(double bytes) { return config::format_size(static_cast<uint64_t>(bytes)); }

uint64_t used_by(const SessionRates& rates) {
  uint64_t used = 0;
  for (const uint64_t bytes : rates.session.memory_used_bytes) used += bytes;
  return used;
}

Row row_of(const SessionRates& rates) {
  uint64_t quota = 0;
  for (const wire::SliceGrant& slice : rates.slices) quota += slice.memory_bytes;
  return {std::to_string(rates.session.session_id),
          std::to_string(rates.session.lease_id),
          who_text(rates.session.client),
          safe(rates.session.client.program),
          std::to_string(rates.session.client.pid),
          slices_text(rates.slices),
          rates.delivered ? percent_text(*rates.delivered) : "-",
          count_text(rates.calls_per_s),
          count_text(rates.launches_per_s),
          count_text(rates.round_trips_per_s),
          bytes_text(rates.bytes_in_per_s),
          bytes_text(rates.bytes_out_per_s),
          percent_text(rates.waiting),
          percent_text(rates.processors),
          memory_text(used_by(rates), quota),
          age_text(rates.session.age_s)};
}

}  // namespace

base::Status sort_sessions(std::vector<SessionRates>* sessions, const std::string& column) {
  if (column.empty()) return {};
  using Value = double (*)(const SessionRates&);
  constexpr std::pair<const char*, Value> kColumns[] = {
      {"had", [](const SessionRates& each) { return each.delivered.value_or(-1); }},
      {"calls", [](const SessionRates& each) { return each.calls_per_s; }},
      {"launches", [](const SessionRates& each) { return each.launches_per_s; }},
      {"round-trips", [](const SessionRates& each) { return each.round_trips_per_s; }},
      {"to-gpu", [](const SessionRates& each) { return each.bytes_in_per_s; }},
      {"from-gpu", [](const SessionRates& each) { return each.bytes_out_per_s; }},
      {"waiting", [](const SessionRates& each) { return each.waiting; }},
      {"cpu", [](const SessionRates& each) { return each.processors; }},
      {"memory", [](const SessionRates& each) { return static_cast<double>(used_by(each)); }},
      {"age", [](const SessionRates& each) { return static_cast<double>(each.session.age_s); }},
  };
  std::string known;
  for (const auto& [name, value] : kColumns) {
    known += (known.empty() ? "" : ", ") + std::string(name);
    if (name != column) continue;
    std::stable_sort(sessions->begin(), sessions->end(),
                     [value = value](const SessionRates& one, const SessionRates& other) {
                       return value(one) > value(other);
                     });
    return {};
  }
  return base::Status(base::Code::kInvalid,
                      "there is no column '" + safe(column) + "' to sort by; there are " + known);
}

ServerRates rates_between(const ServerView& before, const ServerView& after) {
  ServerRates out;
  out.view = after;
  const uint64_t from_ns = before.list.now_ns, to_ns = after.list.now_ns;
  if (from_ns != 0 && to_ns > from_ns) out.interval_s = static_cast<double>(to_ns - from_ns) / 1e9;
  for (const wire::SessionRecord& session : after.list.sessions) {
    const auto& known = before.list.sessions;
    const auto same = std::find_if(
        known.begin(), known.end(),
        [&](const wire::SessionRecord& other) { return other.session_id == session.session_id; });
    SessionRates rates =
        rates_of(same != known.end() ? *same : wire::SessionRecord(), session, out.interval_s);
    if (same == known.end())
      rates.processors = 0;  // a worker has used some before its session began
    const wire::LeaseRecord* const lease = lease_of(after.list, session.lease_id);
    if (lease != nullptr) rates.slices = lease->slices;
    out.sessions.push_back(std::move(rates));
  }
  return out;
}

std::string top_text(const ServerRates& rates, size_t width) {
  const wire::ListReply& list = rates.view.list;
  std::string text = rates.view.server;
  if (!rates.view.status.ok()) return text + ": " + safe(rates.view.status.message()) + "\n";
  text += base::format(" (%s): %s, %s\n", safe(list.server).c_str(),
                       counted(list.leases.size(), "lease").c_str(),
                       counted(rates.sessions.size(), "session").c_str());
  for (const wire::GpuRecord& gpu : list.gpus) {
    text += base::format("GPU %u: %s, %s lent, %s of %s used", gpu.index, safe(gpu.name).c_str(),
                         config::format_fraction(gpu.share_used_millionths).c_str(),
                         config::format_size(gpu.memory_used_bytes).c_str(),
                         config::format_size(gpu.memory_total_bytes).c_str());
    if (gpu.utilization_percent >= 0) text += base::format(", %d%% busy", gpu.utilization_percent);
    if (gpu.power_mw >= 0) text += base::format(", %d W", gpu.power_mw / 1000);
    text += "\n";
  }
  for (const wire::LeaseRecord& lease : list.leases) {
    if (lease.standing == wire::Standing::kGranted) continue;
    text += base::format("lease %llu: %s, %s\n", static_cast<unsigned long long>(lease.lease_id),
                         standing_text(lease).c_str(), safe(lease.client.program).c_str());
  }
  if (rates.sessions.empty()) return text;
  std::vector<Row> rows = {{"SESSION", "LEASE", "WHO", "PROGRAM", "PID", "GPU: SHARE", "HAD",
                            "CALLS/S", "LAUNCHES/S", "ROUND TRIPS/S", "TO GPU/S", "FROM GPU/S",
                            "WAITING", "SERVER CPU", "MEMORY USED / QUOTA", "AGE"}};
  for (const SessionRates& session : rates.sessions) rows.push_back(row_of(session));
  return text + fitted(rows, width,
                       {"PID", "SERVER CPU", "ROUND TRIPS/S", "SESSION", "WAITING", "CALLS/S",
                        "AGE", "FROM GPU/S", "TO GPU/S", "GPU: SHARE"});
}

}  // namespace tendril::view
