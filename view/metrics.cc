// SPDX-License-Identifier: Apache-2.0
// See metrics.h.
#include "view/metrics.h"

#include <functional>

#include "view/metric_family.h"
#include "view/server.h"
#include "view/text.h"

namespace tendril::view {
namespace {

double seconds(uint64_t ns) { return static_cast<double>(ns) / 1e9; }
double ratio(uint32_t millionths) { return millionths / 1e6; }

void add_server(const wire::ListReply& list, const Counters& counters, std::string* out) {
  Family(out, "tendril_info", "gauge", "This server.")
      .add(label("host", list.server) + "," + label("version", list.product_version) + "," +
               label("driver", list.driver),
           1);
  uint64_t sessions = 0;
  for (const wire::LeaseRecord& lease : list.leases) sessions += lease.processes;
  const auto one = [&](const char* name, const char* type, const char* help, uint64_t value) {
    Family(out, name, type, help).add("", static_cast<double>(value));
  };
  one("tendril_leases", "gauge", "Leases that live.", list.leases.size());
  one("tendril_sessions", "gauge", "Client processes that are attached.", sessions);
  one("tendril_worker_processes", "gauge", "Worker processes, idle ones included.",
      counters.worker_processes);
  one("tendril_leases_granted_total", "counter", "Leases granted.", counters.leases_granted);
  one("tendril_lease_refusals_total", "counter", "Leases refused.", counters.leases_refused);
  one("tendril_sessions_total", "counter", "Client processes that were attached.",
      counters.sessions_begun);
  one("tendril_parks_total", "counter", "Leases whose GPU memory went to the host's memory.",
      counters.parks);
  one("tendril_park_refusals_total", "counter", "Leases that could not be parked.",
      counters.parks_refused);
  one("tendril_wakes_total", "counter", "Parked leases that came back to their GPUs.",
      counters.wakes);
  one("tendril_parked_bytes", "gauge", "Host memory that parked leases and kept copies use.",
      counters.parked_bytes);
  one("tendril_parked_budget_bytes", "gauge", "Host memory that parked leases may use.",
      counters.park_budget_bytes);
  one("tendril_parked_moved_bytes_total", "counter", "Bytes that went to the host and back.",
      counters.parked_moved_bytes);
  Family waits(out, "tendril_wake_wait_seconds_total", "counter",
               "Time from the wish to wake to the memory being back.");
  waits.add("", seconds(counters.wake_waited_ns));
}

using GpuValue = std::function<double(const wire::GpuRecord&, const GpuCounters&)>;

void add_gpus(const wire::ListReply& list, const Counters& counters, std::string* out) {
  // A negative value: it is not known.
  const auto each = [&](const char* name, const char* type, const char* help,
                        const GpuValue& value_of) {
    Family family(out, name, type, help);
    for (const wire::GpuRecord& gpu : list.gpus) {
      const GpuCounters counted =
          gpu.index < counters.gpus.size() ? counters.gpus[gpu.index] : GpuCounters();
      const double value = value_of(gpu, counted);
      if (value < 0) continue;
      family.add(label("gpu", std::to_string(gpu.index)) + "," +
                     label("uuid", uuid_text(gpu.uuid)) + "," + label("model", gpu.name) +
                     (gpu.type.empty() ? "" : "," + label("type", gpu.type)),
                 value);
    }
  };
  using Gpu = const wire::GpuRecord&;
  using Counted = const GpuCounters&;
  each("tendril_gpu_memory_total_bytes", "gauge", "Memory of the GPU.",
       [](Gpu gpu, Counted) { return static_cast<double>(gpu.memory_total_bytes); });
  each("tendril_gpu_memory_lendable_bytes", "gauge", "Memory that can be promised to leases.",
       [](Gpu, Counted counted) { return static_cast<double>(counted.memory_usable_bytes); });
  each("tendril_gpu_memory_promised_bytes", "gauge", "Memory that is promised to leases.",
       [](Gpu, Counted counted) { return static_cast<double>(counted.memory_promised_bytes); });
  each("tendril_gpu_memory_used_bytes", "gauge", "Memory charged to leases.",
       [](Gpu gpu, Counted) { return static_cast<double>(gpu.memory_used_bytes); });
  each("tendril_gpu_share_lent_ratio", "gauge", "Part of the GPU that is promised to leases.",
       [](Gpu gpu, Counted) { return ratio(gpu.share_used_millionths); });
  each("tendril_gpu_turn_seconds_total", "counter", "Time that leases have had in turns.",
       [](Gpu, Counted counted) { return seconds(counted.turn_ns); });
  each("tendril_gpu_turns_total", "counter", "Turns given.",
       [](Gpu, Counted counted) { return static_cast<double>(counted.turns); });
  each("tendril_gpu_utilization_ratio", "gauge",
       "Utilisation, as the vendor's monitoring library has it.",
       [](Gpu gpu, Counted) { return gpu.utilization_percent / 100.0; });
  each("tendril_gpu_temperature_celsius", "gauge", "Temperature.",
       [](Gpu gpu, Counted) { return static_cast<double>(gpu.temperature_c); });
  each("tendril_gpu_power_watts", "gauge", "Power.",
       [](Gpu gpu, Counted) { return gpu.power_mw / 1000.0; });
}

void add_leases(const wire::ListReply& list, const Counters& counters, std::string* out) {
  using Lease = const wire::LeaseRecord&;
  std::vector<const wire::LeaseRecord*> leases;
  for (const wire::LeaseRecord& lease : list.leases) leases.push_back(&lease);
  for (const LeaseMetrics& ended : counters.ended) leases.push_back(&ended.lease);
  const auto each = [&](const char* name, const char* type, const char* help, bool measured,
                        const std::function<double(Lease, size_t)>& value_of) {
    Family family(out, name, type, help);
    for (const wire::LeaseRecord* const each : leases) {
      const wire::LeaseRecord& lease = *each;
      for (size_t slice = 0; slice < lease.slices.size(); ++slice) {
        if (measured && (slice >= lease.uses.size() || !lease.uses[slice].measured)) continue;
        family.add(label("lease", std::to_string(lease.lease_id)) + "," +
                       label("gpu", std::to_string(lease.slices[slice].gpu_index)) + "," +
                       label("user", user_text(lease.client)) + "," +
                       label("client", lease.client.host) + "," +
                       label("program", lease.client.program),
                   value_of(lease, slice));
      }
    }
  };
  each("tendril_lease_share_ratio", "gauge", "Share of the GPU that was asked for.", false,
       [](Lease lease, size_t slice) { return ratio(lease.slices[slice].share_millionths); });
  each("tendril_lease_share_delivered_ratio", "gauge",
       "Share of the GPU's time had over the last ten seconds.", true,
       [](Lease lease, size_t slice) { return ratio(lease.uses[slice].recent_millionths); });
  each("tendril_lease_gpu_seconds_total", "counter", "GPU time had in turns.", true,
       [](Lease lease, size_t slice) { return seconds(lease.uses[slice].used_ns); });
  each("tendril_lease_queued_seconds_total", "counter",
       "Time with work in hand and without a turn.", true,
       [](Lease lease, size_t slice) { return seconds(lease.uses[slice].waited_ns); });
  each("tendril_lease_memory_quota_bytes", "gauge", "Memory that the lease may use.", false,
       [](Lease lease, size_t slice) {
         return static_cast<double>(lease.slices[slice].memory_bytes);
       });
  each("tendril_lease_memory_used_bytes", "gauge", "Memory charged to the lease.", false,
       [](Lease lease, size_t slice) { return static_cast<double>(memory_used_of(lease, slice)); });
  each("tendril_lease_memory_parked_bytes", "gauge",
       "Memory charged to the lease that is in the server's host memory.", false,
       [](Lease lease, size_t slice) {
         return static_cast<double>(memory_parked_of(lease, slice));
       });
  each("tendril_lease_parked_seconds", "gauge", "How long the lease has been parked; 0: it is not.",
       false, [](Lease lease, size_t) {
         return lease.standing == wire::Standing::kParked ? static_cast<double>(lease.standing_s)
                                                          : 0.0;
       });
  each("tendril_lease_parks_total", "counter", "How often the lease was parked.", false,
       [](Lease lease, size_t) { return static_cast<double>(lease.parks); });
  each("tendril_lease_sessions", "gauge", "Client processes that are attached.", false,
       [](Lease lease, size_t) { return static_cast<double>(lease.processes); });
  Family idle(out, "tendril_lease_idle_seconds", "gauge",
              "Since work or a copy of the lease last reached its GPUs; 0 while it works.");
  const auto add_idle = [&](Lease lease, double idle_s) {
    if (idle_s < 0) return;
    idle.add(label("lease", std::to_string(lease.lease_id)) + "," +
                 label("user", user_text(lease.client)) + "," + label("client", lease.client.host) +
                 "," + label("program", lease.client.program),
             idle_s);
  };
  for (const wire::LeaseRecord& lease : list.leases) {
    const auto known = counters.idle_s.find(lease.lease_id);
    add_idle(lease, known == counters.idle_s.end() ? -1 : known->second);
  }
  for (const LeaseMetrics& ended : counters.ended) add_idle(ended.lease, ended.idle_s);
}

// By what carries them: "tcp", "rdma". Workers say it, so other words are none.
void add_passages(const wire::ListReply& list, std::string* out) {
  uint64_t tcp = 0, rdma = 0;
  for (const wire::LeaseRecord& lease : list.leases) {
    for (const wire::PassageRecord& passage : lease.passages)
      ++(passage.way.compare(0, 4, "rdma") == 0 ? rdma : tcp);
  }
  Family family(out, "tendril_passages", "gauge",
                "Ways of leases to other servers, for copies between GPUs.");
  family.add(label("way", "rdma"), static_cast<double>(rdma));
  family.add(label("way", "tcp"), static_cast<double>(tcp));
}

// The names, labels and units of dcgm-exporter (gauges; memory in MiB, utilisation in per cent).
void add_dcgm(const wire::ListReply& list, std::string* out) {
  using Gpu = const wire::GpuRecord&;
  const auto each = [&](const char* name, const char* help,
                        const std::function<double(Gpu)>& value_of) {
    Family family(out, name, "gauge", help);
    for (const wire::GpuRecord& gpu : list.gpus) {
      const double value = value_of(gpu);
      if (value < 0) continue;
      const std::string index = std::to_string(gpu.index);
      family.add(label("gpu", index) + "," + label("UUID", uuid_text(gpu.uuid)) + "," +
                     label("device", "nvidia" + index) + "," + label("modelName", gpu.name) + "," +
                     label("Hostname", list.server),
                 value);
    }
  };
  constexpr double kMib = 1 << 20;
  each("DCGM_FI_DEV_GPU_UTIL", "GPU utilization (in %).",
       [](Gpu gpu) { return static_cast<double>(gpu.utilization_percent); });
  each("DCGM_FI_PROF_GR_ENGINE_ACTIVE", "Ratio of time the graphics engine is active.",
       [](Gpu gpu) { return gpu.utilization_percent / 100.0; });
  each("DCGM_FI_DEV_FB_USED", "Framebuffer memory used (in MiB).",
       [](Gpu gpu) { return static_cast<double>(gpu.memory_used_bytes) / kMib; });
  each("DCGM_FI_DEV_FB_FREE", "Framebuffer memory free (in MiB).", [](Gpu gpu) {
    return static_cast<double>(gpu.memory_total_bytes) / kMib -
           static_cast<double>(gpu.memory_used_bytes) / kMib;
  });
  each("DCGM_FI_DEV_GPU_TEMP", "GPU temperature (in C).",
       [](Gpu gpu) { return static_cast<double>(gpu.temperature_c); });
  each("DCGM_FI_DEV_POWER_USAGE", "Power draw (in W).",
       [](Gpu gpu) { return gpu.power_mw < 0 ? -1 : gpu.power_mw / 1000.0; });
}

void add_sessions(const wire::ListReply& list, std::string* out) {
  using Session = const wire::SessionRecord&;
  const auto each = [&](const char* name, const char* help,
                        const std::function<double(Session)>& value_of) {
    Family family(out, name, "counter", help);
    for (const wire::SessionRecord& session : list.sessions) {
      family.add(label("session", std::to_string(session.session_id)) + "," +
                     label("lease", std::to_string(session.lease_id)) + "," +
                     label("user", user_text(session.client)) + "," +
                     label("client", session.client.host) + "," +
                     label("program", session.client.program) + "," +
                     label("pid", std::to_string(session.client.pid)),
                 value_of(session));
    }
  };
  const auto count = [](uint64_t value) { return static_cast<double>(value); };
  each("tendril_session_calls_total", "Calls that reached the server.",
       [&](Session session) { return count(session.calls); });
  each("tendril_session_launches_total", "Kernels and graphs launched.",
       [&](Session session) { return count(session.launches); });
  each("tendril_session_round_trips_total", "Calls that were answered.",
       [&](Session session) { return count(session.replies); });
  each("tendril_session_received_bytes_total", "Bytes from the program.",
       [&](Session session) { return count(session.bytes_in); });
  each("tendril_session_sent_bytes_total", "Bytes to the program.",
       [&](Session session) { return count(session.bytes_out); });
  each("tendril_session_processor_seconds_total", "Processor time of the session's worker.",
       [](Session session) { return seconds(session.processor_ns); });
  each("tendril_session_awaited_seconds_total", "Time in which the program waited for an answer.",
       [](Session session) { return seconds(session.awaited_ns); });
}

}  // namespace

std::string metrics_text(const wire::ListReply& list, const Counters& counters, bool dcgm) {
  std::string out;
  add_server(list, counters, &out);
  add_gpus(list, counters, &out);
  add_leases(list, counters, &out);
  add_passages(list, &out);
  add_sessions(list, &out);
  if (dcgm) add_dcgm(list, &out);
  return out;
}

}  // namespace tendril::view
