// SPDX-License-Identifier: Apache-2.0
// `tendril ls` (who holds what), `tendril smi` (the GPUs, like the tool people know) and `tendril
// release`.
#include <stdio.h>

#include "base/text.h"
#include "cli/commands.h"
#include "cli/json_output.h"
#include "cli/servers.h"
#include "cli/table.h"
#include "daemon/quantity.h"

namespace tendril::cli {
namespace {

int complain(const base::Status& status) {
  fprintf(stderr, "tendril: %s\n", status.message().c_str());
  return kFailed;
}

// Asks every server; failed ones are named on stderr and make the command fail, the others are
// shown all the same.
base::Result<std::vector<ServerView>> ask(const CommonOptions& options, bool* failed) {
  auto servers = resolve_servers(options.servers);
  if (!servers.ok()) return servers.status();
  auto connect = connect_options(options);
  if (!connect.ok()) return connect.status();
  std::vector<ServerView> views = ask_servers(servers->endpoints, *connect);
  for (const ServerView& view : views) {
    if (view.status.ok()) continue;
    *failed = true;
    if (!options.json) complain(view.status);
  }
  return views;
}

std::string slices_text(const wire::LeaseRecord& lease) {
  std::string text;
  for (const wire::SliceGrant& slice : lease.slices) {
    text += base::format("%sGPU %u: ", text.empty() ? "" : ", ", slice.gpu_index) +
            daemon::format_fraction(slice.share_millionths) + (slice.packed ? " packed" : "");
  }
  return text;
}

std::string memory_text(const wire::LeaseRecord& lease) {
  uint64_t used = 0, quota = 0;
  for (const uint64_t bytes : lease.memory_used_bytes) used += bytes;
  for (const wire::SliceGrant& slice : lease.slices) quota += slice.memory_bytes;
  return daemon::format_size(used) + " / " + daemon::format_size(quota);
}

std::string or_dash(int32_t value, const char* unit, int32_t divisor = 1) {
  return value < 0 ? "-" : base::format("%d %s", value / divisor, unit);
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

}  // namespace

int list_leases(const CommonOptions& options) {
  bool failed = false;
  auto views = ask(options, &failed);
  if (!views.ok()) return complain(views.status());
  if (options.json) {
    printf("%s\n", servers_json(*views, true).c_str());
    return failed ? kFailed : 0;
  }
  std::vector<Row> rows = {
      {"LEASE", "SERVER", "WHO", "PROGRAM", "SLICES", "MEMORY USED / QUOTA", "PROCESSES", "AGE"}};
  for (const ServerView& view : *views) {
    for (const wire::LeaseRecord& lease : view.list.leases) {
      rows.push_back({std::to_string(lease.lease_id), view.endpoint.text,
                      safe(lease.client.user) + "@" + safe(lease.client.host),
                      safe(lease.client.program), slices_text(lease), memory_text(lease),
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
  if (!views.ok()) return complain(views.status());
  if (options.json) {
    printf("%s\n", servers_json(*views, false).c_str());
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
                      daemon::format_size(gpu.memory_used_bytes) + " / " +
                          daemon::format_size(gpu.memory_total_bytes),
                      or_dash(gpu.utilization_percent, "%"),
                      daemon::format_fraction(gpu.share_used_millionths),
                      std::to_string(tenants_on(view.list, gpu.index))});
    }
    printf("%s\n", aligned(rows).c_str());
  }
  return failed ? kFailed : 0;
}

int release_lease(const CommonOptions& options, uint64_t lease_id) {
  auto servers = resolve_servers(options.servers);
  if (!servers.ok()) return complain(servers.status());
  if (servers->endpoints.size() != 1) {
    return complain(base::Status(base::Code::kInvalid,
                                 "lease numbers are each server's own: name one with --server"));
  }
  auto connect = connect_options(options);
  if (!connect.ok()) return complain(connect.status());
  auto control = session::Control::connect(servers->endpoints[0], *connect);
  if (!control.ok()) return complain(control.status());
  const base::Status released = (*control)->release(lease_id);
  return released.ok() ? 0 : complain(released);
}

}  // namespace tendril::cli
