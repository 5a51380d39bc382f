// SPDX-License-Identifier: Apache-2.0
// The records behind the program's OpenCL handles. A handle is the address of `Handle` in a record,
// because a loader finds the driver's table of functions there. Records are reused, never freed. A
// record lives while the program holds references, or other objects need it. Any thread.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "api/opencl/kind_error.h"
#include "api/opencl_messages.gen.h"
#include "base/lock.h"
#include "client/core/record.h"
#include "client/opencl/host_place.h"

namespace tendril::client::opencl {

using api::opencl::Kind;
class Session;
struct Object;

struct Handle {
  const void* table = nullptr;  // of functions, where the loader looks
  Object* object = nullptr;
};

struct Object : core::Record {
  Handle shown;
  Session* session = nullptr;  // null: its context is over several servers (spread/object.h)
  // With a context all objects made in it; with a sub-buffer its parent; and so on.
  Object* context = nullptr;
  Object* parent = nullptr;
  std::atomic<uint32_t> references{0};  // the program's
  std::atomic<uint32_t> uses{0};        // of other objects, and of calls
};

struct Platform;
struct Device : Object {
  Platform* platform = nullptr;
  cl_device_type type = 0;
  std::vector<cl_device_partition_property> partition;  // of a part of a device, with the 0
};

struct Context : Object {
  std::vector<Device*> devices;                   // each is used
  std::vector<cl_context_properties> properties;  // as the program gave them, with the 0
  std::vector<std::pair<cl_context_destructor, void*>> destructors;
};

struct Queue : Object {
  Device* device = nullptr;
  std::vector<cl_queue_properties> properties;  // as the program gave them, with the 0
  cl_command_queue_properties plain = 0;
};

// A part of a memory object that the program sees in its memory.
struct Mapping {
  cl_map_flags flags;
  wire::opencl::Form form;
  wire::opencl::Shape shape;
  HostPlace host;
};

// What only an image has. Its pitches are those in the program's memory, from row to row and from
// slice to slice as origins count (an array's layers are its last dimension).
struct Picture {
  cl_image_format format = {};
  cl_image_desc description = {};  // as the program gave it
  uint64_t element_bytes = 0, extent[3] = {};
  uint64_t row_pitch = 0, slice_pitch = 0;
};

struct Memory : Object {
  uint64_t bytes = 0, origin = 0;  // origin: in the parent
  cl_mem_flags flags = 0;
  bool shared = false;  // host_pointer is shared virtual memory, and the server knows it
  Picture picture;      // of an image
  bool is_image() const { return picture.element_bytes != 0; }
  void* host_pointer = nullptr;               // the program's, with CL_MEM_USE_HOST_PTR
  std::vector<cl_mem_properties> properties;  // as the program gave them, with the 0
  base::Lock lock;                            // for what follows
  uint8_t* shadow = nullptr;                  // where mappings lie, unless at host_pointer
  std::vector<Mapping> mappings;
};

struct Program : Object {
  std::vector<Device*> devices;
  std::string source;
  bool from_source = false;
  std::atomic<uint32_t> kernels{0};
};

struct Argument {
  uint8_t form = 255;  // wire::opencl::ArgumentForm, or unknown
  // What the driver took last, as form and size (kernel.cc). 0: nothing yet.
  std::atomic<uint64_t> taken{0};
};

struct Kernel : Object {
  Program* program = nullptr;
  std::string name;
  std::unique_ptr<Argument[]> arguments;
  uint32_t argument_count = 0;
  // Shapes of groups that the driver took, as numbers (kernel.cc). 0: none.
  std::atomic<uint64_t> shapes[4] = {};
};

struct Event : Object {
  Queue* queue = nullptr;  // null: a user event
  cl_command_type command = 0;
  std::atomic<cl_int> user_status{CL_SUBMITTED};
};

struct Sampler : Object {
  std::vector<cl_sampler_properties> properties;  // as the program gave them, with the 0
};

// The record's type for each kind of handle.
template <typename Record, Kind kOf>
struct RecordIs {
  using Type = Record;
  static constexpr Kind kKind = kOf;
};
// The record of a handle whose functions are those in `table`. Null: there is none that is alive.
template <typename Is, typename Pointer>
typename Is::Type* find_with(Pointer pointer, const void* const* table) {
  const auto* shown = reinterpret_cast<const Handle*>(pointer);
  if (shown == nullptr || shown->table != table || shown->object == nullptr) return nullptr;
  Object* object = shown->object;
  const uint64_t id = object->handle.load(std::memory_order_acquire);
  if (&object->shown != shown || api::id_kind<Kind>(id) != Is::kKind) return nullptr;
  return static_cast<typename Is::Type*>(object);
}

#include "client/opencl/alike/records.inc"
template <>
struct RecordOf<cl_device_id> : RecordIs<Device, Kind::kDevice> {};

template <typename Pointer>
Pointer handle_of(Object* object) {
  return object != nullptr ? reinterpret_cast<Pointer>(&object->shown) : nullptr;
}

// Gives the kernel an address of shared virtual memory (kernel.cc).
cl_int set_shared_argument(Kernel* kernel, cl_uint index, const void* address);

// Another object needs it.
inline void use(Object* object) {
  if (object != nullptr) object->uses.fetch_add(1, std::memory_order_relaxed);
}
// Nobody needs it any more in that way. Ends it if that was the last reference (state.cc).
void unuse(Object* object);
// The program's own references. False: it holds none.
void retain(Object* object);
bool release(Object* object);

}  // namespace tendril::client::opencl
