// SPDX-License-Identifier: Apache-2.0
// The entry points as programs call them, against a server in this process.
#include <dlfcn.h>
#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>
#include <set>

#include "client/common/log.h"
#include "client/nvml/answer.h"
#include "client/nvml/test_server.h"

namespace tendril::client::nvml {
namespace {

constexpr uint64_t kGiB = 1ull << 30;
constexpr uint32_t kLease = 9;

class NvmlTest : public testing::Test {
 protected:
  void SetUp() override {
    for (const char* name : {"TENDRIL_SERVERS", "TENDRIL_LEASES", "TENDRIL_GPUS", "TENDRIL_SLICE",
                             "TENDRIL_MEMORY", "TENDRIL_TOKEN"}) {
      unsetenv(name);
    }
    setenv("TENDRIL_SERVERS_CONF", "/nonexistent/servers.conf", 1);
    forget_logged();
  }
  void TearDown() override {
    while (nvmlShutdown() == NVML_SUCCESS) continue;
  }

  // Two slices of 35 GiB, of GPUs 1 and 0 of the server in this order.
  void serve_lease() {
    wire::ListReply list;
    list.driver = "/usr/lib/libcuda.so.580.159.04";
    list.driver_version = 13000;
    for (uint32_t i = 0; i < 2; ++i) {
      wire::GpuRecord gpu;
      gpu.index = i;
      gpu.name = "NVIDIA H200";
      gpu.uuid = std::string(15, '\x11') + static_cast<char>(i);
      gpu.pci_bus_id = i == 0 ? "00000000:1A:00.0" : "00000000:3B:00.0";
      gpu.memory_total_bytes = 140 * kGiB;
      gpu.utilization_percent = 10 + static_cast<int>(i);
      gpu.temperature_c = 40 + static_cast<int>(i);
      gpu.power_mw = 100'000;
      list.gpus.push_back(gpu);
    }
    wire::LeaseRecord lease;
    lease.lease_id = kLease;
    lease.client.pid = 4242;
    lease.processes = 1;
    lease.slices = {{1, 250'000, 35 * kGiB}, {0, 250'000, 35 * kGiB}};
    lease.memory_used_bytes = {3 * kGiB, 0};
    list.leases = {lease};
    list_ = list;
    server_.say(list);
    setenv("TENDRIL_LEASES", (server_.address() + "=9:abcd").c_str(), 1);
  }

  nvmlDevice_t device(unsigned index) {
    nvmlDevice_t handle = nullptr;
    EXPECT_EQ(nvmlDeviceGetHandleByIndex_v2(index, &handle), NVML_SUCCESS);
    return handle;
  }
  void let_it_age() { usleep((kRefreshMs + 20) * 1000); }

  FakeServer server_;
  wire::ListReply list_;
};

TEST_F(NvmlTest, EveryEntryHasABody) {
  std::set<std::string> names;
  size_t manual = 0;
  for (size_t i = 0; i < kEntryCount; ++i) {
    EXPECT_NE(kEntries[i].address, nullptr);
    EXPECT_TRUE(names.insert(kEntries[i].name).second) << kEntries[i].name;
    manual += kEntries[i].answer == Answer::kLocal;
  }
  EXPECT_GE(kEntryCount, 429u);
  EXPECT_GE(manual, 90u);
}

TEST_F(NvmlTest, NothingBeforeInit) {
  unsigned count = 0;
  nvmlDevice_t handle = nullptr;
  char text[96];
  EXPECT_EQ(nvmlDeviceGetCount_v2(&count), NVML_ERROR_UNINITIALIZED);
  EXPECT_EQ(nvmlDeviceGetHandleByIndex(0, &handle), NVML_ERROR_UNINITIALIZED);
  EXPECT_EQ(nvmlDeviceGetName(handle, text, sizeof text), NVML_ERROR_UNINITIALIZED);
  EXPECT_EQ(nvmlSystemGetDriverVersion(text, sizeof text), NVML_ERROR_UNINITIALIZED);
  EXPECT_EQ(nvmlDeviceSetPersistenceMode(handle, NVML_FEATURE_ENABLED), NVML_ERROR_UNINITIALIZED);
  EXPECT_EQ(nvmlDeviceGetFanSpeed(handle, &count), NVML_ERROR_UNINITIALIZED);
  EXPECT_EQ(nvmlShutdown(), NVML_ERROR_UNINITIALIZED);
  EXPECT_STREQ(nvmlErrorString(NVML_ERROR_UNINITIALIZED), "Uninitialized");
  EXPECT_STREQ(nvmlErrorString(static_cast<nvmlReturn_t>(12345)), "Unknown Error");
}

TEST_F(NvmlTest, WithoutAServerOneClearLine) {
  for (const char* address : {"", "127.0.0.1:1", "no such name"}) {
    setenv("TENDRIL_SERVERS", address, 1);
    forget_logged();
    testing::internal::CaptureStderr();
    EXPECT_EQ(nvmlInit_v2(), NVML_ERROR_DRIVER_NOT_LOADED);
    EXPECT_EQ(nvmlInit_v2(), NVML_ERROR_DRIVER_NOT_LOADED);
    std::string text = testing::internal::GetCapturedStderr();
    EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 1) << text;
    EXPECT_NE(text.find("NVML shows no GPU"), std::string::npos) << text;
  }
}

TEST_F(NvmlTest, AWrongTokenIsSaid) {
  server_.token = "right";
  setenv("TENDRIL_SERVERS", server_.address().c_str(), 1);
  setenv("TENDRIL_TOKEN", "wrong", 1);
  testing::internal::CaptureStderr();
  EXPECT_EQ(nvmlInit_v2(), NVML_ERROR_DRIVER_NOT_LOADED);
  EXPECT_NE(testing::internal::GetCapturedStderr().find("token"), std::string::npos);
}

TEST_F(NvmlTest, InitIsCounted) {
  serve_lease();
  unsigned count = 0;
  EXPECT_EQ(nvmlInit(), NVML_SUCCESS);
  EXPECT_EQ(nvmlInitWithFlags(0), NVML_SUCCESS);
  EXPECT_EQ(nvmlShutdown(), NVML_SUCCESS);
  EXPECT_EQ(nvmlDeviceGetCount(&count), NVML_SUCCESS);
  EXPECT_EQ(count, 2u);
  EXPECT_EQ(nvmlShutdown(), NVML_SUCCESS);
  EXPECT_EQ(nvmlDeviceGetCount(&count), NVML_ERROR_UNINITIALIZED);
  EXPECT_EQ(nvmlInit_v2(), NVML_SUCCESS);
}

TEST_F(NvmlTest, HandlesByEveryKey) {
  serve_lease();
  ASSERT_EQ(nvmlInit_v2(), NVML_SUCCESS);
  nvmlDevice_t handle = nullptr;
  EXPECT_NE(device(0), device(1));
  EXPECT_EQ(nvmlDeviceGetHandleByIndex_v2(2, &handle), NVML_ERROR_INVALID_ARGUMENT);
  EXPECT_EQ(nvmlDeviceGetHandleByIndex_v2(0, nullptr), NVML_ERROR_INVALID_ARGUMENT);
  for (const char* bus : {"00000000:1A:00.0", "0000:1a:00.0", "1a:0"}) {
    EXPECT_EQ(nvmlDeviceGetHandleByPciBusId_v2(bus, &handle), NVML_SUCCESS) << bus;
    EXPECT_EQ(handle, device(1)) << "GPU 0 is the second slice";
  }
  EXPECT_EQ(nvmlDeviceGetHandleByPciBusId("0000:99:00.0", &handle), NVML_ERROR_NOT_FOUND);
  EXPECT_EQ(nvmlDeviceGetHandleByPciBusId("nonsense", &handle), NVML_ERROR_INVALID_ARGUMENT);
  char uuid[NVML_DEVICE_UUID_V2_BUFFER_SIZE];
  ASSERT_EQ(nvmlDeviceGetUUID(device(0), uuid, sizeof uuid), NVML_SUCCESS);
  EXPECT_STREQ(uuid, "GPU-11111111-1111-1111-1111-111111111101");
  EXPECT_EQ(nvmlDeviceGetHandleByUUID(uuid, &handle), NVML_SUCCESS);
  EXPECT_EQ(handle, device(0));
  EXPECT_EQ(nvmlDeviceGetHandleByUUID("GPU-1", &handle), NVML_ERROR_NOT_FOUND);
  nvmlUUID_t key = {};
  key.version = nvmlUUID_v1;
  key.type = NVML_UUID_TYPE_BINARY;
  memset(key.value.bytes, 0x11, 15);
  EXPECT_EQ(nvmlDeviceGetHandleByUUIDV(&key, &handle), NVML_SUCCESS);
  EXPECT_EQ(handle, device(1));
  key.version = 0;
  EXPECT_EQ(nvmlDeviceGetHandleByUUIDV(&key, &handle), NVML_ERROR_ARGUMENT_VERSION_MISMATCH);
  EXPECT_EQ(nvmlDeviceGetHandleBySerial("1", &handle), NVML_ERROR_NOT_FOUND);
  char text[8];
  EXPECT_EQ(nvmlDeviceGetName(reinterpret_cast<nvmlDevice_t>(&key), text, 8),
            NVML_ERROR_INVALID_ARGUMENT)
      << "a foreign handle";
  EXPECT_EQ(nvmlDeviceGetName(nullptr, text, 8), NVML_ERROR_INVALID_ARGUMENT);
}

TEST_F(NvmlTest, IdentityAndModel) {
  serve_lease();
  ASSERT_EQ(nvmlInit_v2(), NVML_SUCCESS);
  char text[96];
  unsigned number = 99;
  int major = 0, minor = -1, version = 0;
  EXPECT_EQ(nvmlDeviceGetName(device(0), text, sizeof text), NVML_SUCCESS);
  EXPECT_STREQ(text, "NVIDIA H200");
  EXPECT_EQ(nvmlDeviceGetName(device(0), text, 11), NVML_ERROR_INSUFFICIENT_SIZE);
  EXPECT_EQ(nvmlDeviceGetName(device(0), text, 12), NVML_SUCCESS);
  EXPECT_EQ(nvmlDeviceGetIndex(device(1), &number), NVML_SUCCESS);
  EXPECT_EQ(number, 1u);
  EXPECT_EQ(nvmlDeviceGetCudaComputeCapability(device(0), &major, &minor), NVML_SUCCESS);
  EXPECT_EQ(major * 10 + minor, 90);
  EXPECT_EQ(nvmlDeviceGetCudaComputeCapability(device(0), nullptr, &minor),
            NVML_ERROR_INVALID_ARGUMENT);
  EXPECT_EQ(nvmlDeviceGetArchitecture(device(0), &number), NVML_SUCCESS);
  EXPECT_EQ(number, static_cast<unsigned>(NVML_DEVICE_ARCH_HOPPER));
  nvmlBrandType_t brand;
  EXPECT_EQ(nvmlDeviceGetBrand(device(0), &brand), NVML_SUCCESS);
  EXPECT_EQ(brand, NVML_BRAND_NVIDIA);
  nvmlPciInfo_t pci;
  EXPECT_EQ(nvmlDeviceGetPciInfo_v3(device(0), &pci), NVML_SUCCESS);
  EXPECT_STREQ(pci.busId, "00000000:3B:00.0");
  EXPECT_STREQ(pci.busIdLegacy, "0000:3B:00.0");
  EXPECT_EQ(pci.bus, 0x3bu);
  EXPECT_EQ(nvmlSystemGetDriverVersion(text, sizeof text), NVML_SUCCESS);
  EXPECT_STREQ(text, "580.159.04");
  EXPECT_EQ(nvmlSystemGetNVMLVersion(text, sizeof text), NVML_SUCCESS);
  EXPECT_STREQ(text, "13.580.159.04");
  EXPECT_EQ(nvmlSystemGetCudaDriverVersion_v2(&version), NVML_SUCCESS);
  EXPECT_EQ(version, 13000);
  EXPECT_EQ(nvmlSystemGetProcessName(static_cast<unsigned>(getpid()), text, sizeof text),
            NVML_SUCCESS);
  EXPECT_NE(std::string(text).find("test"), std::string::npos);
  EXPECT_EQ(nvmlSystemGetProcessName(0x7fffffff, text, sizeof text), NVML_ERROR_NOT_FOUND);
}

TEST_F(NvmlTest, MemoryAndProcessesOfTheSlice) {
  serve_lease();
  ASSERT_EQ(nvmlInit_v2(), NVML_SUCCESS);
  nvmlMemory_t memory;
  EXPECT_EQ(nvmlDeviceGetMemoryInfo(device(0), &memory), NVML_SUCCESS);
  EXPECT_EQ(memory.total, 35 * kGiB);
  EXPECT_EQ(memory.used, 3 * kGiB);
  EXPECT_EQ(memory.free, 32 * kGiB);
  nvmlMemory_v2_t memory2 = {};
  EXPECT_EQ(nvmlDeviceGetMemoryInfo_v2(device(0), &memory2), NVML_ERROR_ARGUMENT_VERSION_MISMATCH);
  memory2.version = nvmlMemory_v2;
  EXPECT_EQ(nvmlDeviceGetMemoryInfo_v2(device(0), &memory2), NVML_SUCCESS);
  EXPECT_EQ(memory2.total, 35 * kGiB);

  unsigned count = 0;
  EXPECT_EQ(nvmlDeviceGetComputeRunningProcesses(device(0), &count, nullptr),
            NVML_ERROR_INSUFFICIENT_SIZE);
  EXPECT_EQ(count, 1u);
  nvmlProcessInfo_v1_t first[2] = {};
  first[1].pid = 77;
  count = 2;
  EXPECT_EQ(nvmlDeviceGetComputeRunningProcesses(device(0), &count, first), NVML_SUCCESS);
  EXPECT_EQ(count, 1u);
  EXPECT_EQ(first[0].pid, 4242u);
  EXPECT_EQ(first[0].usedGpuMemory, 3 * kGiB);
  EXPECT_EQ(first[1].pid, 77u) << "the smaller structure of version 1";
  nvmlProcessInfo_t third[1];
  EXPECT_EQ(nvmlDeviceGetComputeRunningProcesses_v3(device(0), &count, third), NVML_SUCCESS);
  EXPECT_EQ(third[0].gpuInstanceId, 0xffffffffu);
  EXPECT_EQ(nvmlDeviceGetGraphicsRunningProcesses_v3(device(0), &count, third), NVML_SUCCESS);
  EXPECT_EQ(count, 0u);
}

// As nvidia-smi calls it.
TEST_F(NvmlTest, ThePrivateTableListsDevicesAndTheirProcesses) {
  serve_lease();
  ASSERT_EQ(nvmlInit_v2(), NVML_SUCCESS);
  const unsigned char id[16] = {0xc4, 0xfe, 0x3e, 0x6c, 0xc9, 0x8f, 0x6c, 0x4e,
                                0xa3, 0x27, 0xee, 0x69, 0x6e, 0x12, 0xf7, 0xc4};
  const void* table = nullptr;
  EXPECT_EQ(nvmlInternalGetExportTable(&table, "another table..."), NVML_ERROR_NOT_SUPPORTED);
  EXPECT_EQ(table, nullptr);
  ASSERT_EQ(nvmlInternalGetExportTable(&table, id), NVML_SUCCESS);
  using Slot = nvmlReturn_t (*)(void*, void*, void*);
  const auto call = [&](size_t slot, void* first, void* second, void* third) {
    return reinterpret_cast<Slot>(static_cast<void* const*>(table)[slot])(first, second, third);
  };
  ASSERT_EQ(reinterpret_cast<size_t>(*static_cast<void* const*>(table)), 256 * sizeof(void*));
  nvmlDevice_t handle = nullptr;
  EXPECT_EQ(call(81, reinterpret_cast<void*>(1), &handle, reinterpret_cast<void*>(0x22)),
            NVML_SUCCESS);
  EXPECT_EQ(handle, device(1));

  struct {
    nvmlProcessDetail_v1_t detail;
    char name[4096];
  } listed[2] = {};
  unsigned count = 250;
  EXPECT_EQ(call(213, device(0), &count, listed), NVML_SUCCESS);
  EXPECT_EQ(count, 1u);
  EXPECT_EQ(listed[0].detail.pid, 4242u);
  EXPECT_EQ(listed[0].detail.usedGpuMemory, 3 * kGiB);
  EXPECT_NE(listed[0].name[0], 0);

  // What is not described: nothing is there, and what is no address is left alone.
  count = 7;
  EXPECT_EQ(call(100, device(0), &count, nullptr), NVML_SUCCESS);
  EXPECT_EQ(count, 0u);
  EXPECT_EQ(call(100, device(0), reinterpret_cast<void*>(8), nullptr), NVML_SUCCESS);
  EXPECT_EQ(call(20, device(0), nullptr, nullptr), NVML_ERROR_NO_PERMISSION);
}

TEST_F(NvmlTest, LiveValuesAreRefreshedButNotOften) {
  serve_lease();
  ASSERT_EQ(nvmlInit_v2(), NVML_SUCCESS);
  nvmlUtilization_t utilization;
  unsigned number;
  int before = server_.lists();
  for (int i = 0; i < 50; ++i)
    EXPECT_EQ(nvmlDeviceGetUtilizationRates(device(0), &utilization), NVML_SUCCESS);
  EXPECT_LE(server_.lists() - before, 2);
  EXPECT_EQ(utilization.gpu, 11u);
  list_.gpus[1].utilization_percent = 77;
  list_.gpus[1].temperature_c = -1;
  list_.leases[0].memory_used_bytes[0] = 5 * kGiB;
  server_.say(list_);
  let_it_age();
  EXPECT_EQ(nvmlDeviceGetUtilizationRates(device(0), &utilization), NVML_SUCCESS);
  EXPECT_EQ(utilization.gpu, 77u);
  EXPECT_EQ(nvmlDeviceGetTemperature(device(0), NVML_TEMPERATURE_GPU, &number),
            NVML_ERROR_NOT_SUPPORTED)
      << "not known";
  EXPECT_EQ(nvmlDeviceGetPowerUsage(device(0), &number), NVML_SUCCESS);
  EXPECT_EQ(number, 100'000u);
  nvmlMemory_t memory;
  EXPECT_EQ(nvmlDeviceGetMemoryInfo(device(0), &memory), NVML_SUCCESS);
  EXPECT_EQ(memory.used, 5 * kGiB);
}

TEST_F(NvmlTest, MemoryJustTakenIsSeen) {
  serve_lease();
  ASSERT_EQ(nvmlInit_v2(), NVML_SUCCESS);
  nvmlMemory_t memory;
  ASSERT_EQ(nvmlDeviceGetMemoryInfo(device(0), &memory), NVML_SUCCESS);
  list_.leases[0].memory_used_bytes[0] = 5 * kGiB;
  server_.say(list_);
  ASSERT_EQ(nvmlDeviceGetMemoryInfo(device(0), &memory), NVML_SUCCESS);
  EXPECT_EQ(memory.used, 5 * kGiB);
}

TEST_F(NvmlTest, ABrokenConnectionIsMadeAnew) {
  serve_lease();
  ASSERT_EQ(nvmlInit_v2(), NVML_SUCCESS);
  server_.hang_up();
  let_it_age();
  unsigned number;
  EXPECT_EQ(nvmlDeviceGetPowerUsage(device(0), &number), NVML_SUCCESS);
  EXPECT_EQ(server_.connections(), 2);
}

TEST_F(NvmlTest, ALostLeaseOrServerIsALostGpu) {
  serve_lease();
  ASSERT_EQ(nvmlInit_v2(), NVML_SUCCESS);
  wire::ListReply ended = list_;
  ended.leases.clear();
  server_.say(ended);
  let_it_age();
  unsigned number;
  char text[96];
  testing::internal::CaptureStderr();
  EXPECT_EQ(nvmlDeviceGetPowerUsage(device(0), &number), NVML_ERROR_GPU_IS_LOST);
  EXPECT_NE(testing::internal::GetCapturedStderr().find("has ended"), std::string::npos);
  EXPECT_EQ(nvmlDeviceGetName(device(0), text, sizeof text), NVML_SUCCESS)
      << "what it was is still known";
  server_.say(list_);
  let_it_age();
  EXPECT_EQ(nvmlDeviceGetPowerUsage(device(0), &number), NVML_SUCCESS);
}

TEST_F(NvmlTest, RefusedAbsentAndLoud) {
  serve_lease();
  ASSERT_EQ(nvmlInit_v2(), NVML_SUCCESS);
  unsigned number;
  unsigned long long energy;
  nvmlEnableState_t now, later;
  EXPECT_EQ(nvmlDeviceSetGpuLockedClocks(device(0), 1, 2), NVML_ERROR_NO_PERMISSION);
  EXPECT_EQ(nvmlDeviceSetGpuLockedClocks(nullptr, 1, 2), NVML_ERROR_INVALID_ARGUMENT);
  testing::internal::CaptureStderr();
  EXPECT_EQ(nvmlDeviceGetFanSpeed(device(0), &number), NVML_ERROR_NOT_SUPPORTED);
  EXPECT_EQ(nvmlDeviceGetEccMode(device(0), &now, &later), NVML_ERROR_NOT_SUPPORTED);
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "");
  uint64_t before = loud_calls();
  testing::internal::CaptureStderr();
  EXPECT_EQ(nvmlDeviceGetTotalEnergyConsumption(device(0), &energy), NVML_ERROR_NOT_SUPPORTED);
  EXPECT_EQ(nvmlDeviceGetTotalEnergyConsumption(device(0), &energy), NVML_ERROR_NOT_SUPPORTED);
  std::string text = testing::internal::GetCapturedStderr();
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 1) << text;
  EXPECT_NE(text.find("nvmlDeviceGetTotalEnergyConsumption"), std::string::npos);
  EXPECT_EQ(loud_calls() - before, 2u);
}

TEST_F(NvmlTest, TopologyAndModes) {
  serve_lease();
  ASSERT_EQ(nvmlInit_v2(), NVML_SUCCESS);
  nvmlGpuP2PStatus_t p2p;
  EXPECT_EQ(nvmlDeviceGetP2PStatus(device(0), device(1), NVML_P2P_CAPS_INDEX_NVLINK, &p2p),
            NVML_SUCCESS);
  EXPECT_EQ(p2p, NVML_P2P_STATUS_NOT_SUPPORTED);
  nvmlGpuTopologyLevel_t level;
  EXPECT_EQ(nvmlDeviceGetTopologyCommonAncestor(device(0), device(1), &level), NVML_SUCCESS);
  EXPECT_EQ(level, NVML_TOPOLOGY_SYSTEM);
  unsigned number = 0;
  EXPECT_EQ(nvmlDeviceGetNvLinkCapability(device(0), 0, NVML_NVLINK_CAP_P2P_SUPPORTED, &number),
            NVML_ERROR_NOT_SUPPORTED);
  // A caller's structure of version 2 is shorter: what follows it must stay as it is.
  struct {
    nvmlGpuFabricInfo_v2_t info;
    char after[8];
  } fabric;
  memset(&fabric, 0x5a, sizeof fabric);
  fabric.info.version = nvmlGpuFabricInfo_v2;
  EXPECT_EQ(
      nvmlDeviceGetGpuFabricInfoV(device(0), reinterpret_cast<nvmlGpuFabricInfoV_t*>(&fabric)),
      NVML_SUCCESS);
  EXPECT_EQ(fabric.info.state, NVML_GPU_FABRIC_STATE_NOT_SUPPORTED);
  EXPECT_EQ(fabric.after[0], 0x5a);
  nvmlFieldValue_t fields[2] = {};
  EXPECT_EQ(nvmlDeviceGetFieldValues(device(0), 2, fields), NVML_SUCCESS);
  EXPECT_EQ(fields[1].nvmlReturn, NVML_ERROR_NOT_SUPPORTED);
  unsigned current = 9, pending = 9;
  EXPECT_EQ(nvmlDeviceGetMigMode(device(0), &current, &pending), NVML_SUCCESS);
  EXPECT_EQ(current + pending, 0u);
  unsigned long cpus[16];
  EXPECT_EQ(nvmlDeviceGetCpuAffinity(device(0), 16, cpus), NVML_SUCCESS);
  EXPECT_NE(cpus[0], 0u);
  EXPECT_EQ(nvmlDeviceGetCurrPcieLinkGeneration(device(0), &number), NVML_SUCCESS);
  EXPECT_EQ(number, 5u);
}

TEST_F(NvmlTest, AForkedChildGoesOnByItself) {
  serve_lease();
  ASSERT_EQ(nvmlInit_v2(), NVML_SUCCESS);
  nvmlDevice_t handle = device(0);
  let_it_age();
  pid_t child = fork();
  if (child == 0) {
    unsigned number = 0;
    alarm(20);
    bool good = nvmlDeviceGetPowerUsage(handle, &number) == NVML_SUCCESS && number == 100'000;
    good = good && nvmlShutdown() == NVML_SUCCESS;
    _exit(good ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  let_it_age();
  unsigned number;
  EXPECT_EQ(nvmlDeviceGetPowerUsage(handle, &number), NVML_SUCCESS);
  EXPECT_EQ(server_.connections(), 2)
      << "the parent keeps its connection, the child has one of its own";
}

TEST_F(NvmlTest, ManyThreads) {
  serve_lease();
  ASSERT_EQ(nvmlInit_v2(), NVML_SUCCESS);
  std::vector<std::thread> threads;
  std::atomic<int> failures{0};
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < 3000; ++i) {
        nvmlMemory_t memory;
        nvmlDevice_t handle;
        bool good =
            nvmlInit_v2() == NVML_SUCCESS &&
            nvmlDeviceGetHandleByIndex_v2(static_cast<unsigned>(t % 2), &handle) == NVML_SUCCESS;
        good = good && nvmlDeviceGetMemoryInfo(handle, &memory) == NVML_SUCCESS &&
               memory.total == 35 * kGiB;
        good = nvmlShutdown() == NVML_SUCCESS && good;
        failures += !good;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(failures, 0);
}

}  // namespace
}  // namespace tendril::client::nvml
