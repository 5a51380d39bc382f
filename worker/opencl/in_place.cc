// SPDX-License-Identifier: Apache-2.0
// See in_place.h.
#include "worker/opencl/in_place.h"

#include "base/clock.h"

namespace tendril::worker::opencl {
namespace {

// Mapping costs about as much as copying this.
constexpr uint64_t kLeastBytes = 1u << 20;
// A queue that has nothing to do maps within this time.
constexpr uint32_t kLookUs = 100;

bool is_large(const Executor& w, const QueueState& queue, wire::opencl::Form form,
              uint64_t transfer, uint64_t bytes) {
  return queue.in_place && !w.may_block(queue) && form == wire::opencl::Form::kLinear &&
         transfer != 0 && bytes >= kLeastBytes;
}

struct Mapped {
  uint8_t* at = nullptr;  // null: the driver refuses
  cl_event event = nullptr;
};
Mapped map(const gpu::OpenclDriver& driver, const Command& command, cl_map_flags flags,
           uint64_t offset, uint64_t bytes) {
  Mapped mapped;
  cl_int error = CL_SUCCESS;
  void* at = driver.clEnqueueMapBuffer(command.queue, command.memory, CL_FALSE, flags, offset,
                                       bytes, command.waits, command.wait, &mapped.event, &error);
  if (error == CL_SUCCESS) mapped.at = static_cast<uint8_t*>(at);
  return mapped;
}

bool comes_soon(const Jobs& jobs, cl_event event) {
  base::Spin spin(kLookUs);
  while (jobs.status_of(event) > CL_COMPLETE)
    if (!spin.again()) return false;
  return true;
}

}  // namespace

// The driver's times of a mapping are not those of a copy, so a program that asks for them gets a
// copy. In a queue out of order nothing keeps later commands behind the mapping.
bool copies_in_place(const gpu::OpenclDriver& driver, cl_device_id device, bool in_order,
                     cl_command_queue_properties properties) {
  cl_device_type type = 0;
  return in_order && (properties & CL_QUEUE_PROFILING_ENABLE) == 0 &&
         driver.clCreateUserEvent != nullptr && driver.clSetUserEventStatus != nullptr &&
         driver.clGetDeviceInfo(device, CL_DEVICE_TYPE, sizeof type, &type, nullptr) ==
             CL_SUCCESS &&
         (type & CL_DEVICE_TYPE_CPU) != 0;
}

bool write_in_place(Executor& w, const wire::opencl::write_request& m, const Command& command,
                    Incoming* data, cl_event* event, cl_int* result) {
  if (!is_large(w, *w.queue(m.queue), m.form, m.transfer, m.bytes)) return false;
  const gpu::OpenclDriver& driver = w.driver();
  const Mapped mapped =
      map(driver, command, CL_MAP_WRITE_INVALIDATE_REGION, m.shape.origin[0], m.bytes);
  if (mapped.at == nullptr) return false;
  driver.clFlush(command.queue);
  const bool soon = comes_soon(w.jobs(), mapped.event);
  const bool is_there = soon && w.jobs().status_of(mapped.event) == CL_COMPLETE;
  const bool all = is_there && data->receive_into(mapped.at);
  *result = driver.clEnqueueUnmapMemObject(command.queue, command.memory, mapped.at, 0, nullptr,
                                           is_there ? event : nullptr);
  driver.clFlush(command.queue);
  driver.clReleaseEvent(mapped.event);
  if (is_there && !all) *result = CL_OUT_OF_HOST_MEMORY;  // the session is over
  return is_there;
}

bool read_in_place(Executor& w, const wire::opencl::read_request& m, const Command& command,
                   JobRef* job, cl_event* event) {
  const QueueState& queue = *w.queue(m.queue);
  if (m.awaited == 0 || !is_large(w, queue, m.form, m.transfer, m.bytes) ||
      !w.gate().is_free(queue.slot))
    return false;
  const gpu::OpenclDriver& driver = w.driver();
  const Mapped mapped = map(driver, command, CL_MAP_READ, m.shape.origin[0], m.bytes);
  if (mapped.at == nullptr) return false;
  // Some drivers take what is enqueued in batches, and tell no event of a batch before its last
  // wait. So what waits for the data to be sent comes only when the mapping is there.
  driver.clFlush(command.queue);
  const bool soon = comes_soon(w.jobs(), mapped.event);
  if (!soon || w.jobs().status_of(mapped.event) != CL_COMPLETE) {
    driver.clEnqueueUnmapMemObject(command.queue, command.memory, mapped.at, 0, nullptr, nullptr);
    driver.clReleaseEvent(mapped.event);
    return false;
  }
  cl_int error = CL_SUCCESS;
  cl_event sent = driver.clCreateUserEvent(queue.context, &error);
  const cl_uint waits = error == CL_SUCCESS ? 1 : 0;
  const cl_int unmapped =
      driver.clEnqueueUnmapMemObject(command.queue, command.memory, mapped.at, waits,
                                     waits != 0 ? &sent : nullptr, waits != 0 ? event : nullptr);
  const bool goes = waits != 0 && unmapped == CL_SUCCESS;
  if (goes)
    *job = w.jobs().add(
        {mapped.event}, {},
        [service = &w.service(), &driver, sent, at = mapped.at, transfer = m.transfer,
         bytes = m.bytes, failure = queue.failure](cl_int status) {
          if (status == CL_COMPLETE) {
            service->send_bulk(transfer, 0, at, bytes);
            service->transfer_sent(transfer);
          } else {
            failure->store(status);
            service->transfer_failed(transfer, status);
          }
          driver.clSetUserEventStatus(sent, status);
          driver.clReleaseEvent(sent);
        },
        true);
  else if (waits != 0)
    driver.clReleaseEvent(sent);
  driver.clReleaseEvent(mapped.event);
  return goes;
}

}  // namespace tendril::worker::opencl
