// SPDX-License-Identifier: Apache-2.0
// Turns the servers' lists into the devices that a program sees. Pure functions: no connection, no
// state.
#include <algorithm>

#include "base/text.h"
#include "client/common/pci_places.h"
#include "client/common/visible_devices.h"
#include "client/nvml/catalogue.h"
#include "config/quantity.h"
#include "lease/placement.h"

namespace tendril::client::nvml {
namespace {

using base::Code;
using base::Result;
using base::Status;

bool parse_hex(const std::string& text, uint32_t* value) {
  if (text.empty() || text.size() > 8) return false;
  uint32_t sum = 0;
  for (char c : text) {
    int digit = c >= '0' && c <= '9'   ? c - '0'
                : c >= 'a' && c <= 'f' ? c - 'a' + 10
                : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                       : -1;
    if (digit < 0) return false;
    sum = sum * 16 + static_cast<uint32_t>(digit);
  }
  *value = sum;
  return true;
}

const wire::GpuRecord* find_gpu(const wire::ListReply& list, uint32_t index) {
  for (const wire::GpuRecord& gpu : list.gpus) {
    if (gpu.index == index) return &gpu;
  }
  return nullptr;
}

Device device_of(const wire::GpuRecord& gpu, uint32_t server, uint64_t memory_bytes) {
  Device device;
  device.server = server;
  device.name = gpu.name;
  device.uuid = gpu.uuid;
  device.uuid_text = uuid_text(gpu.uuid);
  device.pci = parse_pci(gpu.pci_bus_id);
  device.model = model_of(gpu.name);
  device.memory_total_bytes = memory_bytes;
  device.utilization_percent = gpu.utilization_percent;
  device.temperature_c = gpu.temperature_c;
  device.power_mw = gpu.power_mw;
  return device;
}

// The processes that have a session of the lease on this host. Elsewhere a number names another
// process. Then the holder of the lease stands for them, as for servers that list no sessions.
std::vector<Process> processes_of(const wire::ListReply& list, const wire::LeaseRecord& lease,
                                  size_t slice, uint64_t used_bytes, const Self& self) {
  std::vector<Process> processes;
  for (const wire::SessionRecord& session : list.sessions) {
    if (session.lease_id != lease.lease_id || session.client.host != self.host) continue;
    const auto& used = session.memory_used_bytes;
    processes.push_back({session.client.pid, slice < used.size() ? used[slice] : 0});
  }
  if (processes.empty() && lease.processes != 0)
    processes.push_back({self.uses_cuda ? self.pid : lease.client.pid, used_bytes});
  return processes;
}

void add_lease(const wire::ListReply& list, const wire::LeaseRecord& lease, uint32_t server,
               const Self& self, std::vector<Device>* devices) {
  for (size_t i = 0; i < lease.slices.size() && devices->size() < kSlicesMax; ++i) {
    const wire::GpuRecord* gpu = find_gpu(list, lease.slices[i].gpu_index);
    if (gpu == nullptr) continue;
    Device device = device_of(*gpu, server, lease.slices[i].memory_bytes);
    uint64_t used = i < lease.memory_used_bytes.size() ? lease.memory_used_bytes[i] : 0;
    device.memory_used_bytes = std::min(used, device.memory_total_bytes);
    device.processes = processes_of(list, lease, i, device.memory_used_bytes, self);
    devices->push_back(std::move(device));
  }
}

Result<std::vector<Device>> leased(const Configuration& configuration,
                                   const std::vector<ServerView>& views, const Self& self) {
  std::vector<Device> devices;
  for (uint32_t server = 0; server < configuration.servers.size(); ++server) {
    const Server& named = configuration.servers[server];
    const auto& leases = views[server].list.leases;
    auto found = std::find_if(leases.begin(), leases.end(),
                              [&](const auto& lease) { return lease.lease_id == named.lease_id; });
    if (found == leases.end()) {
      return Status(
          Code::kNotFound,
          base::format(
              "lease %llu of GPU server %s has ended: start the program again with `tendril run`",
              static_cast<unsigned long long>(named.lease_id), named.endpoint.c_str()));
    }
    add_lease(views[server].list, *found, server, self, &devices);
  }
  return devices;
}

// The slices that this process holds because it has attached by itself.
std::vector<Device> own(const std::vector<ServerView>& views, const Self& self) {
  std::vector<Device> devices;
  for (uint32_t server = 0; server < views.size(); ++server) {
    for (const wire::LeaseRecord& lease : views[server].list.leases) {
      if (lease.client.pid == self.pid && lease.client.host == self.host)
        add_lease(views[server].list, lease, server, self, &devices);
    }
  }
  return devices;
}

// The device that a slice on this GPU would show.
Device device_of(const wire::ListReply& list, const wire::SliceGrant& slice, uint32_t server) {
  const wire::GpuRecord* const gpu = find_gpu(list, slice.gpu_index);
  return device_of(*gpu, server, std::min(slice.memory_bytes, gpu->memory_total_bytes));
}

// Adds the GPUs that got no slice, in their order. So a program whose slices would not be granted
// still sees the GPUs.
void add_others(const wire::ListReply& list, const wire::SliceSpec& slice, uint32_t server,
                const std::vector<Device>& placed, size_t wanted, std::vector<Device>* devices) {
  for (const wire::GpuRecord& gpu : list.gpus) {
    const auto same = [&](const Device& device) {
      return device.server == server && device.uuid == gpu.uuid;
    };
    if (devices->size() >= wanted) return;
    if (std::any_of(placed.begin(), placed.end(), same)) continue;
    const auto part = static_cast<unsigned __int128>(gpu.memory_total_bytes) *
                      slice.share_millionths / config::kWholeGpu;
    const uint64_t memory_bytes =
        slice.memory_bytes != 0 ? slice.memory_bytes : static_cast<uint64_t>(part);
    devices->push_back(device_of(gpu, server, std::min(memory_bytes, gpu.memory_total_bytes)));
  }
}

// The slices that would be granted now, on the servers that libcuda would choose when it attaches.
Result<std::vector<Device>> expected(const Configuration& configuration,
                                     const std::vector<ServerView>& views) {
  const uint32_t wanted = configuration.slice_count;
  std::vector<Device> devices;
  const auto ask = [&](size_t server, uint32_t count) {
    const wire::ListReply& list = views[server].list;
    std::vector<lease::GpuRoom> rooms;
    for (const wire::GpuRecord& gpu : list.gpus) rooms.push_back(lease::room_of(gpu));
    const lease::Placement placement = lease::place(rooms, configuration.slice, count, list.server);
    if (placement.chosen.size() < count) return Status(Code::kRefused, "no room");
    for (const wire::SliceGrant& slice : placement.chosen)
      devices.push_back(device_of(list, slice, static_cast<uint32_t>(server)));
    return Status();
  };
  const lease::Filling filling = lease::fill_servers(views.size(), wanted, ask);
  if (filling.missing != 0) {
    const std::vector<Device> placed = devices;
    for (uint32_t server = 0; server < views.size(); ++server)
      add_others(views[server].list, configuration.slice, server, placed, wanted, &devices);
    std::stable_sort(devices.begin(), devices.end(), [](const Device& one, const Device& other) {
      return one.server < other.server;
    });
  }
  if (devices.empty()) {
    return Status(Code::kNotFound,
                  "no GPU server in " + configuration.source + " lends a GPU; see `tendril ls`");
  }
  return devices;
}

// As libcuda does with its devices.
void make_places_distinct(std::vector<Device>* devices) {
  std::vector<PciPlace> places;
  for (const Device& device : *devices)
    places.push_back({device.pci.domain, device.pci.bus, device.pci.device});
  make_distinct(&places);
  for (size_t i = 0; i < devices->size(); ++i) (*devices)[i].pci.domain = places[i].domain;
}

}  // namespace

PciAddress parse_pci(const std::string& text) {
  PciAddress address;
  size_t dot = text.find('.');
  if (dot != std::string::npos && !parse_hex(text.substr(dot + 1), &address.function)) return {};
  std::string rest = text.substr(0, dot);
  size_t last = rest.rfind(':');
  if (last == std::string::npos || !parse_hex(rest.substr(last + 1), &address.device)) return {};
  rest.resize(last);
  size_t first = rest.find(':');
  if (first != std::string::npos && !parse_hex(rest.substr(0, first), &address.domain)) return {};
  if (!parse_hex(first == std::string::npos ? rest : rest.substr(first + 1), &address.bus))
    return {};
  address.valid = true;
  return address;
}

Result<std::vector<Device>> map_devices(const Configuration& configuration,
                                        const std::vector<ServerView>& views, const Self& self) {
  std::vector<Device> devices;
  if (!configuration.leased()) devices = own(views, self);
  if (devices.empty()) {
    Result<std::vector<Device>> mapped = configuration.leased() ? leased(configuration, views, self)
                                                                : expected(configuration, views);
    if (!mapped.ok()) return mapped;
    devices = mapped.take();
  }
  for (uint32_t i = 0; i < devices.size(); ++i) devices[i].index = i;
  make_places_distinct(&devices);
  return devices;
}

}  // namespace tendril::client::nvml
