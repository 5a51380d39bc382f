// SPDX-License-Identifier: Apache-2.0
// See listing.h.
#include "view/listing.h"

#include "base/text.h"
#include "config/quantity.h"
#include "view/table.h"
#include "view/text.h"

namespace tendril::view {
namespace {

std::string or_dash(int32_t value, const char* unit, int32_t divisor = 1) {
  return value < 0 ? "-" : base::format("%d %s", value / divisor, unit);
}

std::string percent(uint32_t millionths) { return base::format("%.1f%%", millionths / 1e4); }

uint32_t overall_millionths(const wire::SliceUse& use) {
  if (use.age_ns == 0) return 0;
  return static_cast<uint32_t>(static_cast<double>(use.used_ns) / static_cast<double>(use.age_ns) *
                               1e6);
}

// What was had of the GPU's time: over the last ten seconds, and since the lease began.
std::string delivered_text(const wire::SliceUse& use) {
  if (!use.measured) return "-";
  return percent(use.recent_millionths) + " / " + percent(overall_millionths(use));
}

std::string waited_text(const wire::SliceUse& use) {
  return use.measured ? base::format("%.1f s", static_cast<double>(use.waited_ns) / 1e9) : "-";
}

std::string terms_text(const wire::LeaseRecord& lease) {
  std::string text = lease.terms.policy == wire::SharePolicy::kCap ? "cap" : "lend";
  if (lease.terms.priority != 0) text += base::format(", %+d", lease.terms.priority);
  if (lease.windows) text += ", windows";
  return text;
}

std::string joined(const wire::LeaseRecord& lease, std::string (*text)(const wire::SliceUse&)) {
  std::string all;
  for (size_t slice = 0; slice < lease.slices.size(); ++slice)
    all += (slice == 0 ? "" : ", ") + text(use_of(lease, slice));
  return all;
}

uint32_t tenants_on(const wire::ListReply& list, uint32_t gpu) {
  uint32_t count = 0;
  for (const wire::LeaseRecord& lease : list.leases) {
    for (const wire::SliceGrant& slice : lease.slices) count += slice.gpu_index == gpu;
  }
  return count;
}

std::string driver_text(const wire::ListReply& list) {
  if (list.driver_version == 0) return safe(list.driver);
  return base::format("%s, CUDA %u.%u", safe(list.driver).c_str(), list.driver_version / 1000,
                      list.driver_version % 1000 / 10);
}

// Who shares each GPU, and what each has had of it.
std::vector<Row> tenant_rows(const wire::ListReply& list) {
  std::vector<Row> rows = {{"GPU", "LEASE", "WHO", "PROGRAM", "TERMS", "SHARE", "TIME 10 S / ALL",
                            "QUEUED", "MEMORY USED / QUOTA"}};
  for (const wire::GpuRecord& gpu : list.gpus) {
    for (const wire::LeaseRecord& lease : list.leases) {
      for (size_t slice = 0; slice < lease.slices.size(); ++slice) {
        const wire::SliceGrant& grant = lease.slices[slice];
        if (grant.gpu_index != gpu.index) continue;
        const wire::SliceUse use = use_of(lease, slice);
        rows.push_back({std::to_string(gpu.index), std::to_string(lease.lease_id),
                        who_text(lease.client), safe(lease.client.program), terms_text(lease),
                        percent(grant.share_millionths) + (grant.packed ? " packed" : ""),
                        delivered_text(use), waited_text(use),
                        memory_text(memory_used_of(lease, slice), grant.memory_bytes)});
      }
    }
  }
  return rows;
}

std::string memory_of(const wire::LeaseRecord& lease) {
  uint64_t used = 0, quota = 0;
  for (const uint64_t bytes : lease.memory_used_bytes) used += bytes;
  for (const wire::SliceGrant& slice : lease.slices) quota += slice.memory_bytes;
  return memory_text(used, quota) +
         (lease.standing == wire::Standing::kGranted ? "" : ", " + standing_text(lease));
}

// How data travels: to the client, and to other servers.
std::string data_text(const wire::LeaseRecord& lease) {
  std::string text = lease.links.empty() ? "-" : safe(lease.links);
  for (const wire::PassageRecord& passage : lease.passages)
    text += ", " + safe(passage.server) + (passage.sealed ? " sealed" : " in clear") +
            (passage.way.empty() ? "" : " over " + safe(passage.way));
  return text;
}

}  // namespace

std::string standing_text(const wire::LeaseRecord& lease) {
  uint64_t parked = 0;
  for (const uint64_t bytes : lease.memory_parked_bytes) parked += bytes;
  return std::string(wire::standing_name(lease.standing)) + " " + config::format_size(parked) +
         " for " + age_text(lease.standing_s);
}

std::string leases_text(const std::vector<ServerView>& views, size_t width) {
  std::vector<Row> rows = {{"LEASE", "SERVER", "WHO", "PROGRAM", "SLICES", "TIME 10 S / ALL",
                            "QUEUED", "TERMS", "MEMORY USED / QUOTA", "PROCESSES", "DATA", "AGE"}};
  for (const ServerView& view : views) {
    for (const wire::LeaseRecord& lease : view.list.leases) {
      const std::string server = view.server + (view.here ? " (here)" : "");
      rows.push_back({std::to_string(lease.lease_id), server, who_text(lease.client),
                      safe(lease.client.program), slices_text(lease.slices, "GPU "),
                      joined(lease, delivered_text), joined(lease, waited_text), terms_text(lease),
                      memory_of(lease), std::to_string(lease.processes), data_text(lease),
                      age_text(lease.age_s)});
    }
  }
  if (rows.size() == 1) return "";
  return fitted(rows, width,
                {"DATA", "QUEUED", "TERMS", "TIME 10 S / ALL", "PROCESSES", "MEMORY USED / QUOTA"});
}

std::string gpus_text(const ServerView& view, size_t width) {
  const wire::ListReply& list = view.list;
  std::string head = view.server + " (" + safe(list.server) + "): Tendril " +
                     safe(list.product_version) +
                     (list.driver.empty() ? "" : ", driver " + driver_text(list));
  std::string text = (width == 0 ? head : wrapped(head, width, 2)) + "\n";
  std::vector<Row> rows = {
      {"GPU", "NAME", "BUS ID", "TEMP", "POWER", "MEMORY USED / TOTAL", "UTIL", "LENT", "TENANTS"}};
  for (const wire::GpuRecord& gpu : list.gpus) {
    rows.push_back({std::to_string(gpu.index), safe(gpu.name), safe(gpu.pci_bus_id),
                    or_dash(gpu.temperature_c, "C"), or_dash(gpu.power_mw, "W", 1000),
                    memory_text(gpu.memory_used_bytes, gpu.memory_total_bytes),
                    or_dash(gpu.utilization_percent, "%"),
                    config::format_fraction(gpu.share_used_millionths),
                    std::to_string(tenants_on(list, gpu.index))});
  }
  text += fitted(rows, width, {"BUS ID", "POWER", "TEMP"}) + "\n";
  const std::vector<Row> tenants = tenant_rows(list);
  if (tenants.size() == 1) return text;
  return text + fitted(tenants, width, {"QUEUED", "TERMS", "TIME 10 S / ALL"}) + "\n";
}

}  // namespace tendril::view
