// SPDX-License-Identifier: Apache-2.0
// What the bodies of OpenCL's calls need to become messages: handles become ids, wait lists are
// checked, new events get records. The first error stays, and nothing is sent after one. Generated
// bodies use it, and those by hand. Any thread.
#pragma once

#include <cstring>
#include <vector>

#include "api/opencl_bodies.gen.h"
#include "client/opencl/state.h"

namespace tendril::client::opencl {

// What events say of the command that an operation is.
constexpr cl_command_type command_of(wire::opencl::Op op) {
  switch (op) {
    case wire::opencl::Op::clEnqueueCopyBuffer:
      return CL_COMMAND_COPY_BUFFER;
    case wire::opencl::Op::clEnqueueCopyBufferRect:
      return CL_COMMAND_COPY_BUFFER_RECT;
    case wire::opencl::Op::clEnqueueCopyImage:
      return CL_COMMAND_COPY_IMAGE;
    case wire::opencl::Op::clEnqueueCopyImageToBuffer:
      return CL_COMMAND_COPY_IMAGE_TO_BUFFER;
    case wire::opencl::Op::clEnqueueCopyBufferToImage:
      return CL_COMMAND_COPY_BUFFER_TO_IMAGE;
    case wire::opencl::Op::clEnqueueFillBuffer:
      return CL_COMMAND_FILL_BUFFER;
    case wire::opencl::Op::clEnqueueMigrateMemObjects:
      return CL_COMMAND_MIGRATE_MEM_OBJECTS;
    case wire::opencl::Op::clEnqueueMarkerWithWaitList:
      return CL_COMMAND_MARKER;
    case wire::opencl::Op::clEnqueueBarrierWithWaitList:
      return CL_COMMAND_BARRIER;
    default:
      return 0;
  }
}

class Forward {
 public:
  explicit Forward(bool) {}
  ~Forward() {
    if (event_ != nullptr) discard(event_);  // nobody has it
  }
  Forward(const Forward&) = delete;
  Forward& operator=(const Forward&) = delete;

  bool ok() const { return error_ == CL_SUCCESS; }
  cl_int error() const { return error_; }
  void fail(cl_int error) {
    if (ok()) error_ = error;
  }
  void check(cl_int result) {
    if (result != CL_SUCCESS) fail(result);
  }

  // The record of a handle, which must be of the same context as those before it. Null after an
  // error.
  template <typename Pointer>
  typename RecordOf<Pointer>::Type* record(Pointer pointer) {
    auto* found = find(pointer);
    if (found == nullptr) {
      fail(api::opencl::error_of(RecordOf<Pointer>::kKind));
      return nullptr;
    }
    belongs(found);
    if constexpr (std::is_same_v<Pointer, cl_command_queue>) queue_ = found;
    return found;
  }
  // A memory object that is a buffer, or one that is an image.
  Memory* buffer(cl_mem pointer) { return memory(pointer, false); }
  Memory* image(cl_mem pointer) { return memory(pointer, true); }
  template <typename Pointer>
  uint64_t handle(Kind, Pointer pointer) {
    const auto* found = record(pointer);
    return found != nullptr ? found->wire_id : 0;
  }

  // Whether a list has something. A list without a count, or a count without a list, is an error.
  template <typename T>
  bool array(const T* list, uint64_t count) {
    constexpr bool kEvents = std::is_same_v<T, cl_event>;
    if ((list == nullptr) != (count == 0) && (kEvents || list == nullptr))
      fail(kEvents ? CL_INVALID_EVENT_WAIT_LIST : CL_INVALID_VALUE);
    return list != nullptr && count != 0;
  }
  // The ids live as long as this object.
  template <typename Pointer>
  wire::Array<uint64_t> handles(Kind, const Pointer* list, uint64_t count) {
    constexpr bool kEvents = std::is_same_v<Pointer, cl_event>;
    uint64_t* const ids = room(count);
    for (uint64_t i = 0; ids != nullptr && i < count; ++i) {
      const auto* found = find(list[i]);
      if (found == nullptr) {
        fail(kEvents ? CL_INVALID_EVENT_WAIT_LIST
                     : api::opencl::error_of(RecordOf<Pointer>::kKind));
        return {};
      }
      belongs(found);
      ids[i] = found->wire_id;
    }
    return {ids, ids != nullptr ? count : 0};
  }
  wire::Array<uint64_t> waits(const cl_event* list, cl_uint count) {
    if (!array(list, count)) return {};
    return handles(Kind::kEvent, list, count);
  }
  wire::Array<size_t> images(const size_t* values, uint64_t count) { return {values, count}; }
  template <typename T>
  bool pointer(T* pointer) {
    if (pointer == nullptr) fail(CL_INVALID_VALUE);
    return pointer != nullptr;
  }

  // A new event of the queue's. It is the program's with `adopt`.
  uint64_t mint(Kind) {
    if (!ok() || queue_ == nullptr) return 0;
    event_ = create<cl_event>(queue_->session, queue_->context);
    if (event_ == nullptr) {
      fail(CL_OUT_OF_HOST_MEMORY);
      return 0;
    }
    event_->queue = queue_;
    event_->command = 0;
    use(queue_);
    return event_->wire_id;
  }
  uint64_t mint_if(const cl_event* wanted, cl_command_type command) {
    const uint64_t id = wanted != nullptr ? mint(Kind::kEvent) : 0;
    if (event_ != nullptr) event_->command = command;
    return id;
  }
  template <typename Pointer>
  Pointer adopt(Kind, uint64_t) {
    Event* mine = event_;
    event_ = nullptr;
    return handle_of<Pointer>(mine);
  }
  void adopt_into(cl_event* wanted) {
    if (wanted != nullptr && event_ != nullptr) *wanted = adopt<cl_event>(Kind::kEvent, 0);
  }

  template <typename Request>
  cl_int enqueue(const Request& request) {
    if (event_ != nullptr && event_->command == 0) event_->command = command_of(Request::kOp);
    return queue_->session->enqueue(0, request);
  }

 private:
  Memory* memory(cl_mem pointer, bool is_image) {
    Memory* found = record(pointer);
    if (found != nullptr && found->is_image() != is_image) {
      fail(CL_INVALID_MEM_OBJECT);
      return nullptr;
    }
    return found;
  }
  void belongs(const Object* object) {
    const Object* context = object->context;
    if (context == nullptr) return;
    if (context_ == nullptr) context_ = context;
    if (context != context_) fail(CL_INVALID_CONTEXT);
  }
  uint64_t* room(uint64_t count) {
    if (used_ + count <= kInside) {
      uint64_t* const at = inside_ + used_;
      used_ += count;
      return at;
    }
    more_.emplace_back(count);
    return more_.back().data();
  }

  static constexpr uint64_t kInside = 32;
  cl_int error_ = CL_SUCCESS;
  const Object* context_ = nullptr;
  Queue* queue_ = nullptr;
  Event* event_ = nullptr;  // not yet the program's
  uint64_t used_ = 0;
  uint64_t inside_[kInside];
  std::vector<std::vector<uint64_t>> more_;
};

}  // namespace tendril::client::opencl
