// SPDX-License-Identifier: Apache-2.0
// See forward.h.
#include "client/cuda/forward.h"

#include "client/cuda/stream/capture.h"

namespace tendril::client::cuda {

Forward::Forward(bool needs_context) {
  if (process() == nullptr) {
    error_ = CUDA_ERROR_NOT_INITIALIZED;
    return;
  }
  Context* context = nullptr;
  const CUresult result = require_context(&context);
  if (result == CUDA_SUCCESS) {
    context_ = context;
    session_ = context->session;
  } else if (needs_context) {
    error_ = result;
  }
}

// An argument that is of a server has decided already. Otherwise any server will do.
bool Forward::reach() {
  if (session_ == nullptr) session_ = any_session();
  if (session_ == nullptr) fail(Session::lost_result());
  return session_ != nullptr;
}

uint64_t Forward::stream(CUstream handle) {
  Stream* s = nullptr;
  if (!ok() || context_ == nullptr) return 0;
  const CUresult result = require_stream(context_, handle, &s);
  if (result != CUDA_SUCCESS)
    fail(result);
  else if (const CUresult forbidden = check_work(context_, s))
    fail(forbidden);
  if (s != nullptr) {
    context_ = s->context;
    session_ = s->session;
  }
  return stream_wire_id(s);
}

uint64_t Forward::use(Kind kind, uint64_t handle) {
  if (!ok()) return 0;
  Object* object = find_object(kind, handle);
  if (object == nullptr && kind == Kind::kFunction) object = find_object(Kind::kKernel, handle);
  if (object == nullptr) {
    fail(no_object(kind));
    return 0;
  }
  // A graph node, for example, may record the event from now on, not only cuEventRecord.
  if (kind == Kind::kEvent)
    static_cast<Event*>(object)->external.store(true, std::memory_order_relaxed);
  if (object->session != nullptr && object->session != session_) {
    // An object of another server decides where the call goes. One call cannot use two servers.
    session_ = object->session;
    context_ = object->context;
  }
  return object->wire_id;
}

uint64_t Forward::mint(Kind kind) {
  if (!ok() || !reach()) return 0;
  minted_ = create_object(kind, session_, context_);
  minted_kind_ = kind;
  if (minted_ == nullptr) {
    fail(CUDA_ERROR_OUT_OF_MEMORY);
    return 0;
  }
  return minted_->wire_id;
}

void Forward::unmint() {
  if (minted_ != nullptr) destroy_object(minted_kind_, minted_);
  minted_ = nullptr;
}

uint32_t Forward::device(CUdevice ordinal) {
  Device* d = device_of(ordinal);
  if (d == nullptr) {
    fail(CUDA_ERROR_INVALID_DEVICE);
    return 0;
  }
  if (session_ != d->session)
    context_ = nullptr;  // a context of another server means nothing there
  if (const CUresult failed = d->session->begin()) {
    fail(failed);
    return 0;
  }
  session_ = d->session;
  return d->slot;
}

CUmemLocation Forward::localize(const CUmemLocation& location) {
  CUmemLocation out = location;
  if (location.type == CU_MEM_LOCATION_TYPE_DEVICE) out.id = static_cast<int>(device(location.id));
  return out;
}

CUDA_RESOURCE_DESC Forward::localize(CUDA_RESOURCE_DESC desc) {
  if (desc.resType == CU_RESOURCE_TYPE_ARRAY) {
    desc.res.array.hArray = reinterpret_cast<CUarray>(handle(Kind::kArray, desc.res.array.hArray));
  } else if (desc.resType == CU_RESOURCE_TYPE_MIPMAPPED_ARRAY) {
    desc.res.mipmap.hMipmappedArray =
        reinterpret_cast<CUmipmappedArray>(handle(Kind::kMipmap, desc.res.mipmap.hMipmappedArray));
  }
  return desc;
}

CUDA_RESOURCE_DESC Forward::globalize(CUDA_RESOURCE_DESC desc) {
  if (desc.resType == CU_RESOURCE_TYPE_ARRAY) {
    desc.res.array.hArray =
        known<CUarray>(Kind::kArray, reinterpret_cast<uint64_t>(desc.res.array.hArray));
  } else if (desc.resType == CU_RESOURCE_TYPE_MIPMAPPED_ARRAY) {
    const uint64_t id = reinterpret_cast<uint64_t>(desc.res.mipmap.hMipmappedArray);
    desc.res.mipmap.hMipmappedArray = known<CUmipmappedArray>(Kind::kMipmap, id);
  }
  return desc;
}

CUmemAllocationProp Forward::globalize(CUmemAllocationProp prop) {
  if (prop.location.type != CU_MEM_LOCATION_TYPE_DEVICE) return prop;
  for (const Device* device : session_->devices) {
    if (device->slot == static_cast<uint32_t>(prop.location.id)) {
      prop.location.id = device->ordinal;
      break;
    }
  }
  return prop;
}

}  // namespace tendril::client::cuda
