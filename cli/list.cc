// SPDX-License-Identifier: Apache-2.0
// `tendril ls` (who holds what) and `tendril smi` (the GPUs, like the tool people know).
#include <stdio.h>

#include "base/text.h"
#include "cli/commands.h"
#include "cli/complain.h"
#include "cli/json_output.h"
#include "cli/servers.h"
#include "cli/table.h"
#include "config/quantity.h"

namespace tendril::cli {
namespace {

// Asks every server; failed ones are named on stderr and make the command fail, the others are
// shown all the same.
base::Result<std::vector<ServerView>> ask(const CommonOptions& options, bool* failed) {
  auto asked = reach(options);
  if (!asked.ok()) return asked.status();
  std::vector<ServerView> views = ask_servers(asked->servers.endpoints, asked->connect);
  *failed = !all_answer(views);
  if (!options.json) complain_of_silent(views);  // JSON says it in its own field
  return views;
}

std::string slices_text(const wire::LeaseRecord& lease) {
  std::string text;
  for (const wire::SliceGrant& slice : lease.slices) {
    text += base::format("%sGPU %u: ", text.empty() ? "" : ", ", slice.gpu_index) +
            config::format_fraction(slice.share_millionths) + (slice.packed ? " packed" : "");
  }
  return text;
}

std::string memory_text(const wire::LeaseRecord& lease) {
  uint64_t used = 0, quota = 0;
  for (const uint64_t bytes : lease.memory_used_bytes) used += bytes;
  for (const wire::SliceGrant& slice : lease.slices) quota += slice.memory_bytes;
  return config::format_size(used) + " / " + config::format_size(quota);
}

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

std::string terms_text(const wire::LeaseTerms& terms) {
  std::string text = terms.policy == wire::SharePolicy::kCap ? "cap" : "lend";
  if (terms.priority != 0) text += base::format(", %+d", terms.priority);
  return text;
}

wire::SliceUse use_of(const wire::LeaseRecord& lease, size_t slice) {
  return slice < lease.uses.size() ? lease.uses[slice] : wire::SliceUse();
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
        const uint64_t used_bytes =
            slice < lease.memory_used_bytes.size() ? lease.memory_used_bytes[slice] : 0;
        const wire::SliceUse use = use_of(lease, slice);
        rows.push_back(
            {std::to_string(gpu.index), std::to_string(lease.lease_id),
             safe(lease.client.user) + "@" + safe(lease.client.host), safe(lease.client.program),
             terms_text(lease.terms),
             percent(grant.share_millionths) + (grant.packed ? " packed" : ""), delivered_text(use),
             waited_text(use),
             config::format_size(used_bytes) + " / " + config::format_size(grant.memory_bytes)});
      }
    }
  }
  return rows;
}

}  // namespace

int list_leases(const CommonOptions& options) {
  bool failed = false;
  auto views = ask(options, &failed);
  if (!views.ok()) return complain(kFailed, views.status());
  if (options.json) {
    printf("%s\n", servers_json(*views).c_str());
    return failed ? kFailed : 0;
  }
  std::vector<Row> rows = {{"LEASE", "SERVER", "WHO", "PROGRAM", "SLICES", "TIME 10 S / ALL",
                            "QUEUED", "TERMS", "MEMORY USED / QUOTA", "PROCESSES", "AGE"}};
  for (const ServerView& view : *views) {
    for (const wire::LeaseRecord& lease : view.list.leases) {
      rows.push_back({std::to_string(lease.lease_id), view.endpoint.text,
                      safe(lease.client.user) + "@" + safe(lease.client.host),
                      safe(lease.client.program), slices_text(lease), joined(lease, delivered_text),
                      joined(lease, waited_text), terms_text(lease.terms), memory_text(lease),
                      std::to_string(lease.processes), age_text(lease.age_s)});
    }
  }
  if (rows.size() == 1 && !failed) {
    printf("no leases\n");
  } else if (rows.size() > 1) {
    fputs(aligned(rows).c_str(), stdout);
  }
  return failed ? kFailed : 0;
}

int show_gpus(const CommonOptions& options) {
  bool failed = false;
  auto views = ask(options, &failed);
  if (!views.ok()) return complain(kFailed, views.status());
  if (options.json) {
    printf("%s\n", servers_json(*views).c_str());
    return failed ? kFailed : 0;
  }
  for (const ServerView& view : *views) {
    if (!view.status.ok()) continue;
    printf("%s (%s): Tendril %s, driver %s\n", view.endpoint.text.c_str(),
           safe(view.list.server).c_str(), safe(view.list.product_version).c_str(),
           driver_text(view.list).c_str());
    std::vector<Row> rows = {{"GPU", "NAME", "BUS ID", "TEMP", "POWER", "MEMORY USED / TOTAL",
                              "UTIL", "LENT", "TENANTS"}};
    for (const wire::GpuRecord& gpu : view.list.gpus) {
      rows.push_back({std::to_string(gpu.index), safe(gpu.name), safe(gpu.pci_bus_id),
                      or_dash(gpu.temperature_c, "C"), or_dash(gpu.power_mw, "W", 1000),
                      config::format_size(gpu.memory_used_bytes) + " / " +
                          config::format_size(gpu.memory_total_bytes),
                      or_dash(gpu.utilization_percent, "%"),
                      config::format_fraction(gpu.share_used_millionths),
                      std::to_string(tenants_on(view.list, gpu.index))});
    }
    printf("%s\n", aligned(rows).c_str());
    const std::vector<Row> tenants = tenant_rows(view.list);
    if (tenants.size() > 1) printf("%s\n", aligned(tenants).c_str());
  }
  return failed ? kFailed : 0;
}

}  // namespace tendril::cli
