// SPDX-License-Identifier: Apache-2.0
// The records of a context that has devices of several servers, and of what is made in it. Each
// stands for ordinary objects of this library, one at each server: its members. The record has no
// session. Any thread; what changes is guarded by the context's lock.
#pragma once

#include <memory>
#include <utility>
#include <vector>

#include "client/opencl/spread/content.h"
#include "client/opencl/state.h"

namespace tendril::client::opencl::spread {

// One server's part of a context.
struct Member {
  Session* session = nullptr;
  cl_context context = nullptr;
  std::vector<cl_device_id> devices;
  cl_command_queue incoming = nullptr;  // where what comes from other servers is written
};

struct Context : opencl::Context {
  // Held while a command is checked and sent. So all servers see commands in one order.
  base::Lock lock;
  std::vector<Member> members;
  base::Lock idle_lock;
  std::vector<std::pair<uint32_t, cl_command_queue>> idle;  // guarded by idle_lock; by member
  // Of the devices: the most that one of them takes in one buffer, and the least that one of them
  // wants parts of buffers aligned to.
  uint64_t buffer_bytes_max = 0, part_align_bytes = 1;
};

struct Queue : opencl::Queue {
  uint32_t member = 0;
  cl_command_queue real = nullptr;
  bool in_order = true;
};

struct Event : opencl::Event {
  uint32_t member = 0;
  cl_event real = nullptr;  // null: a user event
  // User events at other servers, which the client sets when this one is over.
  std::vector<std::pair<uint32_t, cl_event>> elsewhere;
};

struct Memory : opencl::Memory {
  std::vector<cl_mem> at;  // by member; null: not made yet
  std::vector<std::pair<cl_mem_notify, void*>> endings;
  // Of an object that is no part of another one.
  std::vector<Piece> pieces;
  std::unique_ptr<uint8_t[]> kept;  // `first`, unless the program keeps it
  const uint8_t* first = nullptr;   // what the program gave, while it is the newest somewhere
};

struct Program : opencl::Program {
  std::vector<cl_program> at;  // by member; null: none of its devices
};

// An argument as the program gave it.
struct Given {
  uint64_t version = 0;  // 0: nothing yet
  size_t bytes = 0;
  std::vector<uint8_t> value;
  bool is_local = false;
  Object* object = nullptr;  // a memory object or a sampler
  uint64_t id = 0;           // the object's, because its record may become another one's
  bool is_memory = false;
};

struct Kernel : opencl::Kernel {
  struct At {
    cl_kernel real = nullptr;
    std::vector<uint64_t> versions;  // that this server's kernel has
  };
  std::vector<At> at;
  uint32_t home = 0;  // the member that answers what is asked, and checks arguments
  std::vector<Given> given;
  std::vector<uint8_t> use;  // of each argument: what kernels do with it (kernel.cc)
  uint64_t version = 0;
};

struct Sampler : opencl::Sampler {
  std::vector<cl_sampler> at;
};

#include "client/opencl/alike/records.inc"
Tables& tables();

// A new record with one reference, which uses `context`. Null: there are too many.
template <typename Pointer>
typename RecordOf<Pointer>::Type* create(Object* context) {
  using Is = RecordOf<Pointer>;
  auto& table = table_of(tables(), static_cast<typename Is::Type*>(nullptr));
  return create_in<Is>(table, kTable, nullptr, context);
}

inline Context* context_of(const Object* object) { return static_cast<Context*>(object->context); }

// Which member's device it is. False: none's.
bool member_of(const Context& context, cl_device_id device, uint32_t* member);

}  // namespace tendril::client::opencl::spread
