// SPDX-License-Identifier: Apache-2.0
// Buffers, charged to the slices of their context.
#include "worker/opencl/memory.h"
#include "api/opencl_handlers.gen.h"
#include "worker/opencl/executor.h"
#include "worker/opencl/incoming.h"
#include "worker/opencl/scope.h"

namespace tendril::worker::opencl {
namespace {

// A buffer in memory that is charged already.
cl_int make_in_shared(Executor& w, Scope& scope, const wire::opencl::buffer_create_request& m,
                      cl_context context) {
  if (!w.shared().has(m.shared, m.size)) return CL_INVALID_HOST_PTR;
  const cl_mem_flags flags = (m.flags & kForwardedFlags & ~CL_MEM_ALLOC_HOST_PTR);
  cl_int result = CL_SUCCESS;
  cl_mem memory = w.driver().clCreateBuffer(context, flags | CL_MEM_USE_HOST_PTR, m.size,
                                            reinterpret_cast<void*>(m.shared), &result);
  if (result == CL_SUCCESS) scope.bind(Kind::kMemory, m.memory, memory);
  return result;
}

}  // namespace

cl_int handle(Executor& w, const wire::opencl::pipe_create_request& m,
              wire::opencl::pipe_create_reply& r) {
  Scope scope(w);
  scope.reserve(Kind::kMemory, m.memory);
  auto context = scope.get<cl_context>(Kind::kContext, m.context);
  if (!scope.ok()) return scope.error();
  if (w.driver().clCreatePipe == nullptr) return CL_INVALID_OPERATION;
  const uint64_t bytes = uint64_t{m.packet_bytes} * m.packets;
  if (!w.charge_all(context, m.memory, bytes)) return CL_MEM_OBJECT_ALLOCATION_FAILURE;
  cl_int result = CL_SUCCESS;
  cl_mem memory =
      w.driver().clCreatePipe(context, m.flags & (CL_MEM_READ_WRITE | CL_MEM_HOST_NO_ACCESS),
                              m.packet_bytes, m.packets, nullptr, &result);
  if (result != CL_SUCCESS) {
    w.uncharge(m.memory);
    return result;
  }
  r.size = bytes;
  scope.bind(Kind::kMemory, m.memory, memory);
  return result;
}

cl_int handle(Executor& w, const wire::opencl::buffer_create_request& m,
              wire::opencl::buffer_create_reply&) {
  Scope scope(w);
  Incoming content(w, m.transfer, m.has_content != 0 ? m.size : 0, m.content);
  scope.reserve(Kind::kMemory, m.memory);
  auto context = scope.get<cl_context>(Kind::kContext, m.context);
  if (!scope.ok()) return scope.error();
  if (m.size == 0) return CL_INVALID_BUFFER_SIZE;
  if (m.shared != 0) return make_in_shared(w, scope, m, context);
  if (!w.charge_all(context, m.memory, m.size)) return CL_MEM_OBJECT_ALLOCATION_FAILURE;
  const uint8_t* data = content.take();
  if (m.has_content != 0 && data == nullptr) {
    w.uncharge(m.memory);
    return CL_OUT_OF_HOST_MEMORY;
  }
  cl_int result = CL_SUCCESS;
  const cl_mem_flags flags =
      (m.flags & kForwardedFlags) | (data != nullptr ? CL_MEM_COPY_HOST_PTR : 0);
  cl_mem memory =
      w.driver().clCreateBuffer(context, flags, m.size, const_cast<uint8_t*>(data), &result);
  if (result != CL_SUCCESS) {
    w.uncharge(m.memory);
    return result;
  }
  scope.bind(Kind::kMemory, m.memory, memory);
  return result;
}

cl_int handle(Executor& w, const wire::opencl::sub_buffer_create_request& m,
              wire::opencl::sub_buffer_create_reply&) {
  Scope scope(w);
  scope.reserve(Kind::kMemory, m.memory);
  auto parent = scope.get<cl_mem>(Kind::kMemory, m.parent);
  if (!scope.ok()) return scope.error();
  const cl_buffer_region region = {m.origin, m.size};
  cl_int result = CL_SUCCESS;
  cl_mem memory =
      w.driver().clCreateSubBuffer(parent, m.flags & kForwardedFlags & ~CL_MEM_ALLOC_HOST_PTR,
                                   CL_BUFFER_CREATE_TYPE_REGION, &region, &result);
  if (result == CL_SUCCESS) scope.bind(Kind::kMemory, m.memory, memory);
  return result;
}

namespace {

struct Watch {
  session::Service* service;
  uint64_t token;
};

// One of the driver's threads calls it.
void ended(cl_mem, void* watch) {
  const std::unique_ptr<Watch> mine(static_cast<Watch*>(watch));
  const wire::opencl::News news = {mine->token, CL_COMPLETE, 0};
  mine->service->push(wire::FrameKind::kNews, 0, &news, sizeof news);
}

}  // namespace

cl_int handle(Executor& w, const wire::opencl::memory_watch_request& m) {
  Scope scope(w);
  auto memory = scope.get<cl_mem>(Kind::kMemory, m.memory);
  if (!scope.ok()) return scope.error();
  auto watch = std::make_unique<Watch>(Watch{&w.service(), m.token});
  const cl_int result = w.driver().clSetMemObjectDestructorCallback(memory, &ended, watch.get());
  if (result == CL_SUCCESS) static_cast<void>(watch.release());
  return result;
}

}  // namespace tendril::worker::opencl
