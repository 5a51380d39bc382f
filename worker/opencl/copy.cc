// SPDX-License-Identifier: Apache-2.0
// Copies between the client's memory and the device. They are commands of the driver that never
// block: data wait in memory of this process until the command, or the client, has them.
#include <algorithm>
#include <cstring>

#include "api/opencl_handlers.gen.h"
#include "worker/opencl/copy.h"
#include "worker/opencl/executor.h"
#include "worker/opencl/in_place.h"
#include "worker/opencl/incoming.h"
#include "worker/opencl/scope.h"

namespace tendril::worker::opencl {
namespace {

using wire::opencl::Form;
using wire::opencl::Shape;

// Bytes of an element of the image; 0: it is none.
size_t element_bytes(const gpu::OpenclDriver& driver, cl_mem memory) {
  size_t bytes = 0;
  if (driver.clGetImageInfo == nullptr ||
      driver.clGetImageInfo(memory, CL_IMAGE_ELEMENT_SIZE, sizeof bytes, &bytes, nullptr) !=
          CL_SUCCESS)
    return 0;
  return bytes;
}

// Whether a part of this shape is exactly `bytes` long when it lies without gaps. The driver
// touches so many of ours.
bool fits(Executor& w, cl_mem memory, Form form, const Shape& shape, uint64_t bytes) {
  const gpu::OpenclDriver& driver = w.driver();
  if (form == Form::kShared)
    return driver.clEnqueueSVMMemcpy != nullptr && shape.extent[0] == bytes && bytes != 0 &&
           w.shared().has(shape.origin[0], bytes);
  if (form == Form::kLinear) return shape.extent[0] == bytes && bytes != 0;
  uint64_t product = form == Form::kImage ? element_bytes(driver, memory) : 1;
  for (const uint64_t extent : shape.extent)
    if (__builtin_mul_overflow(product, extent, &product)) return false;
  return product == bytes && bytes != 0;
}

struct Places {
  size_t origin[3], extent[3], zero[3] = {0, 0, 0};
  explicit Places(const Shape& shape) {
    std::copy_n(shape.origin, 3, origin);
    std::copy_n(shape.extent, 3, extent);
  }
};

cl_int read_part(const gpu::OpenclDriver& driver, const Command& command, Form form,
                 const Shape& shape, uint8_t* into, cl_event* event) {
  const Places at(shape);
  if (form == Form::kShared)
    return driver.clEnqueueSVMMemcpy(command.queue, CL_FALSE, into,
                                     reinterpret_cast<const void*>(at.origin[0]), at.extent[0],
                                     command.waits, command.wait, event);
  if (form == Form::kImage)
    return driver.clEnqueueReadImage(command.queue, command.memory, CL_FALSE, at.origin, at.extent,
                                     0, 0, into, command.waits, command.wait, event);
  return driver.clEnqueueReadBufferRect(command.queue, command.memory, CL_FALSE, at.origin, at.zero,
                                        at.extent, shape.row, shape.slice, at.extent[0],
                                        at.extent[0] * at.extent[1], into, command.waits,
                                        command.wait, event);
}

cl_int write_part(const gpu::OpenclDriver& driver, const Command& command, Form form,
                  const Shape& shape, const uint8_t* from, cl_event* event) {
  const Places at(shape);
  if (form == Form::kShared)
    return driver.clEnqueueSVMMemcpy(command.queue, CL_FALSE, reinterpret_cast<void*>(at.origin[0]),
                                     from, at.extent[0], command.waits, command.wait, event);
  if (form == Form::kImage)
    return driver.clEnqueueWriteImage(command.queue, command.memory, CL_FALSE, at.origin, at.extent,
                                      0, 0, from, command.waits, command.wait, event);
  return driver.clEnqueueWriteBufferRect(command.queue, command.memory, CL_FALSE, at.origin,
                                         at.zero, at.extent, shape.row, shape.slice, at.extent[0],
                                         at.extent[0] * at.extent[1], from, command.waits,
                                         command.wait, event);
}

// The handle of a command's event goes to the client's id, if there is one, and else nowhere.
void settle(Executor& w, Scope& scope, uint64_t id, cl_event event) {
  if (id != 0)
    scope.bind(Kind::kEvent, id, event);
  else
    w.driver().clReleaseEvent(event);
}

template <typename Request>
Command command_of(Scope& scope, const Request& m) {
  Command command;
  if (m.event != 0) scope.reserve(Kind::kEvent, m.event);
  command.queue = scope.get<cl_command_queue>(Kind::kQueue, m.queue);
  if (m.form != Form::kShared) command.memory = scope.get<cl_mem>(Kind::kMemory, m.memory);
  command.wait = scope.handles<cl_event>(Kind::kEvent, m.wait);
  command.waits = static_cast<cl_uint>(m.wait.count);
  return command;
}

void deliver(session::Service* service, uint64_t address, const uint8_t* data, uint64_t bytes) {
  for (uint64_t at = 0; at < bytes; at += wire::kReplyInlineMax) {
    const auto part = static_cast<uint32_t>(std::min<uint64_t>(wire::kReplyInlineMax, bytes - at));
    service->deliver(address + at, data + at, part);
  }
}

// The client awaits a command that failed. It gets this result.
cl_int result_of(cl_int status) { return status < 0 ? status : CL_SUCCESS; }

}  // namespace

cl_int handle(Executor& w, const wire::opencl::read_now_request& m, wire::opencl::read_now_reply&) {
  Scope scope(w);
  const Command command = command_of(scope, m);
  if (!scope.ok()) return scope.error();
  if (m.bytes > wire::kReplyInlineMax || !fits(w, command.memory, m.form, m.shape, m.bytes))
    return CL_INVALID_VALUE;
  const Room room = w.rooms().take(m.bytes);
  if (room == nullptr) return CL_OUT_OF_HOST_MEMORY;
  cl_event event = nullptr;
  const cl_int result = m.form == Form::kLinear
                            ? w.driver().clEnqueueReadBuffer(
                                  command.queue, command.memory, CL_FALSE, m.shape.origin[0],
                                  m.bytes, room.get(), command.waits, command.wait, &event)
                            : read_part(w.driver(), command, m.form, m.shape, room.get(), &event);
  if (result != CL_SUCCESS) return result;
  w.flush(m.queue, command.queue);
  QueueState& state = *w.queue(m.queue);
  const cl_int owed = state.owed;
  state.owed = CL_SUCCESS;
  w.replies().take_over();
  session::Service* const service = &w.service();
  const uint32_t reply_id = w.call().reply_id;
  const uint64_t bytes = m.bytes;
  JobRef job = w.jobs().add(
      {event}, {},
      [service, reply_id, room, bytes, owed](cl_int status) {
        const cl_int told = owed != CL_SUCCESS ? owed : result_of(status);
        if (told != CL_SUCCESS) return service->reply(reply_id, told, nullptr, 0);
        std::memset(room.get() + bytes, 0, wire::padded(bytes) - bytes);
        service->reply2(reply_id, CL_SUCCESS, &bytes, sizeof bytes, room.get(),
                        static_cast<uint32_t>(wire::padded(bytes)));
      },
      false);
  if (m.event != 0) w.hold_event(m.event, std::move(job));
  settle(w, scope, m.event, event);
  return CL_SUCCESS;
}

namespace {

// The driver has everything at once, in parts, so nothing that comes later gets in between. A part
// is sent when it is there, while the driver copies the next one.
cl_int read_in_parts(Executor& w, const wire::opencl::read_request& m, const Command& command,
                     std::vector<JobRef>* jobs, cl_event* last) {
  session::Service* const service = &w.service();
  for (uint64_t at = 0; at < m.bytes; at += kPartBytes) {
    const uint64_t bytes = std::min(kPartBytes, m.bytes - at), transfer = m.transfer;
    const bool ends = at + bytes == m.bytes;
    const Room room = w.rooms().take(bytes);
    if (room == nullptr) return CL_OUT_OF_HOST_MEMORY;
    cl_event event = nullptr;
    const cl_int result = w.driver().clEnqueueReadBuffer(command.queue, command.memory, CL_FALSE,
                                                         m.shape.origin[0] + at, bytes, room.get(),
                                                         command.waits, command.wait, &event);
    if (result != CL_SUCCESS) return result;
    jobs->push_back(w.jobs().add(
        {event}, jobs->empty() ? std::vector<JobRef>() : std::vector<JobRef>{jobs->back()},
        [service, transfer, room, at, bytes, ends](cl_int) {
          service->send_bulk(transfer, at, room.get(), bytes);
          if (ends) service->transfer_sent(transfer);
        },
        true));
    if (*last != nullptr) w.driver().clReleaseEvent(*last);
    *last = event;
  }
  return CL_SUCCESS;
}

cl_int read_whole(Executor& w, const wire::opencl::read_request& m, const Command& command,
                  std::vector<JobRef>* jobs, cl_event* last) {
  const Room room = w.rooms().take(m.bytes);
  if (room == nullptr) return CL_OUT_OF_HOST_MEMORY;
  const cl_int result = m.form == Form::kLinear
                            ? w.driver().clEnqueueReadBuffer(
                                  command.queue, command.memory, CL_FALSE, m.shape.origin[0],
                                  m.bytes, room.get(), command.waits, command.wait, last)
                            : read_part(w.driver(), command, m.form, m.shape, room.get(), last);
  if (result != CL_SUCCESS) return result;
  session::Service* const service = &w.service();
  const uint64_t address = m.address, bytes = m.bytes, transfer = m.transfer;
  jobs->push_back(w.jobs().add(
      {*last}, {},
      [service, address, transfer, bytes, room](cl_int) {
        if (transfer == 0) return deliver(service, address, room.get(), bytes);
        service->send_bulk(transfer, 0, room.get(), bytes);
        service->transfer_sent(transfer);
      },
      transfer != 0 || bytes > wire::kReplyInlineMax));
  return CL_SUCCESS;
}

}  // namespace

cl_int handle(Executor& w, const wire::opencl::read_request& m) {
  Scope scope(w);
  const Command command = command_of(scope, m);
  const auto give_up = [&](cl_int error) {
    if (m.transfer != 0) w.service().transfer_failed(m.transfer, error);
    return error;
  };
  if (!scope.ok()) return give_up(scope.error());
  if (!fits(w, command.memory, m.form, m.shape, m.bytes)) return give_up(CL_INVALID_VALUE);
  std::vector<JobRef> jobs;
  cl_event last = nullptr;
  // Parts of a queue out of order end in any order, and no event is that of all of them.
  const bool parts = m.form == Form::kLinear && m.transfer != 0 && w.queue(m.queue)->in_order;
  JobRef in_place;
  cl_int result = CL_SUCCESS;
  if (read_in_place(w, m, command, &in_place, &last))
    jobs.push_back(std::move(in_place));
  else
    result = parts ? read_in_parts(w, m, command, &jobs, &last)
                   : read_whole(w, m, command, &jobs, &last);
  if (result != CL_SUCCESS) {
    if (last != nullptr) w.driver().clReleaseEvent(last);
    return give_up(result);
  }
  w.begin(m.queue, command.queue);
  std::vector<JobRef>& reads = w.queue(m.queue)->reads;
  reads.erase(std::remove_if(reads.begin(), reads.end(),
                             [](const JobRef& job) { return job->finished.load(); }),
              reads.end());
  reads.push_back(jobs.back());
  if (m.event != 0) w.hold_event(m.event, jobs.back());
  settle(w, scope, m.event, last);
  return CL_SUCCESS;
}

namespace {

// What came is given to the driver where it lies, piece by piece, so it is copied once. If the
// driver is slow, for example because the queue waits for the program, pieces are copied to make
// room for others. `last`: the event of the last piece.
cl_int write_pieces(Executor& w, const wire::opencl::write_request& m, const Command& command,
                    Incoming* data, cl_event* last) {
  const gpu::OpenclDriver& driver = w.driver();
  cl_int result = CL_SUCCESS;
  const bool all = data->each_piece([&](const session::Piece& piece) {
    if (result != CL_SUCCESS) return false;
    const bool holds = w.may_hold_piece();
    const Room room = holds ? nullptr : w.rooms().take(piece.bytes);
    if (room != nullptr) std::memcpy(room.get(), piece.data, piece.bytes);
    const uint8_t* const from = holds ? piece.data : room.get();
    cl_event event = nullptr;
    result = from != nullptr
                 ? driver.clEnqueueWriteBuffer(command.queue, command.memory, CL_FALSE,
                                               m.shape.origin[0] + piece.offset, piece.bytes, from,
                                               command.waits, command.wait, &event)
                 : CL_OUT_OF_HOST_MEMORY;
    if (result != CL_SUCCESS) return false;
    w.begin(m.queue, command.queue);
    if (*last != nullptr) driver.clReleaseEvent(*last);
    *last = event;
    if (holds) {
      w.hold_piece(event, piece);
    } else {
      driver.clRetainEvent(event);
      w.keep(event, room);
    }
    return holds;
  });
  return result == CL_SUCCESS && !all ? CL_OUT_OF_HOST_MEMORY : result;
}

cl_int write_whole(Executor& w, const wire::opencl::write_request& m, const Command& command,
                   Incoming* data, cl_event* event) {
  const uint8_t* const all = data->take_to_keep();
  if (all == nullptr) return CL_OUT_OF_HOST_MEMORY;
  const cl_int result = m.form == Form::kLinear
                            ? w.driver().clEnqueueWriteBuffer(
                                  command.queue, command.memory, CL_FALSE, m.shape.origin[0],
                                  m.bytes, all, command.waits, command.wait, event)
                            : write_part(w.driver(), command, m.form, m.shape, all, event);
  if (result != CL_SUCCESS) return result;
  w.begin(m.queue, command.queue);
  w.driver().clRetainEvent(*event);
  data->keep(*event);
  return result;
}

}  // namespace

cl_int handle(Executor& w, const wire::opencl::write_request& m) {
  Scope scope(w);
  Incoming data(w, m.transfer, m.bytes, m.data);
  const Command command = command_of(scope, m);
  if (!scope.ok()) return scope.error();
  if (!fits(w, command.memory, m.form, m.shape, m.bytes)) return CL_INVALID_VALUE;
  const bool parts = m.form == Form::kLinear && m.transfer != 0 && w.queue(m.queue)->in_order;
  cl_event event = nullptr;
  cl_int result = CL_SUCCESS;
  if (!write_in_place(w, m, command, &data, &event, &result))
    result = parts ? write_pieces(w, m, command, &data, &event)
                   : write_whole(w, m, command, &data, &event);
  if (result == CL_SUCCESS)
    settle(w, scope, m.event, event);
  else if (event != nullptr)
    w.driver().clReleaseEvent(event);
  return result;
}

}  // namespace tendril::worker::opencl
