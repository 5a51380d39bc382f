// SPDX-License-Identifier: Apache-2.0
// Arrays and what reads them: one to three dimensions, layers, cube maps, mip-maps; textures with
// filtering and every address mode; textures over linear and pitched memory; surfaces.
#include <cuda_runtime.h>

#include "check.h"

namespace {

constexpr int kWidth = 64, kHeight = 32, kDepth = 8;
float* out;

__global__ void read_2d(cudaTextureObject_t texture, float* to, float scale) {
  const int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y;
  to[y * 128 + x] = tex2D<float>(texture, (x - 20.3f) * scale, (y - 5.2f) * scale);
}

__global__ void read_3d(cudaTextureObject_t texture, float* to) {
  const int x = threadIdx.x, y = blockIdx.x, z = blockIdx.y;
  to[(z * gridDim.x + y) * blockDim.x + x] = tex3D<float>(texture, x + 0.7f, y + 0.2f, z + 0.4f);
}

__global__ void read_layers(cudaTextureObject_t texture, float* to) {
  const int x = threadIdx.x, y = blockIdx.x, layer = blockIdx.y;
  to[(layer * gridDim.x + y) * blockDim.x + x] =
      tex2DLayered<float>(texture, x + 0.5f, y + 0.5f, layer);
}

__global__ void read_mips(cudaTextureObject_t texture, float* to) {
  const int x = threadIdx.x, y = blockIdx.x;
  to[y * blockDim.x + x] = tex2DLod<float>(texture, (x + 0.5f) / 64, (y + 0.5f) / 32, y * 0.125f);
}

__global__ void read_linear(cudaTextureObject_t texture, float* to) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  const uchar4 texel = tex1Dfetch<uchar4>(texture, i);
  to[i] = texel.x + 256.0f * texel.y + texel.z * 0.5f - texel.w;
}

__global__ void write_surface(cudaSurfaceObject_t surface) {
  const int x = threadIdx.x, y = blockIdx.x;
  float value = 0;
  surf2Dread(&value, surface, x * 4, y);
  surf2Dwrite(value * 2 + x, surface, x * 4, y);
}

std::vector<float> input(size_t count) { return Numbers(count).many<float>(count); }

void say(const char* what, size_t count) {
  std::vector<float> host(count);
  CHECK(cudaGetLastError());
  CHECK(cudaMemcpy(host.data(), out, count * 4, cudaMemcpyDeviceToHost));
  std::printf("%s: %016llx\n", what, static_cast<unsigned long long>(checksum(host)));
}

cudaArray_t array_of(cudaExtent extent, unsigned flags) {
  const cudaChannelFormatDesc format = cudaCreateChannelDesc<float>();
  cudaArray_t array;
  CHECK(cudaMalloc3DArray(&array, &format, extent, flags));
  const size_t height = extent.height ? extent.height : 1, depth = extent.depth ? extent.depth : 1;
  std::vector<float> host = input(extent.width * height * depth);
  cudaMemcpy3DParms copy = {};
  copy.srcPtr = make_cudaPitchedPtr(host.data(), extent.width * 4, extent.width, height);
  copy.dstArray = array;
  copy.extent = make_cudaExtent(extent.width, height, depth);
  copy.kind = cudaMemcpyHostToDevice;
  CHECK(cudaMemcpy3D(&copy));
  return array;
}

cudaTextureObject_t texture_of(cudaArray_t array, cudaTextureFilterMode filter,
                               cudaTextureAddressMode address, bool normalized) {
  cudaResourceDesc resource = {};
  resource.resType = cudaResourceTypeArray;
  resource.res.array.array = array;
  cudaTextureDesc reading = {};
  reading.filterMode = filter;
  for (auto& mode : reading.addressMode) mode = address;
  reading.normalizedCoords = normalized;
  reading.borderColor[0] = 0.25f;
  cudaTextureObject_t texture;
  CHECK(cudaCreateTextureObject(&texture, &resource, &reading, nullptr));
  return texture;
}

void two_dimensions() {
  cudaArray_t array = array_of(make_cudaExtent(kWidth, kHeight, 0), cudaArrayDefault);
  for (const auto filter : {cudaFilterModePoint, cudaFilterModeLinear}) {
    for (const auto address : {cudaAddressModeWrap, cudaAddressModeClamp, cudaAddressModeMirror,
                               cudaAddressModeBorder}) {
      const bool normalized = address == cudaAddressModeWrap || address == cudaAddressModeMirror;
      cudaTextureObject_t texture = texture_of(array, filter, address, normalized);
      read_2d<<<dim3(4, 48), 32>>>(texture, out, normalized ? 0.03f : 1.0f);
      std::printf("filter %d, address %d, ", filter, address);
      say("2D", 128 * 48);
      CHECK(cudaDestroyTextureObject(texture));
    }
  }
  cudaChannelFormatDesc format;
  cudaExtent extent;
  unsigned flags = 0;
  CHECK(cudaArrayGetInfo(&format, &extent, &flags, array));
  std::printf("array %d bits, %zu x %zu x %zu, flags %u\n", format.x, extent.width, extent.height,
              extent.depth, flags);
  CHECK(cudaFreeArray(array));
}

void three_dimensions() {
  cudaArray_t array = array_of(make_cudaExtent(kWidth, kHeight, kDepth), cudaArrayDefault);
  const auto texture = texture_of(array, cudaFilterModeLinear, cudaAddressModeClamp, false);
  read_3d<<<dim3(kHeight, kDepth), kWidth>>>(texture, out);
  say("3D", kWidth * kHeight * kDepth);
  CHECK(cudaDestroyTextureObject(texture));
  CHECK(cudaFreeArray(array));
  array = array_of(make_cudaExtent(kWidth, kHeight, kDepth), cudaArrayLayered);
  const auto layers = texture_of(array, cudaFilterModePoint, cudaAddressModeClamp, false);
  read_layers<<<dim3(kHeight, kDepth), kWidth>>>(layers, out);
  say("layers", kWidth * kHeight * kDepth);
  CHECK(cudaDestroyTextureObject(layers));
  CHECK(cudaFreeArray(array));
}

void mip_maps() {
  const cudaChannelFormatDesc format = cudaCreateChannelDesc<float>();
  cudaMipmappedArray_t mips;
  CHECK(cudaMallocMipmappedArray(&mips, &format, make_cudaExtent(kWidth, kHeight, 0), 5));
  for (unsigned level = 0; level < 5; level++) {
    cudaArray_t array;
    const size_t width = kWidth >> level, height = kHeight >> level;
    CHECK(cudaGetMipmappedArrayLevel(&array, mips, level));
    const std::vector<float> host = input(width * height);
    CHECK(cudaMemcpy2DToArray(array, 0, 0, host.data(), width * 4, width * 4, height,
                              cudaMemcpyHostToDevice));
  }
  cudaResourceDesc resource = {};
  resource.resType = cudaResourceTypeMipmappedArray;
  resource.res.mipmap.mipmap = mips;
  cudaTextureDesc reading = {};
  reading.filterMode = reading.mipmapFilterMode = cudaFilterModeLinear;
  reading.normalizedCoords = 1;
  reading.maxMipmapLevelClamp = 4;
  cudaTextureObject_t texture;
  CHECK(cudaCreateTextureObject(&texture, &resource, &reading, nullptr));
  read_mips<<<kHeight, kWidth>>>(texture, out);
  say("mip-maps", kWidth * kHeight);
  CHECK(cudaDestroyTextureObject(texture));
  CHECK(cudaFreeMipmappedArray(mips));
}

void without_arrays() {
  const int count = 4096;
  std::vector<uint32_t> host(count);
  for (int i = 0; i < count; i++) host[i] = i * 2654435761u;
  uint32_t* linear;
  CHECK(cudaMalloc(&linear, count * 4));
  CHECK(cudaMemcpy(linear, host.data(), count * 4, cudaMemcpyHostToDevice));
  cudaResourceDesc resource = {};
  resource.resType = cudaResourceTypeLinear;
  resource.res.linear = {linear, cudaCreateChannelDesc<uchar4>(), count * 4};
  cudaTextureDesc reading = {};
  cudaTextureObject_t texture;
  CHECK(cudaCreateTextureObject(&texture, &resource, &reading, nullptr));
  read_linear<<<count / 256, 256>>>(texture, out);
  say("linear memory", count);
  CHECK(cudaDestroyTextureObject(texture));
  CHECK(cudaFree(linear));
  float* pitched;
  size_t pitch = 0;
  const std::vector<float> values = input(kWidth * kHeight);
  CHECK(cudaMallocPitch(&pitched, &pitch, kWidth * 4, kHeight));
  CHECK(cudaMemcpy2D(pitched, pitch, values.data(), kWidth * 4, kWidth * 4, kHeight,
                     cudaMemcpyHostToDevice));
  resource = {};
  resource.resType = cudaResourceTypePitch2D;
  resource.res.pitch2D = {pitched, cudaCreateChannelDesc<float>(), kWidth, kHeight, pitch};
  reading.filterMode = cudaFilterModeLinear;
  CHECK(cudaCreateTextureObject(&texture, &resource, &reading, nullptr));
  read_2d<<<dim3(4, 48), 32>>>(texture, out, 1.0f);
  std::printf("pitch %zu, ", pitch);
  say("pitched memory", 128 * 48);
  CHECK(cudaDestroyTextureObject(texture));
  CHECK(cudaFree(pitched));
}

void surfaces() {
  cudaArray_t array = array_of(make_cudaExtent(kWidth, kHeight, 0), cudaArraySurfaceLoadStore);
  cudaResourceDesc resource = {};
  resource.resType = cudaResourceTypeArray;
  resource.res.array.array = array;
  cudaSurfaceObject_t surface;
  CHECK(cudaCreateSurfaceObject(&surface, &resource));
  for (int round = 0; round < 3; round++) write_surface<<<kHeight, kWidth>>>(surface);
  CHECK(cudaMemcpy2DFromArray(out, kWidth * 4, array, 0, 0, kWidth * 4, kHeight,
                              cudaMemcpyDeviceToDevice));
  say("surface", kWidth * kHeight);
  CHECK(cudaDestroySurfaceObject(surface));
  CHECK(cudaFreeArray(array));
}

}  // namespace

int main() {
  CHECK(cudaMalloc(&out, 1 << 20));
  two_dimensions();
  three_dimensions();
  mip_maps();
  without_arrays();
  surfaces();
  return finish(true);
}
