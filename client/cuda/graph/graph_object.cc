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

CUresult ask(const Device* d, GraphMemoryAction action, CUgraphMem_attribute attr,
             uint64_t* value) {
  wire::cuda::graph_memory_request m;
  wire::cuda::graph_memory_reply r;
  m.action = action;
  m.slot = d->slot;
  m.attribute = static_cast<uint32_t>(attr);
  const CUresult result = d->session->call(static_cast<const Context*>(nullptr), m, r);
  *value = r.value;
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
  Process* p = process();
  if (p == nullptr) return CUDA_ERROR_NOT_INITIALIZED;
  if (object_out == nullptr || destroy == nullptr || initialRefcount == 0 ||
      initialRefcount > INT32_MAX)
    return CUDA_ERROR_INVALID_VALUE;
  if (flags != CU_USER_OBJECT_NO_DESTRUCTOR_SYNC || p->sessions.empty())
    return CUDA_ERROR_INVALID_VALUE;
  const Context* c = current_context();
  Session* session = c != nullptr ? c->session : p->sessions.front();
  Object* object = create_object(Kind::kUserObject, session, nullptr);
  if (object == nullptr) return CUDA_ERROR_OUT_OF_MEMORY;
  wire::cuda::user_object_create_request m;
  wire::cuda::user_object_create_reply r;
  m.object = object->wire_id;
  m.references = initialRefcount;
  m.flags = flags;
  m.token = add_host_function(session, destroy, ptr);
  if (m.token != 0) destroy_after(m.token, object);
  const CUresult result = m.token != 0 ? session->call(c, m, r) : CUDA_ERROR_OPERATING_SYSTEM;
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
  wire::cuda::graph_dot_request m;
  wire::cuda::graph_dot_reply r;
  m.graph = graph->wire_id;
  m.flags = flags;
  TENDRIL_TRY(graph->session->call(static_cast<const Context*>(nullptr), m, r));
  const int file = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
  if (file < 0) return CUDA_ERROR_OPERATING_SYSTEM;
  uint64_t done = 0;
  while (done < r.text.count) {
    const ssize_t n = write(file, r.text.data + done, r.text.count - done);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) break;
    done += static_cast<uint64_t>(n);
  }
  close(file);
  return done == r.text.count ? CUDA_SUCCESS : CUDA_ERROR_OPERATING_SYSTEM;
}

}  // namespace tendril::client::cuda
