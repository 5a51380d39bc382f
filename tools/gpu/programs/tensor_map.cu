// SPDX-License-Identifier: Apache-2.0
// Tensor maps: the driver encodes descriptors, and a kernel gets them as a parameter. By them the
// tensor memory accelerator copies boxes into shared memory and back. Also encodings that are
// refused.
#include <cuda.h>
#include <cuda_runtime.h>

#include <cuda/barrier>

#include "check.h"

namespace {

namespace bulk = cuda::device::experimental;
using Barrier = cuda::barrier<cuda::thread_scope_block>;
constexpr int kWidth = 512, kHeight = 256, kBoxWidth = 64, kBoxHeight = 32;

// Each block takes one box, changes it, and stores it where `to` says.
__global__ void move_boxes(const __grid_constant__ CUtensorMap from,
                           const __grid_constant__ CUtensorMap to, int shift) {
  __shared__ alignas(128) int box[kBoxHeight][kBoxWidth];
#pragma nv_diag_suppress static_var_with_dynamic_init
  __shared__ Barrier barrier;
  const int x = blockIdx.x * kBoxWidth, y = blockIdx.y * kBoxHeight;
  if (threadIdx.x == 0) {
    init(&barrier, blockDim.x);
    bulk::fence_proxy_async_shared_cta();
  }
  __syncthreads();
  Barrier::arrival_token token;
  if (threadIdx.x == 0) {
    bulk::cp_async_bulk_tensor_2d_global_to_shared(&box, &from, x + shift, y, barrier);
    token = cuda::device::barrier_arrive_tx(barrier, 1, sizeof box);
  } else {
    token = barrier.arrive();
  }
  barrier.wait(std::move(token));
  for (int i = threadIdx.x; i < kBoxWidth * kBoxHeight; i += blockDim.x)
    box[i / kBoxWidth][i % kBoxWidth] = box[i / kBoxWidth][i % kBoxWidth] * 2 + i;
  bulk::fence_proxy_async_shared_cta();
  __syncthreads();
  if (threadIdx.x == 0) {
    bulk::cp_async_bulk_tensor_2d_shared_to_global(&to, x, y, &box);
    bulk::cp_async_bulk_commit_group();
    bulk::cp_async_bulk_wait_group_read<0>();
  }
}

const char* name_of(CUresult result) {
  const char* name = "?";
  cuGetErrorName(result, &name);
  return name;
}

CUresult encode(CUtensorMap* map, void* address, CUtensorMapSwizzle swizzle, cuuint32_t box_width) {
  const cuuint64_t sizes[] = {kWidth, kHeight}, strides[] = {kWidth * sizeof(int)};
  const cuuint32_t box[] = {box_width, kBoxHeight}, steps[] = {1, 1};
  return cuTensorMapEncodeTiled(map, CU_TENSOR_MAP_DATA_TYPE_INT32, 2, address, sizes, strides, box,
                                steps, CU_TENSOR_MAP_INTERLEAVE_NONE, swizzle,
                                CU_TENSOR_MAP_L2_PROMOTION_L2_128B,
                                CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
}

void refusals(void* address) {
  CUtensorMap map;
  const auto none = CU_TENSOR_MAP_SWIZZLE_NONE;
  std::printf("an odd address: %s\n",
              name_of(encode(&map, static_cast<char*>(address) + 4, none, kBoxWidth)));
  std::printf("a box too wide: %s\n", name_of(encode(&map, address, none, 512)));
  std::printf("too wide to swizzle: %s\n",
              name_of(encode(&map, address, CU_TENSOR_MAP_SWIZZLE_32B, kBoxWidth)));
  std::printf("no address: %s\n", name_of(encode(&map, nullptr, none, kBoxWidth)));
}

}  // namespace

int main() {
  cudaDeviceProp properties;
  CHECK(cudaGetDeviceProperties(&properties, 0));
  if (properties.major < 9) skip("tensor maps need compute capability 9.0");
  int *from, *to;
  std::vector<int> host(kWidth * kHeight), out(kWidth * kHeight);
  for (size_t i = 0; i < host.size(); i++) host[i] = static_cast<int>(i * 7);
  CHECK(cudaMalloc(&from, host.size() * 4));
  CHECK(cudaMalloc(&to, host.size() * 4));
  CHECK(cudaMemcpy(from, host.data(), host.size() * 4, cudaMemcpyHostToDevice));
  CUtensorMap read, write;
  CHECK(encode(&read, from, CU_TENSOR_MAP_SWIZZLE_NONE, kBoxWidth));
  CHECK(encode(&write, to, CU_TENSOR_MAP_SWIZZLE_NONE, kBoxWidth));
  bool good = true;
  for (const int shift : {0, 16, -32, 480}) {  // beyond the edges zeros come in
    const dim3 blocks(kWidth / kBoxWidth, kHeight / kBoxHeight);
    move_boxes<<<blocks, 128>>>(read, write, shift);
    CHECK(cudaGetLastError());
    CHECK(cudaMemcpy(out.data(), to, out.size() * 4, cudaMemcpyDeviceToHost));
    for (int y = 0; y < kHeight; y++) {
      for (int x = 0; x < kWidth; x++) {
        const int at = x + shift, in_box = y % kBoxHeight * kBoxWidth + x % kBoxWidth;
        const int was = at >= 0 && at < kWidth ? host[y * kWidth + at] : 0;
        good = good && out[y * kWidth + x] == was * 2 + in_box;
      }
    }
    std::printf("shifted by %d: %016llx %s\n", shift,
                static_cast<unsigned long long>(checksum(out)), good ? "right" : "WRONG");
  }
  refusals(from);
  return finish(good);
}
