// SPDX-License-Identifier: Apache-2.0
// What belongs to graphs beside nodes: user objects (their destructors run here), the memory of
// graphs on a device, and pictures.
#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

#include "client/cuda/bodies.h"
#include "client/cuda/stream/callback.h"

namespace tendril::client::cuda {
namespace {

using wire::cuda::GraphMemoryAction;

CUresult ask(const Device* device, GraphMemoryAction action, CUgraphMem_attribute attr,
             uint64_t* value) {
  TENDRIL_TRY(device->session->begin());
  wire::cuda::graph_memory_request request;
  wire::cuda::graph_memory_reply reply;
  request.action = action;
  request.slot = device->slot;
  request.attribute = static_cast<uint32_t>(attr);
  const CUresult result =
      device->session->call(static_cast<const Context*>(nullptr), request, reply);
  *value = reply.value;
  return result;
}

CUresult memory_attribute(CUdevice device, CUgraphMem_attribute attr, void* value, bool reset) {
  if (process() == nullptr) return CUDA_ERROR_NOT_INITIALIZED;
  const Device* d = device_of(device);
  if (d == nullptr) return CUDA_ERROR_INVALID_DEVICE;
  if (value == nullptr || attr < CU_GRAPH_MEM_ATTR_USED_MEM_CURRENT ||
      attr > CU_GRAPH_MEM_ATTR_RESERVED_MEM_HIGH) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  if (reset && *static_cast<cuuint64_t*>(value) != 0) return CUDA_ERROR_INVALID_VALUE;
  uint64_t got = 0;
  TENDRIL_TRY(ask(d, reset ? GraphMemoryAction::kReset : GraphMemoryAction::kGet, attr, &got));
  if (!reset) *static_cast<cuuint64_t*>(value) = got;
  return CUDA_SUCCESS;
}

}  // namespace

CUresult cuUserObjectCreate(CUuserObject* object_out, void* ptr, CUhostFn destroy,
                            unsigned int initialRefcount, unsigned int flags) {
  Process* program = process();
  if (program == nullptr) return CUDA_ERROR_NOT_INITIALIZED;
  if (object_out == nullptr || destroy == nullptr || initialRefcount == 0 ||
      initialRefcount > INT32_MAX)
    return CUDA_ERROR_INVALID_VALUE;
  if (flags != CU_USER_OBJECT_NO_DESTRUCTOR_SYNC) return CUDA_ERROR_INVALID_VALUE;
  const Context* context = current_context();
  Session* session = any_session();
  if (session == nullptr) return Session::lost_result();
  Object* object = create_object(Kind::kUserObject, session, nullptr);
  if (object == nullptr) return CUDA_ERROR_OUT_OF_MEMORY;
  wire::cuda::user_object_create_request request;
  wire::cuda::user_object_create_reply reply;
  request.object = object->wire_id;
  request.references = initialRefcount;
  request.flags = flags;
  request.token = add_host_function(session, destroy, ptr);
  if (request.token != 0) destroy_after(request.token, object);
  const CUresult result =
      request.token != 0 ? session->call(context, request, reply) : CUDA_ERROR_OPERATING_SYSTEM;
  if (result == CUDA_SUCCESS)
    *object_out = handle_cast<CUuserObject>(object);
  else
    destroy_object(Kind::kUserObject, object);
  return result;
}

CUresult cuDeviceGetGraphMemAttribute(CUdevice device, CUgraphMem_attribute attr, void* value) {
  return memory_attribute(device, attr, value, false);
}
CUresult cuDeviceSetGraphMemAttribute(CUdevice device, CUgraphMem_attribute attr, void* value) {
  return memory_attribute(device, attr, value, true);
}

CUresult cuDeviceGraphMemTrim(CUdevice device) {
  if (process() == nullptr) return CUDA_ERROR_NOT_INITIALIZED;
  const Device* d = device_of(device);
  uint64_t unused = 0;
  return d != nullptr
             ? ask(d, GraphMemoryAction::kTrim, CU_GRAPH_MEM_ATTR_USED_MEM_CURRENT, &unused)
             : CUDA_ERROR_INVALID_DEVICE;
}

CUresult cuGraphDebugDotPrint(CUgraph hGraph, const char* path, unsigned int flags) {
  if (process() == nullptr) return CUDA_ERROR_NOT_INITIALIZED;
  const Object* graph = find_object(Kind::kGraph, handle_value(hGraph));
  if (graph == nullptr || path == nullptr)
    return graph == nullptr ? CUDA_ERROR_INVALID_HANDLE : CUDA_ERROR_INVALID_VALUE;
  wire::cuda::graph_dot_request request;
  wire::cuda::graph_dot_reply reply;
  request.graph = graph->wire_id;
  request.flags = flags;
  TENDRIL_TRY(graph->session->call(static_cast<const Context*>(nullptr), request, reply));
  const int file = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
  if (file < 0) return CUDA_ERROR_OPERATING_SYSTEM;
  uint64_t done = 0;
  while (done < reply.text.count) {
    const ssize_t n = write(file, reply.text.data + done, reply.text.count - done);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) break;
    done += static_cast<uint64_t>(n);
  }
  close(file);
  return done == reply.text.count ? CUDA_SUCCESS : CUDA_ERROR_OPERATING_SYSTEM;
}

}  // namespace tendril::client::cuda
