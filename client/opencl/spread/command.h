// SPDX-License-Identifier: Apache-2.0
// One command of a queue of a context over several servers, from its check until it is sent. It
// holds the context's lock. The first error stays, and nothing is sent after one. Any thread.
#pragma once

#include "client/opencl/spread/move.h"

namespace tendril::client::opencl::spread {

// The ordinary event that stands for this one at the member. Null: `result` says why. With the
// context's lock held.
cl_event event_at(Event* event, uint32_t member, cl_int* result);

class Command {
 public:
  Command(cl_command_queue queue, cl_uint waits, const cl_event* wait);
  ~Command();
  Command(const Command&) = delete;
  Command& operator=(const Command&) = delete;

  bool ok() const { return error_ == CL_SUCCESS; }
  cl_int error() const { return error_; }
  void fail(cl_int error) {
    if (ok()) error_ = error;
  }

  // The record, of the queue's context. Null after an error.
  template <typename Pointer>
  typename RecordOf<Pointer>::Type* record(Pointer pointer) {
    auto* found = spread::find(pointer);
    if (found == nullptr)
      fail(api::opencl::error_of(RecordOf<Pointer>::kKind));
    else if (context_ != nullptr && found->context != context_)
      fail(CL_INVALID_CONTEXT);
    return ok() ? found : nullptr;
  }
  Memory* buffer(cl_mem pointer) { return kind_of(pointer, false); }
  Memory* image(cl_mem pointer) { return kind_of(pointer, true); }
  void uses(Memory* memory, Access access, uint64_t offset = 0, uint64_t bytes = kWhole) {
    if (ok()) uses_.push_back({memory, offset, bytes, access});
  }

  // What is given to the ordinary function, inside of `send`.
  uint32_t member() const { return queue_->member; }
  cl_command_queue queue() const { return queue_->real; }
  cl_mem at(const Memory* memory) const { return memory->at[queue_->member]; }
  cl_uint waits() const { return static_cast<cl_uint>(waits_.events.size()); }
  const cl_event* wait() const { return waits() != 0 ? waits_.events.data() : nullptr; }

  // Brings what is used, and calls `send(cl_event*)`, which enqueues. Then the event is the
  // program's, if it wants one. `blocking`: until the command is over, without the lock.
  template <typename Send>
  cl_int run(cl_command_type type, bool blocking, cl_event* wanted, Send&& send) {
    prepare(blocking, wanted);
    cl_event made = nullptr;
    if (ok()) fail(send(needs_event_ ? &made : nullptr));
    return finish(type, blocking, wanted, made);
  }

 private:
  Memory* kind_of(cl_mem pointer, bool is_image) {
    Memory* found = record(pointer);
    if (found != nullptr && found->is_image() != is_image) fail(CL_INVALID_MEM_OBJECT);
    return ok() ? found : nullptr;
  }
  void prepare(bool blocking, const cl_event* wanted);
  cl_int finish(cl_command_type type, bool blocking, cl_event* wanted, cl_event made);
  void unlock();

  cl_int error_ = CL_SUCCESS;
  Queue* queue_ = nullptr;
  Context* context_ = nullptr;  // locked
  bool needs_event_ = false;
  Event* event_ = nullptr;  // not yet the program's
  Waits waits_;
  std::vector<Use> uses_;
};

}  // namespace tendril::client::opencl::spread
