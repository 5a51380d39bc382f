// SPDX-License-Identifier: Apache-2.0
// Generated bodies use this. It collects the arguments of one call, finds the session that must
// answer, and turns handles into wire ids and back. It keeps the first error. The body answers that
// error before it sends anything, as a driver does.
#pragma once

#include <cstdint>
#include <cstring>
#include <deque>

#include "client/cuda/bodies.h"

namespace tendril::client::cuda {

class Forward {
 public:
  explicit Forward(bool needs_context);

  bool ok() const { return error_ == CUDA_SUCCESS; }
  CUresult error() const { return error_; }

  // Refuses a null pointer where the call needs a value.
  template <typename T>
  bool pointer(T* p) {
    if (p == nullptr) fail(CUDA_ERROR_INVALID_VALUE);
    return p != nullptr;
  }
  template <typename T>
  bool array(T* p, uint64_t count) {
    if (p == nullptr && count != 0) fail(CUDA_ERROR_INVALID_VALUE);
    return p != nullptr;
  }
  uint64_t stream(CUstream stream);
  template <typename T>
  uint64_t handle(Kind kind, T value) {
    return use(kind, handle_value(value));
  }
  uint64_t mint(Kind kind);
  uint32_t device(CUdevice ordinal);
  template <typename T>
  wire::Array<uint64_t> handles(Kind kind, const T* values, uint64_t count) {
    std::vector<uint64_t>& ids = ids_.emplace_back(count);
    for (uint64_t i = 0; i < count; ++i) ids[i] = use(kind, handle_value(values[i]));
    return {ids.data(), count};
  }
  template <typename T>
  wire::Array<T> images(const T* values, uint64_t count) {
    return {values, count};
  }
  wire::Array<CUmemAccessDesc> images(const CUmemAccessDesc* values, uint64_t count) {
    access_.assign(values, values + count);
    for (CUmemAccessDesc& desc : access_) desc.location = localize(desc.location);
    return {access_.data(), count};
  }
  // Records that contain device ordinals or handles have overloads. All others travel unchanged.
  template <typename T>
  T localize(const T& image) {
    return image;
  }
  CUmemLocation localize(const CUmemLocation& location);
  CUmemAllocationProp localize(CUmemAllocationProp prop) {
    prop.location = localize(prop.location);
    prop.win32HandleMetaData = nullptr;
    return prop;
  }
  CUmemPoolProps localize(CUmemPoolProps props) {
    props.location = localize(props.location);
    props.win32SecurityAttributes = nullptr;
    return props;
  }
  CUDA_RESOURCE_DESC localize(CUDA_RESOURCE_DESC desc);
  template <typename T>
  T globalize(const T& image) {
    return image;
  }
  CUmemAllocationProp globalize(CUmemAllocationProp prop);
  CUDA_RESOURCE_DESC globalize(CUDA_RESOURCE_DESC desc);

  template <typename T>
  void copy_out(T* into, uint64_t count, const wire::Array<T>& from) {
    std::memcpy(into, from.data, (from.count < count ? from.count : count) * sizeof(T));
  }
  template <typename T>
  T known(Kind kind, uint64_t id) {
    Object* object = id != 0 ? known_object(kind, session_, context_, id) : nullptr;
    return object != nullptr ? handle_cast<T>(object) : T{};
  }
  template <typename T>
  void known_array(Kind kind, T* into, uint64_t count, const wire::Array<uint64_t>& ids) {
    for (uint64_t i = 0; i < count && i < ids.count; ++i) into[i] = known<T>(kind, ids[i]);
  }
  template <typename T>
  T adopt(Kind, uint64_t) {
    T value{};
    const uint64_t handle = minted_->handle.load(std::memory_order_relaxed);
    std::memcpy(&value, &handle, sizeof value);
    minted_ = nullptr;
    return value;
  }
  template <typename T>
  void drop(Kind kind, T value) {
    if (Object* object = find_object(kind, handle_value(value))) destroy_object(kind, object);
  }

  template <typename Request, typename Answer>
  CUresult call(const Request& request, Answer& reply) {
    if (!reach()) return error_;
    const CUresult result = session_->call(context_, request, reply);
    if (result != CUDA_SUCCESS) unmint();
    return result;
  }
  template <typename Request>
  CUresult enqueue(const Request& request) {
    return reach() ? session_->enqueue(context_, request) : error_;
  }

 private:
  void fail(CUresult error) {
    if (error_ == CUDA_SUCCESS) error_ = error;
  }
  bool reach();
  uint64_t use(Kind kind, uint64_t handle);
  void unmint();

  CUresult error_ = CUDA_SUCCESS;
  Context* context_ = nullptr;
  Session* session_ = nullptr;
  Object* minted_ = nullptr;
  Kind minted_kind_ = Kind::kNone;
  std::deque<std::vector<uint64_t>> ids_;  // of each array of handles
  std::vector<CUmemAccessDesc> access_;
};

}  // namespace tendril::client::cuda
