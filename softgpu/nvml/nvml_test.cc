// SPDX-License-Identifier: Apache-2.0
// The look-alike over a board. The test plays the driver.

#include "softgpu/nvml/nvml.h"

#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "softgpu/board/timeline.h"

namespace tendril::softgpu::nvml {
namespace {

constexpr int64_t kMs = 1'000'000;

// One board for the whole program, as a library has one. Each test leaves it as it found it.
class Nvml : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    char folder[] = "/tmp/softgpu-nvml-XXXXXX";
    ASSERT_NE(nullptr, mkdtemp(folder));
    path_ = std::string(folder) + "/board";
    setenv("TENDRIL_SOFTGPU_BOARD", path_.c_str(), 1);
    setenv("TENDRIL_SOFTGPU_DEVICES", "2", 1);
    setenv("TENDRIL_SOFTGPU_MODE", "virtual", 1);
    std::string complaint;
    Settings settings;
    settings.devices = 2;
    settings.mode = TimeMode::kVirtual;
    snprintf(settings.device[1].name, sizeof settings.device[1].name, "two");
    driver_ = Board::open(path_, settings, &complaint).release();
    driver_->join();
  }
  static void TearDownTestSuite() {
    delete driver_;
    unlink(path_.c_str());
    rmdir(path_.substr(0, path_.rfind('/')).c_str());
  }
  void SetUp() override {
    ASSERT_EQ(NVML_SUCCESS, nvmlInit_v2());
    ASSERT_EQ(NVML_SUCCESS, nvmlDeviceGetHandleByIndex_v2(0, &first_));
    ASSERT_EQ(NVML_SUCCESS, nvmlDeviceGetHandleByIndex_v2(1, &second_));
  }
  void TearDown() override {
    std::string complaint;
    driver_->change_live("", true, &complaint);
    EXPECT_EQ(NVML_SUCCESS, nvmlShutdown());
  }
  // Device 0, or no device, is busy for so long.
  static void pass(int64_t ns, Engine engine) {
    Timeline timeline(*driver_);
    JobRequest request;
    request.engine = engine;
    request.context = 1;
    request.cost_ns = ns;
    uint64_t cookie;
    timeline.host_runs();
    timeline.submit(request);
    timeline.host_blocks();
    ASSERT_TRUE(timeline.next_end(5000, &cookie));
    timeline.delivered();
  }

  static inline std::string path_;
  static inline Board* driver_ = nullptr;
  nvmlDevice_t first_ = nullptr, second_ = nullptr;
};

TEST_F(Nvml, SaysWhatTheDevicesAre) {
  unsigned count = 0;
  EXPECT_EQ(NVML_SUCCESS, nvmlDeviceGetCount_v2(&count));
  EXPECT_EQ(2u, count);
  char text[96];
  EXPECT_EQ(NVML_SUCCESS, nvmlDeviceGetName(second_, text, sizeof text));
  EXPECT_STREQ("Tendril Test Device (software) two", text);
  EXPECT_EQ(NVML_ERROR_INSUFFICIENT_SIZE, nvmlDeviceGetName(second_, text, 8));
  EXPECT_EQ(NVML_SUCCESS, nvmlDeviceGetUUID(second_, text, sizeof text));
  EXPECT_STREQ("GPU-54454e44-5249-4c2d-5445-53542d000001", text);
  nvmlDevice_t same = nullptr;
  EXPECT_EQ(NVML_SUCCESS, nvmlDeviceGetHandleByUUID(text, &same));
  EXPECT_EQ(second_, same);
  nvmlPciInfo_t pci;
  EXPECT_EQ(NVML_SUCCESS, nvmlDeviceGetPciInfo_v3(second_, &pci));
  EXPECT_STREQ("00000000:02:00.0", pci.busId);
  EXPECT_EQ(NVML_SUCCESS, nvmlDeviceGetHandleByPciBusId_v2("0000:02:00.0", &same));
  EXPECT_EQ(second_, same);
  EXPECT_EQ(NVML_ERROR_INVALID_ARGUMENT, nvmlDeviceGetHandleByIndex_v2(2, &same));
  EXPECT_EQ(NVML_ERROR_NOT_FOUND, nvmlDeviceGetHandleByUUID("GPU-no", &same));
  EXPECT_EQ(NVML_ERROR_INVALID_ARGUMENT,
            nvmlDeviceGetName(reinterpret_cast<nvmlDevice_t>(driver_), text, 96));
}

TEST_F(Nvml, ShowsMemoryAndProcesses) {
  ASSERT_TRUE(driver_->charge(0, 123 << 20, UINT64_MAX));
  driver_->count_contexts(0, 1);
  nvmlMemory_t memory;
  EXPECT_EQ(NVML_SUCCESS, nvmlDeviceGetMemoryInfo(first_, &memory));
  EXPECT_EQ(123u << 20, memory.used);
  EXPECT_EQ(1024u << 20, memory.total);
  EXPECT_EQ(memory.total, memory.used + memory.free);
  unsigned count = 0;
  EXPECT_EQ(NVML_ERROR_INSUFFICIENT_SIZE,
            nvmlDeviceGetComputeRunningProcesses_v3(first_, &count, nullptr));
  ASSERT_EQ(1u, count);
  nvmlProcessInfo_t info;
  EXPECT_EQ(NVML_SUCCESS, nvmlDeviceGetComputeRunningProcesses_v3(first_, &count, &info));
  EXPECT_EQ(static_cast<unsigned>(getpid()), info.pid);
  EXPECT_EQ(123u << 20, info.usedGpuMemory);
  char name[64];
  EXPECT_EQ(NVML_SUCCESS, nvmlSystemGetProcessName(info.pid, name, sizeof name));
  EXPECT_NE(nullptr, strstr(name, "softgpu"));
  EXPECT_EQ(NVML_SUCCESS, nvmlDeviceGetComputeRunningProcesses_v3(second_, &count, &info));
  EXPECT_EQ(0u, count);
  driver_->count_contexts(0, -1);
  driver_->discharge(0, 123 << 20);
}

TEST_F(Nvml, KeepsSamplesOfTheLastSecond) {
  pass(2000 * kMs, Engine::kTimer);
  pass(500 * kMs, Engine::kCompute);
  nvmlValueType_t type = NVML_VALUE_TYPE_DOUBLE;
  unsigned count = 0;
  EXPECT_EQ(NVML_SUCCESS,
            nvmlDeviceGetSamples(first_, NVML_GPU_UTILIZATION_SAMPLES, 0, &type, &count, nullptr));
  EXPECT_EQ(NVML_VALUE_TYPE_UNSIGNED_INT, type);
  ASSERT_EQ(16u, count);
  nvmlSample_t samples[16];
  EXPECT_EQ(NVML_SUCCESS,
            nvmlDeviceGetSamples(first_, NVML_GPU_UTILIZATION_SAMPLES, 0, &type, &count, samples));
  ASSERT_EQ(16u, count);
  double sum = 0;
  for (const nvmlSample_t& sample : samples) sum += sample.sampleValue.uiVal;
  EXPECT_NEAR(50, sum / 16, 100.0 / 16);  // the time may begin within a sample
  EXPECT_EQ(NVML_ERROR_NOT_FOUND,
            nvmlDeviceGetSamples(first_, NVML_GPU_UTILIZATION_SAMPLES, samples[15].timeStamp, &type,
                                 &count, samples));
  EXPECT_EQ(NVML_ERROR_NOT_SUPPORTED,
            nvmlDeviceGetSamples(first_, NVML_ENC_UTILIZATION_SAMPLES, 0, &type, &count, samples));
}

TEST_F(Nvml, MeasuresBusyTime) {
  pass(3000 * kMs, Engine::kTimer);
  nvmlUtilization_t utilization;
  unsigned value = 0;
  EXPECT_EQ(NVML_SUCCESS, nvmlDeviceGetUtilizationRates(first_, &utilization));
  EXPECT_EQ(0u, utilization.gpu);
  EXPECT_EQ(NVML_SUCCESS, nvmlDeviceGetTemperature(first_, NVML_TEMPERATURE_GPU, &value));
  EXPECT_EQ(30u, value);
  unsigned long long energy_before = 0, energy_after = 0;
  EXPECT_EQ(NVML_SUCCESS, nvmlDeviceGetTotalEnergyConsumption(first_, &energy_before));
  pass(3000 * kMs, Engine::kCompute);
  EXPECT_EQ(NVML_SUCCESS, nvmlDeviceGetUtilizationRates(first_, &utilization));
  EXPECT_EQ(100u, utilization.gpu);
  EXPECT_EQ(NVML_SUCCESS, nvmlDeviceGetPowerUsage(first_, &value));
  EXPECT_EQ(700'000u, value);
  EXPECT_EQ(NVML_SUCCESS, nvmlDeviceGetTotalEnergyConsumption(first_, &energy_after));
  EXPECT_NEAR(3 * 700'000.0, static_cast<double>(energy_after - energy_before), 10);
  EXPECT_EQ(NVML_SUCCESS, nvmlDeviceGetUtilizationRates(second_, &utilization));
  EXPECT_EQ(0u, utilization.gpu);
}

TEST_F(Nvml, TellsALostDeviceAndMemoryErrors) {
  std::string complaint;
  unsigned value = 0;
  unsigned long long errors = 0;
  driver_->count_ecc_error(1);
  EXPECT_EQ(NVML_SUCCESS, nvmlDeviceGetTotalEccErrors(second_, NVML_MEMORY_ERROR_TYPE_UNCORRECTED,
                                                      NVML_VOLATILE_ECC, &errors));
  EXPECT_EQ(1u, errors);
  ASSERT_TRUE(driver_->change_live("device.1.lost = 1", false, &complaint)) << complaint;
  EXPECT_EQ(NVML_ERROR_GPU_IS_LOST, nvmlDeviceGetPowerUsage(second_, &value));
  EXPECT_EQ(NVML_SUCCESS, nvmlDeviceGetPowerUsage(first_, &value));
  EXPECT_EQ(NVML_SUCCESS, nvmlDeviceGetIndex(second_, &value));  // it still has a number
}

TEST_F(Nvml, SaysWhatItLacks) {
  EXPECT_GE(implemented_symbols(), 40u);
  unsigned value = 0;
  EXPECT_EQ(NVML_ERROR_NOT_SUPPORTED, nvmlDeviceGetFanSpeed(first_, &value));
}

TEST(NvmlStart, IsNeeded) {
  unsigned value = 0;
  nvmlDevice_t device = handle_of(0);
  EXPECT_EQ(NVML_ERROR_UNINITIALIZED, nvmlDeviceGetPowerUsage(device, &value));
  EXPECT_EQ(NVML_ERROR_UNINITIALIZED, nvmlDeviceGetCount_v2(&value));
  EXPECT_EQ(NVML_ERROR_UNINITIALIZED, nvmlDeviceGetHandleByIndex_v2(0, &device));
  EXPECT_EQ(NVML_ERROR_UNINITIALIZED, nvmlShutdown());
}

}  // namespace
}  // namespace tendril::softgpu::nvml
