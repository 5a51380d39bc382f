// SPDX-License-Identifier: Apache-2.0
// Virtual memory management: reserve, create, map, access, aliases, export.
#include <unistd.h>

#include "tests/conformance/harness.h"

namespace tendril::conformance {
namespace {

class VmmTest : public CudaTest {
 protected:
  void SetUp() override {
    CudaTest::SetUp();
    REQUIRE_ATTRIBUTE(CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED);
    ASSERT_EQ(
        cuMemGetAllocationGranularity(&granularity_, &prop_, CU_MEM_ALLOC_GRANULARITY_MINIMUM),
        CUDA_SUCCESS);
  }
  CUmemGenericAllocationHandle create(size_t bytes) {
    CUmemGenericAllocationHandle handle = 0;
    EXPECT_EQ(cuMemCreate(&handle, bytes, &prop_, 0), CUDA_SUCCESS);
    return handle;
  }
  CUdeviceptr reserve(size_t bytes) {
    CUdeviceptr address = 0;
    EXPECT_EQ(cuMemAddressReserve(&address, bytes, 0, 0, 0), CUDA_SUCCESS);
    return address;
  }
  static CUmemAccessDesc read_write() {
    return {{CU_MEM_LOCATION_TYPE_DEVICE, device()}, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
  }
  static CUmemAllocationProp pinned_on_device() {
    CUmemAllocationProp prop = {};
    prop.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    prop.location = {CU_MEM_LOCATION_TYPE_DEVICE, device()};
    return prop;
  }
  CUmemAllocationProp prop_ = pinned_on_device();
  size_t granularity_ = 0;
};

TEST_F(VmmTest, Granularity) {
  EXPECT_GT(granularity_, 0u);
  EXPECT_EQ(granularity_ & (granularity_ - 1), 0u);
  size_t recommended = 0;
  OK(cuMemGetAllocationGranularity(&recommended, &prop_, CU_MEM_ALLOC_GRANULARITY_RECOMMENDED));
  EXPECT_GE(recommended, granularity_);
  INVALID(cuMemGetAllocationGranularity(nullptr, &prop_, CU_MEM_ALLOC_GRANULARITY_MINIMUM));
}

TEST_F(VmmTest, MapUseUnmap) {
  CUdeviceptr address = reserve(2 * granularity_);
  CUmemGenericAllocationHandle handle = create(2 * granularity_);
  const CUmemAccessDesc access = read_write();
  OK(cuMemMap(address, 2 * granularity_, 0, handle, 0));
  OK(cuMemSetAccess(address, 2 * granularity_, &access, 1));
  const uint32_t words = static_cast<uint32_t>(granularity_ / 2);
  OK(cuMemsetD32_v2(address, 3, words));
  OK(launch(basic("affine"), {words / 256}, {256}, 0, nullptr, address, 2u, 1u, words));
  EXPECT_EQ(read_words(address + 2 * granularity_ - 4, 1)[0], 7u);
  OK(cuMemUnmap(address, 2 * granularity_));
  OK(cuMemRelease(handle));
  OK(cuMemAddressFree(address, 2 * granularity_));
}

TEST_F(VmmTest, TwoHandlesInOneRange) {
  CUdeviceptr address = reserve(2 * granularity_);
  CUmemGenericAllocationHandle first = create(granularity_), second = create(granularity_);
  const CUmemAccessDesc access = read_write();
  OK(cuMemMap(address, granularity_, 0, first, 0));
  OK(cuMemMap(address + granularity_, granularity_, 0, second, 0));
  OK(cuMemSetAccess(address, 2 * granularity_, &access, 1));
  OK(cuMemsetD32_v2(address + granularity_ - 16, 0x99, 8));  // across the seam
  EXPECT_EQ(read_words(address + granularity_ - 16, 8), std::vector<uint32_t>(8, 0x99));
  OK(cuMemUnmap(address, 2 * granularity_));
  OK(cuMemRelease(first));
  OK(cuMemRelease(second));
  OK(cuMemAddressFree(address, 2 * granularity_));
}

TEST_F(VmmTest, AliasesShareTheMemory) {
  CUdeviceptr a = reserve(granularity_), b = reserve(granularity_);
  CUmemGenericAllocationHandle handle = create(granularity_);
  const CUmemAccessDesc access = read_write();
  OK(cuMemMap(a, granularity_, 0, handle, 0));
  OK(cuMemMap(b, granularity_, 0, handle, 0));
  OK(cuMemSetAccess(a, granularity_, &access, 1));
  OK(cuMemSetAccess(b, granularity_, &access, 1));
  OK(cuMemsetD32_v2(a, 0xabcd, 256));
  OK(cuCtxSynchronize());
  EXPECT_EQ(read_words(b, 256), std::vector<uint32_t>(256, 0xabcd));
  OK(cuMemUnmap(a, granularity_));
  OK(cuMemUnmap(b, granularity_));
  OK(cuMemRelease(handle));
  OK(cuMemAddressFree(a, granularity_));
  OK(cuMemAddressFree(b, granularity_));
}

TEST_F(VmmTest, ReleasedHandleLivesWhileMapped) {
  CUdeviceptr address = reserve(granularity_);
  CUmemGenericAllocationHandle handle = create(granularity_);
  const CUmemAccessDesc access = read_write();
  OK(cuMemMap(address, granularity_, 0, handle, 0));
  OK(cuMemRelease(handle));
  OK(cuMemSetAccess(address, granularity_, &access, 1));
  OK(cuMemsetD32_v2(address, 17, 256));
  EXPECT_EQ(read_words(address, 1)[0], 17u);
  OK(cuMemUnmap(address, granularity_));
  OK(cuMemAddressFree(address, granularity_));
}

TEST_F(VmmTest, ContentsMoveWithTheHandle) {
  CUdeviceptr a = reserve(granularity_), b = reserve(granularity_);
  CUmemGenericAllocationHandle handle = create(granularity_);
  const CUmemAccessDesc access = read_write();
  OK(cuMemMap(a, granularity_, 0, handle, 0));
  OK(cuMemSetAccess(a, granularity_, &access, 1));
  OK(cuMemsetD32_v2(a, 4711, 256));
  OK(cuCtxSynchronize());
  OK(cuMemUnmap(a, granularity_));
  OK(cuMemMap(b, granularity_, 0, handle, 0));
  OK(cuMemSetAccess(b, granularity_, &access, 1));
  EXPECT_EQ(read_words(b, 256), std::vector<uint32_t>(256, 4711));
  OK(cuMemUnmap(b, granularity_));
  OK(cuMemRelease(handle));
  OK(cuMemAddressFree(a, granularity_));
  OK(cuMemAddressFree(b, granularity_));
}

TEST_F(VmmTest, ReserveAtAWishedAddress) {
  CUdeviceptr probe = reserve(granularity_);
  OK(cuMemAddressFree(probe, granularity_));
  CUdeviceptr address = 0;
  OK(cuMemAddressReserve(&address, granularity_, 0, probe, 0));
  EXPECT_EQ(address, probe);
  OK(cuMemAddressFree(address, granularity_));
}

TEST_F(VmmTest, ReservationsDoNotOverlapAllocations) {
  CUdeviceptr address = reserve(64 * granularity_);
  for (int i = 0; i < 8; i++) {
    CUdeviceptr pointer = 0;
    OK(cuMemAlloc_v2(&pointer, granularity_));
    EXPECT_TRUE(pointer + granularity_ <= address || pointer >= address + 64 * granularity_);
    OK(cuMemFree_v2(pointer));
  }
  OK(cuMemAddressFree(address, 64 * granularity_));
}

TEST_F(VmmTest, ReserveErrors) {
  CUdeviceptr address = 0;
  INVALID(cuMemAddressReserve(nullptr, granularity_, 0, 0, 0));
  INVALID(cuMemAddressReserve(&address, 0, 0, 0, 0));
  INVALID(cuMemAddressReserve(&address, granularity_ + 1, 0, 0, 0));
  INVALID(cuMemAddressReserve(&address, granularity_, 0, 0, 1));
}

TEST_F(VmmTest, CreateErrors) {
  CUmemGenericAllocationHandle handle = 0;
  INVALID(cuMemCreate(nullptr, granularity_, &prop_, 0));
  INVALID(cuMemCreate(&handle, granularity_ + 1, &prop_, 0));
  INVALID(cuMemCreate(&handle, granularity_, nullptr, 0));
  EXPECT_CU(cuMemCreate(&handle, size_t{1} << 50, &prop_, 0), CUDA_ERROR_OUT_OF_MEMORY);
}

// Codes as measured on an H200: there is nothing to unmap, and nothing to copy to.
TEST_F(VmmTest, ReservedOnly) {
  CUdeviceptr address = reserve(2 * granularity_);
  Stream stream;
  Buffer buffer(64);
  Pinned host(64);
  OK(cuMemUnmap(address, granularity_));
  OK(cuMemUnmap(address, 2 * granularity_));
  INVALID(cuMemcpyHtoD_v2(address, "text", 4));
  INVALID(cuMemcpyHtoDAsync_v2(address, host.data(), 4, stream));
  INVALID(cuMemcpyDtoH_v2(host.data(), address, 4));
  INVALID(cuMemcpyDtoD_v2(buffer, address, 4));
  INVALID(cuMemcpyDtoD_v2(address, buffer, 4));
  CUmemGenericAllocationHandle handle = create(granularity_);
  OK(cuMemMap(address, granularity_, 0, handle, 0));
  INVALID(cuMemAddressFree(address, 2 * granularity_));
  OK(cuMemUnmap(address, granularity_));
  OK(cuMemRelease(handle));
  OK(cuMemAddressFree(address, 2 * granularity_));
  OK(cuCtxSynchronize());
}

TEST_F(VmmTest, MapErrors) {
  CUdeviceptr address = reserve(2 * granularity_);
  CUmemGenericAllocationHandle handle = create(granularity_);
  INVALID(cuMemMap(address + 4096, granularity_, 0, handle, 0));
  // More than the handle has.
  EXPECT_CU(cuMemMap(address, 2 * granularity_, 0, handle, 0), CUDA_ERROR_NOT_SUPPORTED);
  OK(cuMemMap(address, granularity_, 0, handle, 0));
  EXPECT_CU(cuMemMap(address, granularity_, 0, handle, 0), CUDA_ERROR_INVALID_VALUE,
            CUDA_ERROR_ALREADY_MAPPED);
  OK(cuMemUnmap(address, granularity_));
  OK(cuMemRelease(handle));
  OK(cuMemAddressFree(address, 2 * granularity_));
}

TEST_F(VmmTest, SetAccessNeedsAMapping) {
  CUdeviceptr address = reserve(granularity_);
  const CUmemAccessDesc access = read_write();
  INVALID(cuMemSetAccess(address, granularity_, &access, 1));
  OK(cuMemAddressFree(address, granularity_));
}

TEST_F(VmmTest, GetAccess) {
  CUdeviceptr address = reserve(granularity_);
  CUmemGenericAllocationHandle handle = create(granularity_);
  OK(cuMemMap(address, granularity_, 0, handle, 0));
  CUmemLocation location = {CU_MEM_LOCATION_TYPE_DEVICE, device()};
  unsigned long long flags = 99;
  OK(cuMemGetAccess(&flags, &location, address));
  EXPECT_EQ(flags, 0u);
  const CUmemAccessDesc access = read_write();
  OK(cuMemSetAccess(address, granularity_, &access, 1));
  OK(cuMemGetAccess(&flags, &location, address));
  EXPECT_EQ(flags, 3u);
  OK(cuMemUnmap(address, granularity_));
  OK(cuMemRelease(handle));
  OK(cuMemAddressFree(address, granularity_));
}

TEST_F(VmmTest, HandleProperties) {
  CUmemGenericAllocationHandle handle = create(granularity_);
  CUmemAllocationProp prop = {};
  OK(cuMemGetAllocationPropertiesFromHandle(&prop, handle));
  EXPECT_EQ(prop.type, CU_MEM_ALLOCATION_TYPE_PINNED);
  EXPECT_EQ(prop.location.type, CU_MEM_LOCATION_TYPE_DEVICE);
  EXPECT_EQ(prop.location.id, device());
  OK(cuMemRelease(handle));
}

TEST_F(VmmTest, RetainFromAddress) {
  CUdeviceptr address = reserve(granularity_);
  CUmemGenericAllocationHandle handle = create(granularity_), again = 0;
  OK(cuMemMap(address, granularity_, 0, handle, 0));
  OK(cuMemRetainAllocationHandle(&again, reinterpret_cast<void*>(address)));
  EXPECT_EQ(again, handle);
  OK(cuMemRelease(again));
  OK(cuMemUnmap(address, granularity_));
  OK(cuMemRelease(handle));
  OK(cuMemAddressFree(address, granularity_));
}

TEST_F(VmmTest, ExportAndImportInOneProcess) {
  REQUIRE_ATTRIBUTE(CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED);
  prop_.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
  CUmemGenericAllocationHandle handle = create(granularity_), imported = 0;
  int fd = -1;
  MUST(cuMemExportToShareableHandle(&fd, handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
  EXPECT_GE(fd, 0);
  MUST(cuMemImportFromShareableHandle(&imported, reinterpret_cast<void*>(static_cast<intptr_t>(fd)),
                                      CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR));
  close(fd);
  CUdeviceptr a = reserve(granularity_), b = reserve(granularity_);
  const CUmemAccessDesc access = read_write();
  OK(cuMemMap(a, granularity_, 0, handle, 0));
  OK(cuMemMap(b, granularity_, 0, imported, 0));
  OK(cuMemSetAccess(a, granularity_, &access, 1));
  OK(cuMemSetAccess(b, granularity_, &access, 1));
  OK(cuMemsetD32_v2(a, 0x1357, 64));
  OK(cuCtxSynchronize());
  EXPECT_EQ(read_words(b, 64), std::vector<uint32_t>(64, 0x1357));
  OK(cuMemUnmap(a, granularity_));
  OK(cuMemUnmap(b, granularity_));
  OK(cuMemRelease(handle));
  OK(cuMemRelease(imported));
  OK(cuMemAddressFree(a, granularity_));
  OK(cuMemAddressFree(b, granularity_));
}

}  // namespace
}  // namespace tendril::conformance
