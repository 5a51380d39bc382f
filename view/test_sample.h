// SPDX-License-Identifier: Apache-2.0
// A server with two GPUs, a lease and a session, for the tests of this room.
#pragma once

#include <string>

#include "wire/control.h"

namespace tendril::view {

inline wire::ListReply sample_list() {
  wire::ListReply list;
  list.server = "rack7";
  list.product_version = "0.1.0";
  list.driver = "/usr/lib/libcuda.so.580.1";
  list.driver_version = 13000;
  list.now_ns = 5'000'000'000;
  wire::GpuRecord gpu;
  gpu.index = 0;
  gpu.name = "H200";
  gpu.uuid = std::string(16, '\x11');
  gpu.pci_bus_id = "0000:3b:00.0";
  gpu.memory_total_bytes = 140ull << 30;
  gpu.memory_used_bytes = 3ull << 30;
  gpu.share_used_millionths = 750'000;
  gpu.temperature_c = 41;
  gpu.power_mw = 123'456;
  list.gpus = {gpu, gpu};
  list.gpus[1].index = 1;
  list.gpus[1].temperature_c = list.gpus[1].power_mw = -1;
  list.gpus[1].utilization_percent = 7;
  wire::LeaseRecord lease;
  lease.lease_id = 9;
  lease.client = {"box", "root", "train\n.py", 17, "ada", "certificate"};
  lease.terms.priority = -4;
  lease.slices.resize(2);
  lease.slices[0] = {0, 333'333, 35ull << 30, false};
  lease.slices[1] = {1, 1'000'000, 140ull << 30, true};
  lease.memory_used_bytes = {5};
  lease.uses = {{true, 240'500, 1'500'000'000, 250'000'000, 6'000'000'000}};
  lease.processes = 2;
  lease.links = "sealed(tcp), shm";
  lease.passages = {{"10.0.0.3", true, ""}, {"10.0.0.4", false, "rdma"}};
  lease.age_s = 7800;
  list.leases = {lease};
  wire::SessionRecord session;
  session.session_id = 12;
  session.lease_id = 9;
  session.client = {"box", "root", "a \"quoted\" \xff program", 77, "ada", "certificate"};
  session.worker_pid = 4711;
  session.link = "tcp";
  session.memory_used_bytes = {5, 6};
  session.age_s = 61;
  session.calls = 5'000;
  session.launches = 4'000;
  session.replies = 30;
  session.bytes_in = 3'000'000;
  session.awaited_ns = 1'500'000'000;
  session.processor_ns = 250'000'000;
  session.measured = true;
  session.gpu_ns = 800'000'000;
  list.sessions = {session};
  return list;
}

}  // namespace tendril::view
