// SPDX-License-Identifier: Apache-2.0
// Virtual memory management by the driver API: a reserved range that grows by mapping physical
// pieces into it, one piece seen at two addresses, access rights, remapping, refusals.
#include <cuda.h>
#include <cuda_runtime.h>

#include "check.h"

namespace {

bool good = true;
size_t piece;  // bytes, the granularity

__global__ void fill(uint32_t* data, uint32_t from, size_t words) {
  const size_t i = blockIdx.x * static_cast<size_t>(blockDim.x) + threadIdx.x;
  if (i < words) data[i] = from + static_cast<uint32_t>(i);
}

const char* name_of(CUresult result) {
  const char* name = "?";
  cuGetErrorName(result, &name);
  return name;
}

CUmemAllocationProp properties() {
  CUmemAllocationProp out = {};
  out.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  out.location = {CU_MEM_LOCATION_TYPE_DEVICE, 0};
  return out;
}

CUmemGenericAllocationHandle physical(size_t bytes) {
  const CUmemAllocationProp wanted = properties();
  CUmemGenericAllocationHandle out;
  CHECK(cuMemCreate(&out, bytes, &wanted, 0));
  return out;
}

void allow(CUdeviceptr at, size_t bytes) {
  CUmemAccessDesc access = {};
  access.location = {CU_MEM_LOCATION_TYPE_DEVICE, 0};
  access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
  CHECK(cuMemSetAccess(at, bytes, &access, 1));
}

uint64_t sum_of(CUdeviceptr at, size_t bytes) {
  std::vector<char> host(bytes);
  CHECK(cuMemcpyDtoH(host.data(), at, bytes));
  return checksum(host);
}

void say(const char* what, uint64_t sum) {
  std::printf("%s: %016llx\n", what, static_cast<unsigned long long>(sum));
}

void grow() {
  constexpr int kPieces = 6;
  CUdeviceptr base;
  CHECK(cuMemAddressReserve(&base, kPieces * piece, 0, 0, 0));
  CUmemGenericAllocationHandle handles[kPieces];
  for (int i = 0; i < kPieces; i++) {
    handles[i] = physical(piece);
    CHECK(cuMemMap(base + i * piece, piece, 0, handles[i], 0));
    allow(base + i * piece, piece);
    const size_t words = (i + 1) * piece / 4;
    fill<<<static_cast<unsigned>((words + 255) / 256), 256>>>(reinterpret_cast<uint32_t*>(base), i,
                                                              words);
    CHECK(cudaGetLastError());
    say("grown", sum_of(base, (i + 1) * piece));
  }
  unsigned long long flags = 0;
  const CUmemLocation here = {CU_MEM_LOCATION_TYPE_DEVICE, 0};
  CHECK(cuMemGetAccess(&flags, &here, base));
  std::printf("access %llu\n", flags);
  CUmemGenericAllocationHandle again;
  CHECK(cuMemRetainAllocationHandle(&again, reinterpret_cast<void*>(base + piece)));
  std::printf("the handle of the second piece: %s\n", again == handles[1] ? "the same" : "another");
  CHECK(cuMemRelease(again));
  CHECK(cuCtxSynchronize());
  CHECK(cuMemUnmap(base, kPieces * piece));
  for (auto handle : handles) CHECK(cuMemRelease(handle));
  CHECK(cuMemAddressFree(base, kPieces * piece));
}

// One piece at two addresses; after a remap the address shows the other piece, content kept.
void aliases() {
  CUdeviceptr one, two;
  CHECK(cuMemAddressReserve(&one, piece, 0, 0, 0));
  CHECK(cuMemAddressReserve(&two, 2 * piece, 0, 0, 0));
  const auto a = physical(piece), b = physical(piece);
  CHECK(cuMemMap(one, piece, 0, a, 0));
  CHECK(cuMemMap(two, piece, 0, a, 0));
  CHECK(cuMemMap(two + piece, piece, 0, b, 0));
  allow(one, piece);
  allow(two, 2 * piece);
  CHECK(cuMemsetD32(two, 0xabcd, 2 * piece / 4));
  CHECK(cuMemsetD32(one, 0x1234, piece / 8));
  CHECK(cuCtxSynchronize());
  const uint64_t through_one = sum_of(one, piece), through_two = sum_of(two, piece);
  say("alias", through_one);
  good = good && through_one == through_two;
  CHECK(cuMemUnmap(one, piece));
  CHECK(cuMemMap(one, piece, 0, b, 0));
  allow(one, piece);
  say("remapped", sum_of(one, piece));
  CHECK(cuMemcpyDtoD(one, two, piece));
  say("copied between", sum_of(two + piece, piece));
  CHECK(cuMemUnmap(one, piece));
  CHECK(cuMemUnmap(two, 2 * piece));
  CHECK(cuMemRelease(a));
  CHECK(cuMemRelease(b));
  CHECK(cuMemAddressFree(one, piece));
  CHECK(cuMemAddressFree(two, 2 * piece));
}

void refusals() {
  CUdeviceptr base;
  CUmemGenericAllocationHandle handle;
  CUmemAllocationProp wanted = properties();
  CHECK(cuMemAddressReserve(&base, piece, 0, 0, 0));
  std::printf("an odd size: %s\n", name_of(cuMemCreate(&handle, piece + 1, &wanted, 0)));
  std::printf("too much: %s\n", name_of(cuMemCreate(&handle, size_t{1} << 50, &wanted, 0)));
  wanted.location.id = 99;
  std::printf("no such device: %s\n", name_of(cuMemCreate(&handle, piece, &wanted, 0)));
  std::printf("unmapped: %s\n", name_of(cuMemUnmap(base, piece)));
  std::printf("a copy to it: %s\n", name_of(cuMemcpyHtoD(base, "text", 4)));
  handle = physical(piece);
  CHECK(cuMemMap(base, piece, 0, handle, 0));
  std::printf("mapped twice: %s\n", name_of(cuMemMap(base, piece, 0, handle, 0)));
  std::printf("freed while mapped: %s\n", name_of(cuMemAddressFree(base, piece)));
  std::printf("unmapped: %s\n", name_of(cuMemUnmap(base, piece)));
  std::printf("released: %s\n", name_of(cuMemRelease(handle)));
  std::printf("freed: %s\n", name_of(cuMemAddressFree(base, piece)));
}

}  // namespace

int main() {
  CHECK(cudaFree(nullptr));
  int supported = 0;
  CHECK(
      cuDeviceGetAttribute(&supported, CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED, 0));
  if (!supported) skip("no virtual memory management");
  const CUmemAllocationProp wanted = properties();
  CHECK(cuMemGetAllocationGranularity(&piece, &wanted, CU_MEM_ALLOC_GRANULARITY_MINIMUM));
  std::printf("granularity %zu\n", piece);
  grow();
  aliases();
  refusals();
  return finish(good);
}
