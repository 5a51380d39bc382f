// SPDX-License-Identifier: Apache-2.0
// Generated and hand-written handlers use it to turn a message's ids into driver objects and back.
// It keeps the first failure. After a failure the handler does not call the driver.
#pragma once

#include <cstdint>
#include <cstring>

#include "worker/cuda/executor/executor.h"

namespace tendril::worker::cuda {

class Scope {
 public:
  explicit Scope(Executor& executor) : w_(executor) {}

  bool ok() const { return error_ == CUDA_SUCCESS; }
  CUresult error() const { return error_; }
  void fail(CUresult error) {
    if (ok()) error_ = error;
  }

  // 0 and api::cuda::kLegacyStream are the legacy stream.
  CUstream stream(uint64_t id) {
    if (id <= api::cuda::kLegacyStream)
      return CU_STREAM_LEGACY;  // every wait for a context asks this stream
    CUstream stream = get<CUstream>(Kind::kStream, id);
    if (stream != nullptr) w_.touch(stream);
    return stream;
  }
  template <typename T>
  T get(Kind kind, uint64_t id) {
    void* object = w_.objects().find(kind, id);
    if (object == nullptr)
      fail(kind == Kind::kContext ? CUDA_ERROR_INVALID_CONTEXT : CUDA_ERROR_INVALID_HANDLE);
    if (kind == Kind::kGraph && graph_ == nullptr) graph_ = object;  // the second is a child
    if (kind == Kind::kNode) node_ = object;
    if (kind == Kind::kModule) module_ = object;
    if (kind == Kind::kArray || kind == Kind::kMipmap) array_ = object;
    return cast<T>(object);
  }
  // Call it before the driver makes an object for this id.
  void reserve(Kind kind, uint64_t id) {
    if (!ok()) return;
    if (w_.objects().full())
      fail(CUDA_ERROR_OUT_OF_MEMORY);
    else if (!w_.objects().may_bind(kind, id))
      fail(CUDA_ERROR_INVALID_HANDLE);
  }
  template <typename T>
  void bind(Kind kind, uint64_t id, T object) {
    w_.objects().bind(kind, id, uncast(object), owner_of_new(kind, uncast(object)));
  }
  // The driver has ended the object.
  void unbind(Kind kind, uint64_t id) { w_.objects().gone(kind, id); }
  // The id of an object that the driver hands back. `owner`: the object with which it ends. 0: the
  // client does not know it, and it may be gone.
  template <typename T>
  uint64_t id(Kind kind, T object, const void* owner) {
    if (uncast(object) == nullptr) return 0;
    return owner != nullptr ? w_.objects().id_of(kind, uncast(object), owner)
                            : w_.objects().known_id(kind, uncast(object));
  }
  template <typename T>
  uint64_t id(Kind kind, T object) {
    return id(kind, object, owner_of_known(kind));
  }
  template <typename T>
  wire::Array<uint64_t> ids(Kind kind, const T* objects, uint64_t count, const void* owner) {
    uint64_t* out = scratch<uint64_t>(count);
    for (uint64_t i = 0; out != nullptr && i < count; ++i) out[i] = id(kind, objects[i], owner);
    return {out, out != nullptr ? count : 0};
  }
  template <typename T>
  wire::Array<uint64_t> ids(Kind kind, const T* objects, uint64_t count) {
    return ids(kind, objects, count, owner_of_known(kind));
  }
  // A list of nodes makes edges.
  template <typename T>
  T* handles(Kind kind, const wire::Array<uint64_t>& ids) {
    if (kind == Kind::kNode && !w_.may_link(ids.count)) fail(CUDA_ERROR_OUT_OF_MEMORY);
    T* out = scratch<T>(ids.count);
    for (uint64_t i = 0; out != nullptr && i < ids.count; ++i) out[i] = get<T>(kind, ids[i]);
    return out;
  }
  template <typename T>
  T* scratch(uint64_t count) {
    if (count == 0) return nullptr;
    void* memory = count < (uint64_t{1} << 28) ? w_.scratch().take(count * sizeof(T)) : nullptr;
    if (memory == nullptr)
      fail(CUDA_ERROR_OUT_OF_MEMORY);
    else
      std::memset(memory, 0, count * sizeof(T));
    return static_cast<T*>(memory);
  }
  CUdevice device(uint32_t slot) {
    const CUdevice device = w_.device_of(slot);
    if (device < 0) fail(CUDA_ERROR_INVALID_DEVICE);
    return device;
  }
  // Compares the number of elements that came with a call to the count that the driver will trust.
  void length(uint64_t elements, uint64_t count, bool optional) {
    if (elements != count && !(optional && elements == 0)) fail(CUDA_ERROR_INVALID_VALUE);
  }
  // A NUL-terminated copy.
  const char* text(const wire::Bytes& bytes) {
    char* out = scratch<char>(bytes.count + 1);
    if (out != nullptr && bytes.count != 0) std::memcpy(out, bytes.data, bytes.count);
    return out;
  }
  // Images with slots or ids inside get overloads; the rest pass through.
  template <typename T>
  T resolve(const T& image) {
    return image;
  }
  CUmemLocation resolve(CUmemLocation location) {
    if (location.type == CU_MEM_LOCATION_TYPE_DEVICE)
      location.id = device(static_cast<uint32_t>(location.id));
    return location;
  }
  CUmemAllocationProp resolve(CUmemAllocationProp prop) {
    prop.location = resolve(prop.location);
    return prop;
  }
  CUmemAccessDesc resolve(CUmemAccessDesc desc) {
    desc.location = resolve(desc.location);
    return desc;
  }
  CUmemPoolProps resolve(CUmemPoolProps props) {
    props.location = resolve(props.location);
    return props;
  }
  CUDA_RESOURCE_DESC resolve(CUDA_RESOURCE_DESC desc) {
    if (desc.resType == CU_RESOURCE_TYPE_ARRAY) {
      desc.res.array.hArray = get<CUarray>(Kind::kArray, id_in(desc.res.array.hArray));
    } else if (desc.resType == CU_RESOURCE_TYPE_MIPMAPPED_ARRAY) {
      desc.res.mipmap.hMipmappedArray =
          get<CUmipmappedArray>(Kind::kMipmap, id_in(desc.res.mipmap.hMipmappedArray));
    }
    return desc;
  }
  // On the wire a record has an id in the place of the driver's handle. These convert both ways.
  template <typename T>
  static uint64_t id_in(T field) {
    return reinterpret_cast<uint64_t>(field);
  }
  template <typename T>
  static T as_field(uint64_t id) {
    return reinterpret_cast<T>(id);
  }
  template <typename T>
  const T* resolve_all(const wire::Array<T>& images) {
    T* out = scratch<T>(images.count);
    for (uint64_t i = 0; out != nullptr && i < images.count; ++i) out[i] = resolve(images[i]);
    return out;
  }
  template <typename T>
  T present(const T& image) {
    return image;
  }
  CUmemLocation present(CUmemLocation location) {
    if (location.type == CU_MEM_LOCATION_TYPE_DEVICE)
      location.id = static_cast<int>(w_.slot_of(location.id));
    return location;
  }
  CUmemAllocationProp present(CUmemAllocationProp prop) {
    prop.location = present(prop.location);
    return prop;
  }
  CUDA_RESOURCE_DESC present(CUDA_RESOURCE_DESC desc) {
    if (desc.resType == CU_RESOURCE_TYPE_ARRAY) {
      desc.res.array.hArray = as_field<CUarray>(id(Kind::kArray, desc.res.array.hArray, nullptr));
    } else if (desc.resType == CU_RESOURCE_TYPE_MIPMAPPED_ARRAY) {
      desc.res.mipmap.hMipmappedArray =
          as_field<CUmipmappedArray>(id(Kind::kMipmap, desc.res.mipmap.hMipmappedArray, nullptr));
    }
    return desc;
  }

  // Reads a struct that travelled in a `bytes` field.
  template <typename T>
  bool image(const wire::Bytes& bytes, T* out) {
    if (bytes.count != sizeof(T)) {
      fail(CUDA_ERROR_INVALID_VALUE);
      return false;
    }
    std::memcpy(out, bytes.data, sizeof(T));
    return true;
  }

 private:
  template <typename T>
  static T cast(void* object) {
    if constexpr (std::is_pointer_v<T>) {
      return static_cast<T>(object);
    } else {
      return static_cast<T>(reinterpret_cast<uintptr_t>(object));
    }
  }
  template <typename T>
  static void* uncast(T object) {
    if constexpr (std::is_pointer_v<T>) {
      return object;
    } else {
      return reinterpret_cast<void*>(static_cast<uintptr_t>(object));
    }
  }
  // What ends with what, by the objects that the call names.
  const void* owner_of_new(Kind kind, const void* object) const {
    if (kind == Kind::kNode) return graph_;
    if (kind == Kind::kGraph) return object;
    return kind == Kind::kTexref ? w_.contexts().current_in_driver() : nullptr;
  }
  const void* owner_of_known(Kind kind) const {
    if (kind == Kind::kNode) return graph_;
    if (kind == Kind::kGraph) return node_;
    if (kind == Kind::kArray) return array_;
    return kind == Kind::kTexref || kind == Kind::kSurfref ? module_ : nullptr;
  }

  Executor& w_;
  CUresult error_ = CUDA_SUCCESS;
  const void *graph_ = nullptr, *node_ = nullptr, *module_ = nullptr, *array_ = nullptr;
};

}  // namespace tendril::worker::cuda
