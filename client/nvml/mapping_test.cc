// SPDX-License-Identifier: Apache-2.0
// From lists to devices, without a connection: order, sizes, whose processes, and which GPUs are
// expected before there is a lease.
#include <gtest/gtest.h>

#include "client/nvml/catalogue.h"

namespace tendril::client::nvml {
namespace {

constexpr uint64_t kGiB = 1ull << 30;

wire::GpuRecord gpu(uint32_t index, uint32_t share_used = 0) {
  wire::GpuRecord record;
  record.index = index;
  record.name = "NVIDIA H200";
  record.uuid = std::string(15, 'u') + static_cast<char>('0' + index);
  record.pci_bus_id = "0000:0" + std::to_string(index + 1) + ":00.0";
  record.memory_total_bytes = 140 * kGiB;
  record.share_used_millionths = share_used;
  record.memory_usable_bytes = record.memory_total_bytes;
  return record;
}

ServerView server(uint32_t gpus) {
  ServerView view;
  view.reachable = true;
  for (uint32_t i = 0; i < gpus; ++i) view.list.gpus.push_back(gpu(i));
  return view;
}

wire::LeaseRecord lease(uint64_t id, std::vector<uint32_t> indices, uint32_t pid,
                        const std::string& host = "here") {
  wire::LeaseRecord record;
  record.lease_id = id;
  record.client.pid = pid;
  record.client.host = host;
  for (uint32_t index : indices) {
    record.slices.push_back({index, 250'000, 35 * kGiB});
    record.memory_used_bytes.push_back(kGiB * (index + 1));
  }
  return record;
}

Configuration servers(std::vector<uint64_t> lease_ids) {
  Configuration configuration;
  configuration.source = "TENDRIL_TEST";
  for (uint64_t id : lease_ids) {
    const std::string name = "s" + std::to_string(configuration.servers.size());
    configuration.servers.push_back({name, "", id, ""});
  }
  return configuration;
}

const Self kSelf{"here", 42, false};

TEST(MapDevices, LeasesInOrderAndSlicesAsWholeDevices) {
  std::vector<ServerView> views = {server(4), server(2)};
  views[0].list.leases = {lease(6, {0}, 7), lease(5, {3, 1}, 42)};
  views[1].list.leases = {lease(5, {0}, 42)};
  views[0].list.leases[1].processes = 1;
  views[0].list.gpus[3].temperature_c = 50;
  auto devices = map_devices(servers({5, 5}), views, kSelf);
  ASSERT_TRUE(devices.ok()) << devices.status().message();
  ASSERT_EQ(devices->size(), 3u);
  EXPECT_EQ((*devices)[0].pci.bus, 4u);
  EXPECT_EQ((*devices)[1].pci.bus, 2u);
  EXPECT_EQ((*devices)[2].pci.bus, 1u);
  EXPECT_EQ((*devices)[2].server, 1u);
  EXPECT_EQ((*devices)[2].index, 2u);
  EXPECT_EQ((*devices)[0].memory_total_bytes, 35 * kGiB);
  EXPECT_EQ((*devices)[0].memory_used_bytes, 4 * kGiB);
  EXPECT_EQ((*devices)[0].temperature_c, 50);
  EXPECT_EQ((*devices)[0].processes.at(0).pid, 42u);
  EXPECT_TRUE((*devices)[2].processes.empty()) << "nobody is attached there";
}

TEST(MapDevices, EqualIdsOfTwoServersBecomeDifferent) {
  std::vector<ServerView> views = {server(2), server(2)};
  views[0].list.leases = {lease(5, {0, 1}, 42)};
  views[1].list.leases = {lease(5, {0, 1}, 42)};
  auto devices = map_devices(servers({5, 5}), views, kSelf);
  ASSERT_TRUE(devices.ok());
  ASSERT_EQ(devices->size(), 4u);
  const auto& all = *devices;
  for (size_t i : {0u, 1u}) {
    EXPECT_EQ(all[i].pci.domain, 0u);
    EXPECT_EQ(all[i + 2].pci.domain, 1u);
    EXPECT_EQ(all[i].pci.bus, all[i + 2].pci.bus);
  }
}

TEST(MapDevices, AnEndedLeaseIsNamed) {
  auto devices = map_devices(servers({5}), {server(1)}, kSelf);
  ASSERT_FALSE(devices.ok());
  EXPECT_NE(devices.status().message().find("lease 5 of GPU server s0"), std::string::npos);
}

TEST(MapDevices, AProcessIsOneOfTheProgramsOwn) {
  std::vector<ServerView> views = {server(1)};
  views[0].list.leases = {lease(5, {0}, 7)};
  views[0].list.leases[0].processes = 2;
  EXPECT_EQ((*map_devices(servers({5}), views, kSelf))[0].processes.at(0).pid, 7u)
      << "the one that took the lease";
  EXPECT_EQ((*map_devices(servers({5}), views, {"here", 42, true}))[0].processes.at(0).pid, 42u)
      << "this one: it uses CUDA";
}

TEST(MapDevices, ProcessesAreThoseWithASessionOnThisHost) {
  std::vector<ServerView> views = {server(1)};
  views[0].list.leases = {lease(5, {0}, 7)};
  views[0].list.leases[0].processes = 3;
  for (const auto& [pid, host] : {std::pair(11u, "here"), {12u, "elsewhere"}, {13u, "here"}}) {
    wire::SessionRecord session;
    session.lease_id = 5;
    session.client.pid = pid;
    session.client.host = host;
    session.memory_used_bytes = {pid * kGiB};
    views[0].list.sessions.push_back(session);
  }
  views[0].list.sessions.push_back({});
  auto devices = map_devices(servers({5}), views, {"here", 42, false});
  const std::vector<Process>& processes = (*devices)[0].processes;
  ASSERT_EQ(processes.size(), 2u);
  EXPECT_EQ(processes[0].pid, 11u);
  EXPECT_EQ(processes[1].pid, 13u);
  EXPECT_EQ(processes[1].memory_bytes, 13 * kGiB);
}

TEST(MapDevices, OwnSlicesReplaceExpectations) {
  std::vector<ServerView> views = {server(3)};
  views[0].list.leases = {lease(1, {0}, 42, "elsewhere"), lease(2, {2}, 42), lease(3, {1}, 43)};
  auto devices = map_devices(servers({0}), views, kSelf);
  ASSERT_TRUE(devices.ok());
  ASSERT_EQ(devices->size(), 1u);
  EXPECT_EQ((*devices)[0].pci.bus, 3u);
  EXPECT_EQ((*devices)[0].memory_total_bytes, 35 * kGiB);
}

TEST(MapDevices, WithoutALeaseTheGpusThatWouldBeGranted) {
  std::vector<ServerView> views = {server(4), server(1)};
  views[0].list.gpus[1].share_used_millionths = 900'000;
  views[0].list.gpus[2].share_used_millionths = 400'000;
  Configuration configuration = servers({0, 0});
  configuration.slice.share_millionths = 500'000;
  configuration.slice_count = 2;
  auto devices = map_devices(configuration, views, kSelf);
  ASSERT_TRUE(devices.ok());
  ASSERT_EQ(devices->size(), 2u);
  EXPECT_EQ((*devices)[0].pci.bus, 1u) << "in order of index";
  EXPECT_EQ((*devices)[1].pci.bus, 3u) << "the fullest with room; GPU 1 has none";
  EXPECT_EQ((*devices)[0].memory_total_bytes, 70 * kGiB);
  EXPECT_EQ((*devices)[0].memory_used_bytes, 0u);

  configuration.slice_count = 64;
  configuration.slice.memory_bytes = 10 * kGiB;
  devices = map_devices(configuration, views, kSelf);
  ASSERT_EQ(devices->size(), 5u) << "no more than there are";
  EXPECT_EQ((*devices)[4].server, 1u);
  EXPECT_EQ((*devices)[4].memory_total_bytes, 10 * kGiB);
}

TEST(MapDevices, WithoutALeaseMemoryAndPackedNeighboursCountToo) {
  std::vector<ServerView> views = {server(4)};
  std::vector<wire::GpuRecord>& gpus = views[0].list.gpus;
  gpus[0].share_used_millionths = 300'000;  // the fullest, but its memory is promised
  gpus[0].memory_promised_bytes = 130 * kGiB;
  gpus[1].share_used_millionths = 200'000;  // the next, for packed slices only
  gpus[1].packed = true;
  gpus[2].memory_usable_bytes = 100 * kGiB;  // and GPU 3 lends less than it has
  gpus[3].share_used_millionths = 100'000;
  gpus[3].memory_usable_bytes = 120 * kGiB;
  gpus[3].memory_promised_bytes = 20 * kGiB;
  gpus[3].process_bytes = kGiB;
  Configuration configuration = servers({0});
  configuration.slice.share_millionths = 250'000;
  auto devices = map_devices(configuration, views, kSelf);
  ASSERT_TRUE(devices.ok());
  ASSERT_EQ(devices->size(), 1u);
  EXPECT_EQ((*devices)[0].pci.bus, 4u);
  EXPECT_EQ((*devices)[0].memory_total_bytes, 30 * kGiB) << "of what the GPU lends";
  configuration.slice_count = 2;
  devices = map_devices(configuration, views, kSelf);
  ASSERT_EQ(devices->size(), 2u);
  EXPECT_EQ((*devices)[0].pci.bus, 3u);
  EXPECT_EQ((*devices)[0].memory_total_bytes, 25 * kGiB);
  configuration.slice.packed = true;
  configuration.slice_count = 1;
  devices = map_devices(configuration, views, kSelf);
  EXPECT_EQ((*devices)[0].pci.bus, 2u);
}

TEST(MapDevices, NoGpuAtAllIsAnError) {
  auto devices = map_devices(servers({0}), {server(0)}, kSelf);
  ASSERT_FALSE(devices.ok());
  EXPECT_NE(devices.status().message().find("TENDRIL_TEST"), std::string::npos);
}

TEST(MapDevices, StrangeListsDoNoHarm) {
  std::vector<ServerView> views = {server(1)};
  views[0].list.leases = {lease(5, {9, 0}, 42)};
  views[0].list.leases[0].memory_used_bytes = {~0ull};
  auto devices = map_devices(servers({5}), views, kSelf);
  ASSERT_TRUE(devices.ok());
  ASSERT_EQ(devices->size(), 1u) << "a slice of no known GPU is left out";
  views[0].list.leases[0].slices.assign(1000, {0, 1, kGiB});
  views[0].list.leases[0].memory_used_bytes.assign(1000, ~0ull);
  devices = map_devices(servers({5}), views, kSelf);
  EXPECT_EQ(devices->size(), kSlicesMax);
  EXPECT_EQ((*devices)[0].memory_used_bytes, kGiB);
}

TEST(ParsePci, Forms) {
  EXPECT_EQ(parse_pci("0000:3b:00.0"), (PciAddress{0, 0x3b, 0, 0, true}));
  EXPECT_EQ(parse_pci("00010000:3B:1F.1"), (PciAddress{0x10000, 0x3b, 0x1f, 1, true}));
  EXPECT_EQ(parse_pci("3b:00"), (PciAddress{0, 0x3b, 0, 0, true}));
  for (const char* bad : {"", "3b", "x:y", "0000:3b:00.", "::", "1:2:3:4", "0000:3b:00.0 "})
    EXPECT_FALSE(parse_pci(bad).valid) << bad;
}

TEST(ModelOf, WholeWordsOnly) {
  EXPECT_EQ(model_of("NVIDIA H200").clock_max_mhz, 1980);
  EXPECT_EQ(model_of("NVIDIA H100 80GB HBM3").clock_max_mhz, 1980);
  EXPECT_EQ(model_of("NVIDIA H100 PCIe").clock_max_mhz, 0) << "another clock, which nobody read";
  EXPECT_EQ(model_of("NVIDIA H100 PCIe").major, 9);
  EXPECT_EQ(model_of("NVIDIA A100-SXM4-80GB").minor, 0);
  EXPECT_EQ(model_of("NVIDIA A10G").minor, 6);
  EXPECT_EQ(model_of("NVIDIA GeForce RTX 4090").minor, 9);
  EXPECT_EQ(model_of("NVIDIA RTX 6000 Ada Generation").minor, 9);
  EXPECT_EQ(model_of("Tesla T4").major, 7);
  EXPECT_EQ(model_of("Something else").major, 0);
}

}  // namespace
}  // namespace tendril::client::nvml
