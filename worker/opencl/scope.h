// SPDX-License-Identifier: Apache-2.0
// What a handler needs to turn a message into a call of the driver: ids become objects, lengths are
// checked. The first error stays. Generated handlers and those by hand use it. Executor thread.
#pragma once

#include "worker/opencl/executor.h"

namespace tendril::worker::opencl {

constexpr uint64_t kPropertiesMax = 64;  // of an object: pairs and a 0

class Scope {
 public:
  explicit Scope(Executor& executor) : executor_(executor) {}

  bool ok() const { return error_ == CL_SUCCESS; }
  cl_int error() const { return error_; }
  void fail(cl_int error) {
    if (ok()) error_ = error;
  }

  template <typename T>
  T get(Kind kind, uint64_t id) {
    void* object = executor_.objects().find(kind, id);
    if (object == nullptr) fail(api::opencl::error_of(kind));
    if (kind == Kind::kQueue) executor_.about_queue(id);
    return static_cast<T>(object);
  }
  // Null: there are none.
  template <typename T>
  const T* handles(Kind kind, const wire::Array<uint64_t>& ids) {
    if (ids.count == 0) return nullptr;
    T* const found = scratch<T>(ids.count);
    for (uint64_t i = 0; found != nullptr && i < ids.count; ++i) {
      found[i] = static_cast<T>(executor_.objects().find(kind, ids[i]));
      if (found[i] == nullptr)
        fail(kind == Kind::kEvent ? CL_INVALID_EVENT_WAIT_LIST : api::opencl::error_of(kind));
    }
    if constexpr (std::is_same_v<T, cl_event>)
      if (ok()) executor_.waits_for(found, ids.count);
    return found;
  }
  template <typename T>
  T* scratch(uint64_t count) {
    void* room = count <= Scratch::kBytesMax / sizeof(T)
                     ? executor_.scratch().take(count * sizeof(T))
                     : nullptr;
    if (room == nullptr) fail(CL_OUT_OF_HOST_MEMORY);
    return static_cast<T*>(room);
  }
  template <typename T>
  const T* resolve_all(const wire::Array<T>& values) {
    return values.count != 0 ? values.data : nullptr;  // none is a null pointer for the driver
  }
  void length(uint64_t count, uint64_t wanted, bool optional) {
    if (count != wanted && !(optional && count == 0)) fail(CL_INVALID_VALUE);
  }
  void reserve(Kind kind, uint64_t id) {
    if (!executor_.objects().may_bind(kind, id)) return fail(CL_OUT_OF_HOST_MEMORY);
    if (kind == Kind::kEvent) executor_.makes_event(id);
  }
  template <typename T>
  void bind(Kind kind, uint64_t id, T object) {
    executor_.objects().bind(kind, id, object);
    if (kind == Kind::kEvent) executor_.made_event();
  }
  // A text of a message, with a NUL. It lives until the next call.
  const char* text(const wire::Bytes& bytes) {
    char* const copy = scratch<char>(bytes.count + 1);
    if (copy == nullptr) return "";
    std::memcpy(copy, bytes.data, bytes.count);
    copy[bytes.count] = 0;
    return copy;
  }

 private:
  Executor& executor_;
  cl_int error_ = CL_SUCCESS;
};

}  // namespace tendril::worker::opencl
