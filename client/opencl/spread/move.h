// SPDX-License-Identifier: Apache-2.0
// Brings the content of memory objects to the servers that use it. What moves is read from a server
// that has it and written to the one that wants it, through the client. Nobody waits meanwhile. Its
// users at the other server wait for an event there. With the context's lock held.
#pragma once

#include "client/opencl/spread/object.h"

namespace tendril::client::opencl::spread {

// What a command does with a part of a memory object. It overwrites all bytes, or changes some.
enum class Access : uint8_t { kRead, kChange, kOverwrite };
struct Use {
  Memory* memory;
  uint64_t offset, bytes;  // clipped to the object
  Access access;
};
constexpr uint64_t kWhole = ~uint64_t{0};

// The object exists at the member after this. A round trip if it did not.
cl_int make_at(Memory* memory, uint32_t member);
// What a command waits for. An arrival may be over and forgotten before the command is sent, so its
// event is kept.
struct Waits {
  std::vector<cl_event> events;
  std::vector<std::shared_ptr<Arrival>> arrivals;
};
// The newest content is there once what was added to `waits` is over.
cl_int bring(const Use& use, uint32_t member, Waits* waits);
// The command that `event` is of wrote it.
void written(const Use& use, const Queue& queue, cl_event event);
// The object that has the memory of this one.
Memory* root_of(Memory* memory);

// `then` runs when the ordinary event is over, on a thread that calls no functions of the
// program's. Its queue is flushed first. False: the system has no thread to give.
bool when_over(cl_event event, void (*then)(void* argument, int32_t status), void* argument);
// A user event is over, as the one that it stands for.
void set_as(cl_event user_event, cl_int status);

}  // namespace tendril::client::opencl::spread
