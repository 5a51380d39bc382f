// SPDX-License-Identifier: Apache-2.0
// Texture and surface objects: what kernels see through them, what the driver remembers of them,
// and what it refuses. All texels and weights are exact in binary, so every device must give the
// same bits.
#include <cstring>

#include "images.ptx.gen.h"
#include "tests/conformance/harness.h"

namespace tendril::conformance {
namespace {

class TextureTest : public CudaTest {
 protected:
  // An array of floats, row by row, slice by slice.
  CUarray array_of(const CUDA_ARRAY3D_DESCRIPTOR& shape, const std::vector<float>& texels) {
    CUarray array = nullptr;
    if (cuArray3DCreate_v2(&array, &shape) != CUDA_SUCCESS) return nullptr;
    fill(array, shape.Width, texels);
    return array;
  }
  void fill(CUarray array, size_t width, const std::vector<float>& texels, size_t height = 0) {
    CUDA_ARRAY3D_DESCRIPTOR shape = {};
    OK(cuArray3DGetDescriptor_v2(&shape, array));
    CUDA_MEMCPY3D copy = {};
    copy.srcMemoryType = CU_MEMORYTYPE_HOST;
    copy.srcHost = texels.data();
    copy.srcPitch = width * sizeof(float);
    copy.srcHeight = height ? height : shape.Height ? shape.Height : 1;
    copy.dstMemoryType = CU_MEMORYTYPE_ARRAY;
    copy.dstArray = array;
    copy.WidthInBytes = width * sizeof(float);
    copy.Height = shape.Height ? shape.Height : 1;
    copy.Depth = shape.Depth ? shape.Depth : 1;
    OK(cuMemcpy3D_v2(&copy));
  }
  CUtexObject texture(const CUDA_RESOURCE_DESC& resource, const CUDA_TEXTURE_DESC& sampling) {
    CUtexObject object = 0;
    OK(cuTexObjectCreate(&object, &resource, &sampling, nullptr));
    return object;
  }
  static CUDA_RESOURCE_DESC of_array(CUarray array) {
    CUDA_RESOURCE_DESC resource = {};
    resource.resType = CU_RESOURCE_TYPE_ARRAY;
    resource.res.array.hArray = array;
    return resource;
  }
  static CUDA_TEXTURE_DESC clamped(CUfilter_mode filter = CU_TR_FILTER_MODE_POINT) {
    CUDA_TEXTURE_DESC sampling = {};
    for (CUaddress_mode& mode : sampling.addressMode) mode = CU_TR_ADDRESS_MODE_CLAMP;
    sampling.filterMode = filter;
    return sampling;
  }
  template <typename T>
  static std::vector<T> read(CUdeviceptr from, size_t count) {
    std::vector<T> out(count);
    OK(cuMemcpyDtoH_v2(out.data(), from, count * sizeof(T)));
    return out;
  }
  // Runs a kernel that takes the object and `out`.
  template <typename T>
  std::vector<T> run(const char* kernel, unsigned threads, CUtexObject object) {
    Module module(kImagesPtx);
    Buffer out(threads * sizeof(T));
    OK(launch(module.function(kernel), {1}, {threads}, 0, nullptr, object,
              static_cast<CUdeviceptr>(out)));
    return read<T>(out, threads);
  }
};

const std::vector<float> kSquare = {0, 1, 2, 3, 10, 11, 12, 13, 20, 21, 22, 23, 30, 31, 32, 33};

TEST_F(TextureTest, LinearFilterOfAnArray) {
  CUarray array = array_of({4, 4, 0, CU_AD_FORMAT_FLOAT, 1, 0}, kSquare);
  ASSERT_NE(array, nullptr);
  CUtexObject object = texture(of_array(array), clamped(CU_TR_FILTER_MODE_LINEAR));
  Module module(kImagesPtx);
  Buffer out(8 * sizeof(float));
  OK(launch(module.function("sample_2d"), {1}, {8}, 0, nullptr, object, 0.0f, 1.0f, 0.5f,
            static_cast<CUdeviceptr>(out)));
  // Between the first two rows; half a texel left of the first middle, then every half texel.
  EXPECT_EQ(read<float>(out, 8), (std::vector<float>{5, 5, 5.5f, 6, 6.5f, 7, 7.5f, 8}));
  OK(cuTexObjectDestroy(object));
  OK(cuArrayDestroy(array));
}

TEST_F(TextureTest, ObjectsSeeLaterCopies) {
  CUarray array = array_of({4, 4, 0, CU_AD_FORMAT_FLOAT, 1, 0}, kSquare);
  ASSERT_NE(array, nullptr);
  CUtexObject object = texture(of_array(array), clamped());
  fill(array, 4, std::vector<float>(16, 7.0f));
  Module module(kImagesPtx);
  Buffer out(4 * sizeof(float));
  OK(launch(module.function("sample_2d"), {1}, {4}, 0, nullptr, object, 0.5f, 0.5f, 1.0f,
            static_cast<CUdeviceptr>(out)));
  EXPECT_EQ(read<float>(out, 4), std::vector<float>(4, 7.0f));
  OK(cuTexObjectDestroy(object));
  OK(cuArrayDestroy(array));
}

TEST_F(TextureTest, LinearMemory) {
  std::vector<uint32_t> words(64);
  for (size_t i = 0; i < words.size(); ++i) words[i] = static_cast<uint32_t>(i * i + 1);
  Buffer memory(words.size() * sizeof(uint32_t));
  OK(cuMemcpyHtoD_v2(memory, words.data(), memory.bytes()));
  CUDA_RESOURCE_DESC resource = {};
  resource.resType = CU_RESOURCE_TYPE_LINEAR;
  resource.res.linear = {memory, CU_AD_FORMAT_UNSIGNED_INT32, 1, words.size() * sizeof(uint32_t)};
  CUDA_TEXTURE_DESC sampling = clamped();
  sampling.flags = CU_TRSF_READ_AS_INTEGER;
  CUtexObject object = texture(resource, sampling);
  EXPECT_EQ(run<uint32_t>("fetch_1d", 64, object), words);
  OK(cuTexObjectDestroy(object));
}

TEST_F(TextureTest, Layers) {
  CUarray array = array_of({2, 2, 3, CU_AD_FORMAT_FLOAT, 1, CUDA_ARRAY3D_LAYERED},
                           {1, 1, 1, 1, 2, 2, 2, 2, 3, 3, 3, 3});
  ASSERT_NE(array, nullptr);
  CUtexObject object = texture(of_array(array), clamped());
  EXPECT_EQ(run<float>("sample_layer", 5, object), (std::vector<float>{1, 2, 3, 3, 3}));
  OK(cuTexObjectDestroy(object));
  OK(cuArrayDestroy(array));
}

TEST_F(TextureTest, Mipmaps) {
  CUDA_ARRAY3D_DESCRIPTOR shape = {4, 4, 0, CU_AD_FORMAT_FLOAT, 1, 0};
  CUmipmappedArray mipmap = nullptr;
  MUST(cuMipmappedArrayCreate(&mipmap, &shape, 3));
  for (unsigned level = 0; level < 3; ++level) {
    CUarray array = nullptr;
    OK(cuMipmappedArrayGetLevel(&array, mipmap, level));
    const size_t side = 4u >> level;
    fill(array, side, std::vector<float>(side * side, static_cast<float>(level + 1)));
  }
  CUDA_RESOURCE_DESC resource = {};
  resource.resType = CU_RESOURCE_TYPE_MIPMAPPED_ARRAY;
  resource.res.mipmap.hMipmappedArray = mipmap;
  CUDA_TEXTURE_DESC sampling = clamped();
  sampling.flags = CU_TRSF_NORMALIZED_COORDINATES;
  sampling.maxMipmapLevelClamp = 2;
  CUtexObject object = texture(resource, sampling);
  EXPECT_EQ(run<float>("sample_level", 4, object), (std::vector<float>{1, 2, 3, 3}));
  OK(cuTexObjectDestroy(object));
  OK(cuMipmappedArrayDestroy(mipmap));
}

TEST_F(TextureTest, SurfacesAreWrittenAndRead) {
  CUDA_ARRAY3D_DESCRIPTOR shape = {
      8, 8, 0, CU_AD_FORMAT_UNSIGNED_INT32, 1, CUDA_ARRAY3D_SURFACE_LDST};
  CUarray array = nullptr;
  MUST(cuArray3DCreate_v2(&array, &shape));
  CUDA_RESOURCE_DESC resource = of_array(array), kept = {};
  CUsurfObject surface = 0;
  OK(cuSurfObjectCreate(&surface, &resource));
  OK(cuSurfObjectGetResourceDesc(&kept, surface));
  EXPECT_EQ(kept.res.array.hArray, array);
  Module module(kImagesPtx);
  Buffer out(64 * sizeof(uint32_t));
  OK(launch(module.function("surface_write"), {1}, {8, 8}, 0, nullptr, surface));
  OK(launch(module.function("surface_read"), {1}, {8, 8}, 0, nullptr, surface,
            static_cast<CUdeviceptr>(out)));
  const std::vector<uint32_t> got = read<uint32_t>(out, 64);
  for (uint32_t y = 0; y < 8; ++y)
    for (uint32_t x = 0; x < 8; ++x) EXPECT_EQ(got[y * 8 + x], y + 100 * x);
  OK(cuSurfObjectDestroy(surface));
  OK(cuArrayDestroy(array));
}

TEST_F(TextureTest, WhatAnObjectWasMadeOf) {
  CUarray array = array_of({4, 4, 0, CU_AD_FORMAT_FLOAT, 1, 0}, kSquare);
  ASSERT_NE(array, nullptr);
  CUDA_TEXTURE_DESC sampling = clamped(CU_TR_FILTER_MODE_LINEAR), kept = {};
  sampling.addressMode[1] = CU_TR_ADDRESS_MODE_BORDER;
  CUtexObject object = texture(of_array(array), sampling);
  CUDA_RESOURCE_DESC resource = {};
  OK(cuTexObjectGetResourceDesc(&resource, object));
  EXPECT_EQ(resource.resType, CU_RESOURCE_TYPE_ARRAY);
  EXPECT_EQ(resource.res.array.hArray, array);
  OK(cuTexObjectGetTextureDesc(&kept, object));
  EXPECT_EQ(kept.filterMode, CU_TR_FILTER_MODE_LINEAR);
  EXPECT_EQ(kept.addressMode[1], CU_TR_ADDRESS_MODE_BORDER);
  OK(cuTexObjectDestroy(object));
  OK(cuArrayDestroy(array));
}

// The documentation requires CUDA_ARRAY3D_SURFACE_LDST for an array with surfaces. The driver does
// not.
TEST_F(TextureTest, SurfaceOfAPlainArray) {
  CUarray plain = array_of({4, 4, 0, CU_AD_FORMAT_FLOAT, 1, 0}, kSquare);
  ASSERT_NE(plain, nullptr);
  const CUDA_RESOURCE_DESC resource = of_array(plain);
  CUsurfObject surface = 0;
  OK(cuSurfObjectCreate(&surface, &resource));
  OK(cuSurfObjectDestroy(surface));
  OK(cuArrayDestroy(plain));
}

TEST_F(TextureTest, WhatIsRefused) {
  CUDA_TEXTURE_DESC sampling = clamped();
  CUDA_RESOURCE_DESC nothing = {};
  nothing.resType = static_cast<CUresourcetype>(77);
  CUtexObject object = 0;
  INVALID(cuTexObjectCreate(&object, &nothing, &sampling, nullptr));
}

}  // namespace
}  // namespace tendril::conformance
