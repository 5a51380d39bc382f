// SPDX-License-Identifier: Apache-2.0
// Shared virtual memory, charged to the slices of its context. The client gets the address of a
// page inside of what the driver gives, because it maps pages there.
#include "worker/opencl/svm.h"

#include "api/opencl_handlers.gen.h"
#include "worker/opencl/executor.h"
#include "worker/opencl/scope.h"

namespace tendril::worker::opencl {
namespace {

constexpr uint64_t kPageBytes = 4096;
constexpr cl_svm_mem_flags kForwarded = CL_MEM_READ_WRITE | CL_MEM_WRITE_ONLY | CL_MEM_READ_ONLY;

void* pointer_to(uint64_t address) { return reinterpret_cast<void*>(address); }

// A command about such memory: its queue, wait list and event.
struct Command {
  Scope scope;
  cl_command_queue queue;
  const cl_event* wait;
  cl_uint waits;
  uint64_t id;
  cl_event event = nullptr;

  template <typename Request>
  Command(Executor& w, const Request& m) : scope(w), id(m.event) {
    if (id != 0) scope.reserve(Kind::kEvent, id);
    queue = scope.get<cl_command_queue>(Kind::kQueue, m.queue);
    wait = scope.handles<cl_event>(Kind::kEvent, m.wait);
    waits = static_cast<cl_uint>(m.wait.count);
  }
  cl_event* wanted() { return id != 0 ? &event : nullptr; }
  cl_int end(cl_int result) {
    if (result == CL_SUCCESS && id != 0) scope.bind(Kind::kEvent, id, event);
    return result;
  }
};

// An allocation's name among charges. No object has it: ids of objects have a kind.
uint64_t charge_name(uint64_t address) { return address; }

}  // namespace

cl_int handle(Executor& w, const wire::opencl::shared_allocate_request& m,
              wire::opencl::shared_allocate_reply& r) {
  Scope scope(w);
  auto context = scope.get<cl_context>(Kind::kContext, m.context);
  if (!scope.ok()) return scope.error();
  if (w.driver().clSVMAlloc == nullptr || w.driver().clSVMFree == nullptr)
    return CL_INVALID_OPERATION;
  if (m.bytes == 0 || m.bytes > UINT64_MAX - kPageBytes) return CL_INVALID_BUFFER_SIZE;
  if (w.shared().full() || !w.charge_all(context, charge_name(0), m.bytes))
    return CL_MEM_OBJECT_ALLOCATION_FAILURE;
  void* base = w.driver().clSVMAlloc(context, m.flags & kForwarded, m.bytes + kPageBytes, 0);
  const uint64_t at = reinterpret_cast<uint64_t>(base);
  const uint64_t address = (at + kPageBytes - 1) / kPageBytes * kPageBytes;
  if (base == nullptr) {
    w.uncharge(charge_name(0));
    return CL_MEM_OBJECT_ALLOCATION_FAILURE;
  }
  w.rename_charge(charge_name(0), charge_name(address));
  w.shared().add(address, {context, base, m.bytes});
  r.address = address;
  return CL_SUCCESS;
}

cl_int handle(Executor& w, const wire::opencl::shared_free_request& m) {
  const SharedMemories::Allocation* found = w.shared().at(m.address);
  if (found == nullptr) return CL_INVALID_VALUE;
  w.driver().clSVMFree(found->context, found->base);
  w.uncharge(charge_name(m.address));
  w.shared().remove(m.address);
  return CL_SUCCESS;
}

cl_int handle(Executor& w, const wire::opencl::shared_free_after_request& m) {
  Command command(w, m);
  auto** bases = command.scope.scratch<void*>(m.addresses.count + 1);
  if (!command.scope.ok()) return command.scope.error();
  if (w.driver().clEnqueueSVMFree == nullptr || m.addresses.count == 0) return CL_INVALID_VALUE;
  for (uint64_t i = 0; i < m.addresses.count; ++i) {
    const SharedMemories::Allocation* found = w.shared().at(m.addresses[i]);
    if (found == nullptr) return CL_INVALID_VALUE;
    for (uint64_t j = 0; j < i; ++j)
      if (bases[j] == found->base) return CL_INVALID_VALUE;
    bases[i] = found->base;
  }
  const cl_int result =
      w.driver().clEnqueueSVMFree(command.queue, static_cast<cl_uint>(m.addresses.count), bases,
                                  nullptr, nullptr, command.waits, command.wait, command.wanted());
  if (result != CL_SUCCESS) return result;
  for (const uint64_t address : m.addresses) {
    w.uncharge(charge_name(address));
    w.shared().remove(address);
  }
  return command.end(result);
}

cl_int handle(Executor& w, const wire::opencl::shared_copy_request& m) {
  Command command(w, m);
  if (!command.scope.ok()) return command.scope.error();
  if (w.driver().clEnqueueSVMMemcpy == nullptr || !w.shared().has(m.to, m.bytes) ||
      !w.shared().has(m.from, m.bytes))
    return CL_INVALID_VALUE;
  return command.end(w.driver().clEnqueueSVMMemcpy(command.queue, CL_FALSE, pointer_to(m.to),
                                                   pointer_to(m.from), m.bytes, command.waits,
                                                   command.wait, command.wanted()));
}

cl_int handle(Executor& w, const wire::opencl::shared_fill_request& m) {
  Command command(w, m);
  if (!command.scope.ok()) return command.scope.error();
  if (w.driver().clEnqueueSVMMemFill == nullptr || !w.shared().has(m.address, m.bytes) ||
      m.pattern.count == 0 || m.bytes % m.pattern.count != 0 || m.address % m.pattern.count != 0)
    return CL_INVALID_VALUE;
  return command.end(w.driver().clEnqueueSVMMemFill(command.queue, pointer_to(m.address),
                                                    m.pattern.data, m.pattern.count, m.bytes,
                                                    command.waits, command.wait, command.wanted()));
}

cl_int handle(Executor& w, const wire::opencl::kernel_uses_shared_request& m,
              wire::opencl::kernel_uses_shared_reply&) {
  Scope scope(w);
  auto kernel = scope.get<cl_kernel>(Kind::kKernel, m.kernel);
  if (!scope.ok()) return scope.error();
  for (const uint64_t address : m.addresses)
    if (!w.shared().has(address, 1)) return CL_INVALID_VALUE;
  if (w.driver().clSetKernelExecInfo == nullptr) return CL_INVALID_OPERATION;
  return w.driver().clSetKernelExecInfo(kernel, CL_KERNEL_EXEC_INFO_SVM_PTRS,
                                        m.addresses.count * sizeof(void*),
                                        scope.resolve_all(m.addresses));
}

}  // namespace tendril::worker::opencl
