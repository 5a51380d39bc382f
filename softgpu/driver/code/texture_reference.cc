// SPDX-License-Identifier: Apache-2.0
// Texture references as state: programs can set and query them. Kernels cannot sample them; they
// use texture objects (texture.h).

#include <cstring>

#include "softgpu/driver/code/texture.h"
#include "softgpu/driver/device/context.h"
#include "softgpu/driver/entry.h"
#include "softgpu/driver/memory/memory_map.h"

namespace tendril::softgpu {
namespace {

struct Reference {
  CUdeviceptr address = 0;
  CUarray array = nullptr;
  CUarray_format format = CU_AD_FORMAT_FLOAT;
  int channels = 1;
  CUaddress_mode modes[3] = {CU_TR_ADDRESS_MODE_CLAMP, CU_TR_ADDRESS_MODE_CLAMP,
                             CU_TR_ADDRESS_MODE_CLAMP};
  CUfilter_mode filter = CU_TR_FILTER_MODE_POINT, mipmap_filter = CU_TR_FILTER_MODE_POINT;
  float bias = 0, clamp_low = 0, clamp_high = 0, border[4] = {};
  int anisotropy = 1;
  unsigned flags = 0;
  CUcontext context = nullptr;
};
using ReferenceTable = HandleTable<CUtexref, Reference, HandleKind::kReference>;

ReferenceTable& references() {
  static auto& table = *new ReferenceTable;
  return table;
}

template <typename Set>
CUresult change(CUtexref handle, Set set) {
  auto reference = references().get(handle);
  return reference ? set(*reference) : CUDA_ERROR_INVALID_VALUE;
}

// Sets one field.
template <typename T>
CUresult set(CUtexref handle, T Reference::*field, T value) {
  return change(handle, [&](Reference& r) {
    r.*field = value;
    return CUDA_SUCCESS;
  });
}

template <typename T>
CUresult get(CUtexref handle, T Reference::*field, T* out) {
  if (out == nullptr) return CUDA_ERROR_INVALID_VALUE;
  return change(handle, [&](Reference& r) {
    *out = r.*field;
    return CUDA_SUCCESS;
  });
}

}  // namespace

void drop_references(CUcontext context) {
  for (const auto& [handle, reference] : references().all())
    if (reference->context == context) references().remove(handle);
}

SOFT(cuTexRefCreate)(CUtexref* pTexRef) {
  SOFT_CONTEXT(context);
  if (pTexRef == nullptr) return CUDA_ERROR_INVALID_VALUE;
  auto made = std::make_shared<Reference>();
  made->context = context->handle;
  *pTexRef = references().add(made);
  return CUDA_SUCCESS;
}
SOFT(cuTexRefDestroy)(CUtexref hTexRef) {
  return references().remove(hTexRef) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

SOFT(cuTexRefSetAddress_v2)
(size_t* ByteOffset, CUtexref hTexRef, CUdeviceptr dptr, size_t bytes) {
  if (MemoryMap::instance().resolve(dptr, bytes) == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (ByteOffset != nullptr) *ByteOffset = 0;
  return set(hTexRef, &Reference::address, dptr);
}
SOFT(cuTexRefGetAddress_v2)(CUdeviceptr* pdptr, CUtexref hTexRef) {
  return get(hTexRef, &Reference::address, pdptr);
}
SOFT(cuTexRefSetArray)(CUtexref hTexRef, CUarray hArray, unsigned int Flags) {
  if (Flags != CU_TRSA_OVERRIDE_FORMAT) return CUDA_ERROR_INVALID_VALUE;
  return set(hTexRef, &Reference::array, hArray);
}
SOFT(cuTexRefGetArray)(CUarray* phArray, CUtexref hTexRef) {
  return get(hTexRef, &Reference::array, phArray);
}

SOFT(cuTexRefSetFormat)(CUtexref hTexRef, CUarray_format fmt, int NumPackedComponents) {
  return change(hTexRef, [&](Reference& r) {
    if (NumPackedComponents != 1 && NumPackedComponents != 2 && NumPackedComponents != 4)
      return CUDA_ERROR_INVALID_VALUE;
    r.format = fmt;
    r.channels = NumPackedComponents;
    return CUDA_SUCCESS;
  });
}
SOFT(cuTexRefGetFormat)(CUarray_format* pFormat, int* pNumChannels, CUtexref hTexRef) {
  if (CUresult bad = get(hTexRef, &Reference::format, pFormat)) return bad;
  return get(hTexRef, &Reference::channels, pNumChannels);
}

SOFT(cuTexRefSetAddressMode)(CUtexref hTexRef, int dim, CUaddress_mode am) {
  return change(hTexRef, [&](Reference& r) {
    if (dim < 0 || dim > 2) return CUDA_ERROR_INVALID_VALUE;
    r.modes[dim] = am;
    return CUDA_SUCCESS;
  });
}
SOFT(cuTexRefGetAddressMode)(CUaddress_mode* pam, CUtexref hTexRef, int dim) {
  return change(hTexRef, [&](Reference& r) {
    if (dim < 0 || dim > 2 || pam == nullptr) return CUDA_ERROR_INVALID_VALUE;
    *pam = r.modes[dim];
    return CUDA_SUCCESS;
  });
}

SOFT(cuTexRefSetFilterMode)(CUtexref hTexRef, CUfilter_mode fm) {
  return set(hTexRef, &Reference::filter, fm);
}
SOFT(cuTexRefGetFilterMode)(CUfilter_mode* pfm, CUtexref hTexRef) {
  return get(hTexRef, &Reference::filter, pfm);
}
SOFT(cuTexRefSetMipmapFilterMode)(CUtexref hTexRef, CUfilter_mode fm) {
  return set(hTexRef, &Reference::mipmap_filter, fm);
}
SOFT(cuTexRefGetMipmapFilterMode)(CUfilter_mode* pfm, CUtexref hTexRef) {
  return get(hTexRef, &Reference::mipmap_filter, pfm);
}
SOFT(cuTexRefSetMipmapLevelBias)(CUtexref hTexRef, float bias) {
  return set(hTexRef, &Reference::bias, bias);
}
SOFT(cuTexRefGetMipmapLevelBias)(float* pbias, CUtexref hTexRef) {
  return get(hTexRef, &Reference::bias, pbias);
}
SOFT(cuTexRefSetMipmapLevelClamp)
(CUtexref hTexRef, float minMipmapLevelClamp, float maxMipmapLevelClamp) {
  if (CUresult bad = set(hTexRef, &Reference::clamp_low, minMipmapLevelClamp)) return bad;
  return set(hTexRef, &Reference::clamp_high, maxMipmapLevelClamp);
}
SOFT(cuTexRefGetMipmapLevelClamp)(float* low, float* high, CUtexref hTexRef) {
  if (CUresult bad = get(hTexRef, &Reference::clamp_low, low)) return bad;
  return get(hTexRef, &Reference::clamp_high, high);
}
SOFT(cuTexRefSetMaxAnisotropy)(CUtexref hTexRef, unsigned int maxAniso) {
  return set(hTexRef, &Reference::anisotropy, static_cast<int>(maxAniso));
}
SOFT(cuTexRefGetMaxAnisotropy)(int* pmaxAniso, CUtexref hTexRef) {
  return get(hTexRef, &Reference::anisotropy, pmaxAniso);
}
SOFT(cuTexRefSetFlags)(CUtexref hTexRef, unsigned int Flags) {
  return set(hTexRef, &Reference::flags, Flags);
}
SOFT(cuTexRefGetFlags)(unsigned int* pFlags, CUtexref hTexRef) {
  return get(hTexRef, &Reference::flags, pFlags);
}
SOFT(cuTexRefSetBorderColor)(CUtexref hTexRef, float* pBorderColor) {
  return change(hTexRef, [&](Reference& r) {
    if (pBorderColor == nullptr) return CUDA_ERROR_INVALID_VALUE;
    memcpy(r.border, pBorderColor, sizeof r.border);
    return CUDA_SUCCESS;
  });
}

}  // namespace tendril::softgpu
