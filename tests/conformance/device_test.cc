// SPDX-License-Identifier: Apache-2.0
// Conformance of initialisation, version, error texts and device enumeration. None of these needs a
// context.
#include <strings.h>

#include "tests/conformance/harness.h"

namespace tendril::conformance {
namespace {

class DeviceTest : public ::testing::Test {
 protected:
  void SetUp() override { dev_ = device(); }
  CUdevice dev_ = -1;
};

TEST_F(DeviceTest, InitTwiceIsFine) {
  OK(cuInit(0));
  OK(cuInit(0));
}

TEST_F(DeviceTest, InitRefusesFlags) { INVALID(cuInit(1)); }

TEST_F(DeviceTest, DriverVersion) {
  int version = 0;
  OK(cuDriverGetVersion(&version));
  EXPECT_GE(version, 12000);
  EXPECT_EQ(version % 10, 0);
}

TEST_F(DeviceTest, Count) {
  int count = 0;
  OK(cuDeviceGetCount(&count));
  EXPECT_GE(count, 1);
}

TEST_F(DeviceTest, GetByOrdinal) {
  int count = 0;
  OK(cuDeviceGetCount(&count));
  for (int i = 0; i < count; i++) {
    CUdevice found = -7;
    OK(cuDeviceGet(&found, i));
    EXPECT_EQ(found, i);
  }
}

TEST_F(DeviceTest, GetRefusesBadOrdinals) {
  int count = 0;
  OK(cuDeviceGetCount(&count));
  CUdevice found = -7;
  EXPECT_CU(cuDeviceGet(&found, count), CUDA_ERROR_INVALID_DEVICE);
  EXPECT_CU(cuDeviceGet(&found, -1), CUDA_ERROR_INVALID_DEVICE);
}

TEST_F(DeviceTest, Name) {
  char name[256] = {};
  OK(cuDeviceGetName(name, sizeof name, dev_));
  EXPECT_GT(strlen(name), 0u);
  EXPECT_CU(cuDeviceGetName(name, sizeof name, 9999), CUDA_ERROR_INVALID_DEVICE);
}

TEST_F(DeviceTest, TotalMemory) {
  size_t bytes = 0;
  OK(cuDeviceTotalMem_v2(&bytes, dev_));
  EXPECT_GT(bytes, size_t{64} << 20);
  EXPECT_CU(cuDeviceTotalMem_v2(&bytes, -1), CUDA_ERROR_INVALID_DEVICE);
}

TEST_F(DeviceTest, UuidIsStable) {
  CUuuid first = {}, second = {};
  OK(cuDeviceGetUuid_v2(&first, dev_));
  OK(cuDeviceGetUuid_v2(&second, dev_));
  EXPECT_EQ(memcmp(&first, &second, sizeof first), 0);
  CUuuid zero = {};
  EXPECT_NE(memcmp(&first, &zero, sizeof first), 0);
  EXPECT_CU(cuDeviceGetUuid_v2(&first, 9999), CUDA_ERROR_INVALID_DEVICE);
}

TEST_F(DeviceTest, BasicAttributes) {
  EXPECT_EQ(attribute(CU_DEVICE_ATTRIBUTE_WARP_SIZE), 32);
  EXPECT_GE(attribute(CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK), 1024);
  EXPECT_GE(attribute(CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT), 1);
  EXPECT_GE(attribute(CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK), 48 << 10);
  EXPECT_EQ(attribute(CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING), 1);
  EXPECT_EQ(attribute(CU_DEVICE_ATTRIBUTE_TOTAL_CONSTANT_MEMORY), 65536);
}

TEST_F(DeviceTest, EveryDocumentedAttributeAnswers) {
  for (int which = 1; which < CU_DEVICE_ATTRIBUTE_MAX; which++) {
    int value = -77;
    EXPECT_EQ(cuDeviceGetAttribute(&value, static_cast<CUdevice_attribute>(which), dev_),
              CUDA_SUCCESS)
        << which;
    EXPECT_NE(value, -77) << which;
  }
}

TEST_F(DeviceTest, AttributeErrors) {
  int value = 0;
  INVALID(cuDeviceGetAttribute(&value, static_cast<CUdevice_attribute>(100000), dev_));
  EXPECT_CU(cuDeviceGetAttribute(&value, CU_DEVICE_ATTRIBUTE_WARP_SIZE, 9999),
            CUDA_ERROR_INVALID_DEVICE);
}

TEST_F(DeviceTest, ComputeCapabilityAgreesWithAttributes) {
  int major = 0, minor = -1;
  OK(cuDeviceComputeCapability(&major, &minor, dev_));
  EXPECT_EQ(major, attribute(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR));
  EXPECT_EQ(minor, attribute(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR));
  EXPECT_GE(major, 7);
}

TEST_F(DeviceTest, PropertiesAgreeWithAttributes) {
  CUdevprop properties = {};
  OK(cuDeviceGetProperties(&properties, dev_));
  EXPECT_EQ(properties.maxThreadsPerBlock, attribute(CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK));
  EXPECT_EQ(properties.maxThreadsDim[2], attribute(CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Z));
  EXPECT_EQ(properties.maxGridSize[1], attribute(CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Y));
  EXPECT_EQ(properties.SIMDWidth, attribute(CU_DEVICE_ATTRIBUTE_WARP_SIZE));
}

TEST_F(DeviceTest, PciBusIdRoundTrip) {
  char text[64] = {};
  OK(cuDeviceGetPCIBusId(text, sizeof text, dev_));
  char expected[64];
  snprintf(expected, sizeof expected, "%04x:%02x:%02x.0",
           attribute(CU_DEVICE_ATTRIBUTE_PCI_DOMAIN_ID), attribute(CU_DEVICE_ATTRIBUTE_PCI_BUS_ID),
           attribute(CU_DEVICE_ATTRIBUTE_PCI_DEVICE_ID));
  EXPECT_EQ(strcasecmp(text, expected), 0) << text << " against " << expected;
  CUdevice found = -1;
  OK(cuDeviceGetByPCIBusId(&found, text));
  EXPECT_EQ(found, dev_);
}

TEST_F(DeviceTest, PciBusIdErrors) {
  char text[64] = {};
  EXPECT_CU(cuDeviceGetPCIBusId(text, sizeof text, 9999), CUDA_ERROR_INVALID_DEVICE);
  CUdevice found = -1;
  EXPECT_CU(cuDeviceGetByPCIBusId(&found, "ffff:ff:1f.0"), CUDA_ERROR_INVALID_DEVICE,
            CUDA_ERROR_INVALID_VALUE);
}

TEST_F(DeviceTest, PeerWithItself) {
  int can = -1;
  // The documentation speaks of two devices only. For one, drivers say 0 or refuse.
  EXPECT_CU(cuDeviceCanAccessPeer(&can, dev_, dev_), CUDA_SUCCESS, CUDA_ERROR_INVALID_DEVICE);
  EXPECT_LE(can, 0);
  EXPECT_CU(cuDeviceCanAccessPeer(&can, dev_, 9999), CUDA_ERROR_INVALID_DEVICE);
}

TEST_F(DeviceTest, P2pAttributeNeedsTwoDevices) {
  int value = 0;
  EXPECT_CU(cuDeviceGetP2PAttribute(&value, CU_DEVICE_P2P_ATTRIBUTE_ACCESS_SUPPORTED, dev_, dev_),
            CUDA_ERROR_INVALID_DEVICE);
}

TEST_F(DeviceTest, ExecAffinity) {
  int supported = -1;
  OK(cuDeviceGetExecAffinitySupport(&supported, CU_EXEC_AFFINITY_TYPE_SM_COUNT, dev_));
  EXPECT_TRUE(supported == 0 || supported == 1);
}

TEST_F(DeviceTest, Texture1DLinearMaxWidth) {
  size_t width = 0;
  OK(cuDeviceGetTexture1DLinearMaxWidth(&width, CU_AD_FORMAT_UNSIGNED_INT8, 1, dev_));
  EXPECT_GT(width, 0u);
}

TEST_F(DeviceTest, ModuleLoadingMode) {
  CUmoduleLoadingMode mode = static_cast<CUmoduleLoadingMode>(0);
  OK(cuModuleGetLoadingMode(&mode));
  EXPECT_TRUE(mode == CU_MODULE_EAGER_LOADING || mode == CU_MODULE_LAZY_LOADING);
}

PROCESS_TEST(DeviceProcess, NothingWorksBeforeInit) {
  int value = 0;
  CUdevice dev = 0;
  CUcontext context = nullptr;
  CUdeviceptr pointer = 0;
  char name[64];
  EXPECT_CU(cuDeviceGetCount(&value), CUDA_ERROR_NOT_INITIALIZED);
  EXPECT_CU(cuDeviceGet(&dev, 0), CUDA_ERROR_NOT_INITIALIZED);
  EXPECT_CU(cuDeviceGetName(name, sizeof name, 0), CUDA_ERROR_NOT_INITIALIZED);
  EXPECT_CU(cuCtxGetCurrent(&context), CUDA_ERROR_NOT_INITIALIZED);
  EXPECT_CU(cuDevicePrimaryCtxRetain(&context, 0), CUDA_ERROR_NOT_INITIALIZED);
  EXPECT_CU(cuMemAlloc_v2(&pointer, 16), CUDA_ERROR_NOT_INITIALIZED);
  EXPECT_CU(cuCtxSynchronize(), CUDA_ERROR_NOT_INITIALIZED);
}

PROCESS_TEST(DeviceProcess, VersionAndErrorTextsNeedNoInit) {
  int version = 0;
  OK(cuDriverGetVersion(&version));
  EXPECT_GE(version, 12000);
  const char* text = nullptr;
  OK(cuGetErrorName(CUDA_ERROR_NOT_INITIALIZED, &text));
  EXPECT_STREQ(text, "CUDA_ERROR_NOT_INITIALIZED");
}

// Each call has a process of its own: a driver that follows one of these pointers must not hide
// what it does with the others.
NULL_TEST(DeviceProcess, VersionIntoNull) { INVALID(cuDriverGetVersion(nullptr)); }
NULL_TEST(DeviceProcess, LoadingModeIntoNull) {
  device();
  INVALID(cuModuleGetLoadingMode(nullptr));
}
NULL_TEST(DeviceProcess, EnumerationIntoNull) {
  device();
  INVALID(cuDeviceGetCount(nullptr));
  INVALID(cuDeviceGet(nullptr, 0));
}
NULL_TEST(DeviceProcess, NameIntoNull) { INVALID(cuDeviceGetName(nullptr, 10, device())); }
NULL_TEST(DeviceProcess, TotalMemoryIntoNull) { INVALID(cuDeviceTotalMem_v2(nullptr, device())); }
NULL_TEST(DeviceProcess, UuidIntoNull) { INVALID(cuDeviceGetUuid_v2(nullptr, device())); }
NULL_TEST(DeviceProcess, AttributeIntoNull) {
  INVALID(cuDeviceGetAttribute(nullptr, CU_DEVICE_ATTRIBUTE_WARP_SIZE, device()));
}
NULL_TEST(DeviceProcess, PciBusIdIntoNull) { INVALID(cuDeviceGetPCIBusId(nullptr, 64, device())); }
NULL_TEST(DeviceProcess, DeviceOfNullPciBusId) {
  CUdevice found = -1;
  device();
  INVALID(cuDeviceGetByPCIBusId(&found, nullptr));
}
NULL_TEST(DeviceProcess, DeviceOfPciBusIdIntoNull) {
  device();
  INVALID(cuDeviceGetByPCIBusId(nullptr, "0000:00:00.0"));
}
NULL_TEST(DeviceProcess, PeerAccessIntoNull) {
  INVALID(cuDeviceCanAccessPeer(nullptr, device(), device()));
}

}  // namespace
}  // namespace tendril::conformance
