// SPDX-License-Identifier: Apache-2.0
// Memory and events shared between processes that use one GPU server: handles, descriptors
// (export_handle.h), and what this process has open of others. The worker opens and closes. Only
// the server knows what a handle names, and whether it still does.
#include <unistd.h>

#include <map>

#include "client/common/log.h"
#include "client/cuda/copy/copy.h"
#include "client/cuda/memory/export_handle.h"
#include "client/cuda/memory/memory.h"
#include "client/cuda/stream/capture.h"

namespace tendril::client::cuda {

// How often memory of other processes is open here, by its base. A driver counts too, and gives the
// same address each time.
struct OpenImports {
  struct One {
    uint32_t count = 0;
    uint64_t opened = 0;  // what the driver knows it by
  };
  base::Lock lock;
  std::map<uint64_t, One> all;
};

namespace {

constexpr int kTriesMax = 8;

CUresult explain(const char* call, CUresult result) {
  if (result != CUDA_ERROR_NOT_PERMITTED) return result;
  log_once(LogLevel::kError,
           "%s: the handle is of another lease, and the GPU server keeps leases apart; start both "
           "processes under one "
           "'tendril run'",
           call);
  return result;
}

CUresult close_at(Context* context, uint64_t address) {
  wire::cuda::ipc_close_memory_request request;
  wire::cuda::ipc_close_memory_reply reply;
  request.address = address;
  return context->session->call(context, request, reply);
}

// An allocation that shares its page has a handle of the page. Then `more` says where it begins,
// counted from one.
void name_part(const Range& range, uint64_t page, ExportHandle* handle) {
  handle->more = range.base - page + 1;
  handle->bytes = range.bytes;
}
// What a handle means in the memory that the server has opened for it. False: it lies.
bool find_part(const ExportHandle& handle, wire::cuda::ipc_open_memory_reply* reply) {
  if (handle.more == 0) return true;
  const uint64_t offset = handle.more - 1;
  if (offset >= reply->bytes || handle.bytes > reply->bytes - offset) return false;
  reply->base += offset;
  reply->bytes = handle.bytes;
  return true;
}

// Puts opened memory into the map of ranges. *collides: something else has its addresses here.
void note_opened(Context* context, const wire::cuda::ipc_open_memory_reply& reply, bool* collides) {
  const base::Locked held(process()->open_imports->lock);
  Range known;
  const bool again = process()->ranges.find(reply.base, &known) && known.base == reply.base &&
                     known.session == context->session && known.kind == RangeKind::kImported;
  *collides = false;
  if (!again)
    register_device_range(context, reply.base, reply.bytes, RangeKind::kImported, 0, collides);
  if (*collides) return;
  OpenImports::One& open = process()->open_imports->all[reply.base];
  open = {again ? open.count + 1 : 1, reply.address};
}

CUresult open_memory(Context* context, const ExportHandle& handle, unsigned flags,
                     uint64_t* address) {
  uint64_t refused[kTriesMax], refused_bytes[kTriesMax];
  int refusals = 0;
  CUresult result = CUDA_SUCCESS;
  for (;;) {
    wire::cuda::ipc_open_memory_request request;
    wire::cuda::ipc_open_memory_reply reply;
    request.token = {handle.token, sizeof handle.token};
    request.flags = flags;
    result = context->session->call(context, request, reply);
    if (result != CUDA_SUCCESS) break;
    const wire::cuda::ipc_open_memory_reply whole = reply;
    if (!find_part(handle, &reply)) {
      close_at(context, whole.address);
      result = CUDA_ERROR_INVALID_VALUE;
      break;
    }
    bool collides = false;
    note_opened(context, reply, &collides);
    *address = handle.more != 0 ? reply.base : reply.address;
    if (!collides) break;
    reply = whole;
    // Opening it again would give the same addresses. So they are reserved in the meantime.
    close_at(context, reply.address);
    uint64_t got = 0;
    if (refusals == kTriesMax)
      result = CUDA_ERROR_OUT_OF_MEMORY;
    else
      result = reserve_at(context->session, reply.bytes, 0, reply.base, 0, &got);
    if (result != CUDA_SUCCESS) break;
    refused[refusals] = got;
    refused_bytes[refusals++] = reply.bytes;
  }
  for (int i = 0; i < refusals; ++i) release_at(context->session, refused[i], refused_bytes[i]);
  return result;
}

// Memory and pools can be shared by descriptors only. Exporting them as anything else is
// CUDA_ERROR_INVALID_VALUE; importing says why on stderr.
CUresult need_descriptor_type(const char* call, CUmemAllocationHandleType type,
                              unsigned long long flags) {
  if (flags != 0) return CUDA_ERROR_INVALID_VALUE;
  if (type == CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR) return CUDA_SUCCESS;
  log_once(LogLevel::kError, "%s: handles of type %d are not supported, file descriptors are", call,
           static_cast<int>(type));
  return CUDA_ERROR_NOT_SUPPORTED;
}

CUresult give_descriptor(Session* session, const ExportHandle& handle, void* into) {
  const int fd = make_export_descriptor(session, handle);
  if (fd < 0) return CUDA_ERROR_OPERATING_SYSTEM;
  memcpy(into, &fd, sizeof fd);
  return CUDA_SUCCESS;
}

CUresult take_descriptor(void* given, ExportKind kind, const char* call, Session** session,
                         ExportHandle* out) {
  ExportHandle raw;
  const int fd = static_cast<int>(reinterpret_cast<intptr_t>(given));
  if (!read_export_descriptor(fd, &raw)) return CUDA_ERROR_UNKNOWN;  // of something else, or none
  const Context* context = current_context();
  return read_export(&raw, kind, call, context != nullptr ? context->session : nullptr, session,
                     out);
}

}  // namespace

CUresult cuIpcGetMemHandle(CUipcMemHandle* pHandle, CUdeviceptr dptr) {
  Context* context = nullptr;
  TENDRIL_TRY(require_context(&context));
  Range range;
  if (pHandle == nullptr || !process()->ranges.find(dptr, &range) ||
      range.kind != RangeKind::kDevice)
    return CUDA_ERROR_INVALID_VALUE;
  wire::cuda::ipc_get_memory_request request;
  wire::cuda::ipc_get_memory_reply reply;
  request.address = dptr;
  ExportHandle handle;
  uint64_t page = 0;
  if (range.capacity != 0)
    page = range.session->heap.pin({range.base, range.capacity, range.part}, range.context);
  if (range.context != nullptr) range.context->device->arena.share(page);
  TENDRIL_TRY(range.session->call(range.context, request, reply));
  TENDRIL_TRY(make_export(range.session, ExportKind::kMemory, reply.token, reply.bytes, &handle));
  if (range.part) name_part(range, page, &handle);
  memcpy(pHandle, &handle, sizeof handle);
  memory_is_shared();
  return CUDA_SUCCESS;
}

CUresult cuIpcOpenMemHandle_v2(CUdeviceptr* pdptr, CUipcMemHandle handle, unsigned int Flags) {
  Context* context = nullptr;
  TENDRIL_TRY(require_context(&context));
  if (pdptr == nullptr || Flags != CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS)
    return CUDA_ERROR_INVALID_VALUE;
  TENDRIL_TRY(check_unsafe_call());
  ExportHandle exported;
  Session* session = nullptr;
  TENDRIL_TRY(read_export(&handle, ExportKind::kMemory, "cuIpcOpenMemHandle", context->session,
                          &session, &exported));
  if (session != context->session)
    return CUDA_ERROR_INVALID_DEVICE;  // the current context's GPU is of another server
  uint64_t address = 0;
  const CUresult opened =
      explain("cuIpcOpenMemHandle", open_memory(context, exported, Flags, &address));
  if (opened == CUDA_ERROR_INVALID_VALUE) return CUDA_ERROR_NOT_PERMITTED;  // the memory is gone
  if (opened != CUDA_SUCCESS) return opened;
  *pdptr = address;
  memory_is_shared();
  return CUDA_SUCCESS;
}

CUresult cuIpcCloseMemHandle(CUdeviceptr dptr) {
  Context* context = nullptr;
  TENDRIL_TRY(require_context(&context));
  Range range;
  uint64_t opened = dptr;
  {
    const base::Locked held(process()->open_imports->lock);
    if (!process()->ranges.find(dptr, &range) || range.base != dptr ||
        range.kind != RangeKind::kImported)
      return CUDA_ERROR_INVALID_VALUE;
    std::map<uint64_t, OpenImports::One>& all = process()->open_imports->all;
    const auto open = all.find(dptr);
    if (open != all.end()) opened = open->second.opened;
    if (open == all.end() || --open->second.count == 0) {
      if (open != all.end()) all.erase(open);
      // Closed here first, because the server may reuse the addresses once it has closed the
      // memory.
      process()->ranges.remove(dptr, &range);
    }
  }
  return close_at(range.context, opened);
}

CUresult cuIpcGetEventHandle(CUipcEventHandle* pHandle, CUevent event) {
  Context* context = nullptr;
  TENDRIL_TRY(require_context(&context));
  if (pHandle == nullptr) return CUDA_ERROR_INVALID_VALUE;
  Event* e = process()->events.find(Kind::kEvent, handle_value(event));
  if (e == nullptr || (e->flags & CU_EVENT_INTERPROCESS) == 0) return CUDA_ERROR_INVALID_HANDLE;
  e->shared.store(true, std::memory_order_relaxed);
  e->external.store(true, std::memory_order_relaxed);
  wire::cuda::ipc_get_event_request request;
  wire::cuda::ipc_get_event_reply reply;
  request.event = e->wire_id;
  ExportHandle handle;
  TENDRIL_TRY(e->session->call(e->context, request, reply));
  TENDRIL_TRY(make_export(e->session, ExportKind::kEvent, reply.token, 0, &handle));
  memcpy(pHandle, &handle, sizeof handle);
  return CUDA_SUCCESS;
}

CUresult cuIpcOpenEventHandle(CUevent* phEvent, CUipcEventHandle handle) {
  Context* context = nullptr;
  TENDRIL_TRY(require_context(&context));
  if (phEvent == nullptr) return CUDA_ERROR_INVALID_VALUE;
  ExportHandle exported;
  Session* session = nullptr;
  TENDRIL_TRY(read_export(&handle, ExportKind::kEvent, "cuIpcOpenEventHandle", context->session,
                          &session, &exported));
  if (session != context->session) return CUDA_ERROR_INVALID_DEVICE;
  Event* event = process()->events.create(Kind::kEvent, session, context, session->index);
  if (event == nullptr) return CUDA_ERROR_OUT_OF_MEMORY;
  event->reset(CU_EVENT_DISABLE_TIMING | CU_EVENT_INTERPROCESS);
  event->shared.store(true, std::memory_order_relaxed);
  event->external.store(true, std::memory_order_relaxed);
  wire::cuda::ipc_open_event_request request;
  wire::cuda::ipc_open_event_reply reply;
  request.event = event->wire_id;
  request.token = {exported.token, sizeof exported.token};
  const CUresult result = explain("cuIpcOpenEventHandle", session->call(context, request, reply));
  if (result == CUDA_SUCCESS)
    *phEvent = handle_cast<CUevent>(event);
  else
    process()->events.destroy(event);
  return result;
}

CUresult cuMemExportToShareableHandle(void* shareableHandle, CUmemGenericAllocationHandle handle,
                                      CUmemAllocationHandleType handleType,
                                      unsigned long long flags) {
  if (process() == nullptr) return CUDA_ERROR_NOT_INITIALIZED;
  Object* object = held_allocation(handle);
  if (shareableHandle == nullptr || object == nullptr || flags != 0 ||
      handleType != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR)
    return CUDA_ERROR_INVALID_VALUE;
  drop_closed_exports();
  wire::cuda::ipc_export_allocation_request request;
  wire::cuda::ipc_export_allocation_reply reply;
  request.handle = object->wire_id;
  ExportHandle exported;
  TENDRIL_TRY(object->session->call(kNoContext, request, reply));
  TENDRIL_TRY(
      make_export(object->session, ExportKind::kAllocation, reply.token, reply.bytes, &exported));
  memory_is_shared();
  return give_descriptor(object->session, exported, shareableHandle);
}

CUresult cuMemImportFromShareableHandle(CUmemGenericAllocationHandle* handle, void* osHandle,
                                        CUmemAllocationHandleType shHandleType) {
  if (process() == nullptr) return CUDA_ERROR_NOT_INITIALIZED;
  if (handle == nullptr) return CUDA_ERROR_INVALID_VALUE;
  constexpr char kCall[] = "cuMemImportFromShareableHandle";
  TENDRIL_TRY(need_descriptor_type(kCall, shHandleType, 0));
  ExportHandle exported;
  Session* session = nullptr;
  TENDRIL_TRY(take_descriptor(osHandle, ExportKind::kAllocation, kCall, &session, &exported));
  Object* object = create_object(Kind::kAllocation, session, nullptr);
  if (object == nullptr) return CUDA_ERROR_OUT_OF_MEMORY;
  wire::cuda::ipc_import_allocation_request request;
  wire::cuda::ipc_import_allocation_reply reply;
  request.handle = object->wire_id;
  request.token = {exported.token, sizeof exported.token};
  CUresult result = session->call(kNoContext, request, reply);
  if (result == CUDA_SUCCESS && reply.slot >= session->devices.size()) result = CUDA_ERROR_UNKNOWN;
  if (result != CUDA_SUCCESS) {
    destroy_object(Kind::kAllocation, object);
    return result;
  }
  adopt_allocation(object, session->devices[reply.slot]);
  *handle = handle_cast<CUmemGenericAllocationHandle>(object);
  memory_is_shared();
  return CUDA_SUCCESS;
}

CUresult cuMemPoolExportToShareableHandle(void* handle_out, CUmemoryPool pool,
                                          CUmemAllocationHandleType handleType,
                                          unsigned long long flags) {
  if (process() == nullptr) return CUDA_ERROR_NOT_INITIALIZED;
  Object* object = find_object(Kind::kPool, handle_value(pool));
  if (handle_out == nullptr || object == nullptr || flags != 0 ||
      handleType != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR)
    return CUDA_ERROR_INVALID_VALUE;
  drop_closed_exports();
  wire::cuda::ipc_export_pool_request request;
  wire::cuda::ipc_export_pool_reply reply;
  request.pool = object->wire_id;
  ExportHandle exported;
  TENDRIL_TRY(object->session->call(kNoContext, request, reply));
  TENDRIL_TRY(make_export(object->session, ExportKind::kPool, reply.token, 0, &exported));
  memory_is_shared();
  return give_descriptor(object->session, exported, handle_out);
}

CUresult cuMemPoolImportFromShareableHandle(CUmemoryPool* pool_out, void* handle,
                                            CUmemAllocationHandleType handleType,
                                            unsigned long long flags) {
  if (process() == nullptr) return CUDA_ERROR_NOT_INITIALIZED;
  if (pool_out == nullptr) return CUDA_ERROR_INVALID_VALUE;
  constexpr char kCall[] = "cuMemPoolImportFromShareableHandle";
  TENDRIL_TRY(need_descriptor_type(kCall, handleType, flags));
  ExportHandle exported;
  Session* session = nullptr;
  TENDRIL_TRY(take_descriptor(handle, ExportKind::kPool, kCall, &session, &exported));
  Object* object = create_object(Kind::kPool, session, nullptr);
  if (object == nullptr) return CUDA_ERROR_OUT_OF_MEMORY;
  wire::cuda::ipc_import_pool_request request;
  wire::cuda::ipc_import_pool_reply reply;
  request.pool = object->wire_id;
  request.token = {exported.token, sizeof exported.token};
  const CUresult result = session->call(kNoContext, request, reply);
  if (result != CUDA_SUCCESS) {
    destroy_object(Kind::kPool, object);
    return result;
  }
  *pool_out = handle_cast<CUmemoryPool>(object);
  memory_is_shared();
  return CUDA_SUCCESS;
}

CUresult cuMemPoolExportPointer(CUmemPoolPtrExportData* shareData_out, CUdeviceptr ptr) {
  if (process() == nullptr) return CUDA_ERROR_NOT_INITIALIZED;
  Range range;
  if (shareData_out == nullptr || !process()->ranges.find(ptr, &range) ||
      range.kind != RangeKind::kPool)
    return CUDA_ERROR_INVALID_VALUE;
  wire::cuda::ipc_export_pool_pointer_request request;
  wire::cuda::ipc_export_pool_pointer_reply reply;
  request.address = ptr;
  ExportHandle exported;
  TENDRIL_TRY(range.session->call(range.context, request, reply));
  TENDRIL_TRY(
      make_export(range.session, ExportKind::kPoolPointer, reply.token, reply.bytes, &exported));
  memcpy(shareData_out, &exported, sizeof exported);
  return CUDA_SUCCESS;
}

CUresult cuMemPoolImportPointer(CUdeviceptr* ptr_out, CUmemoryPool pool,
                                CUmemPoolPtrExportData* shareData) {
  Context* context = nullptr;
  TENDRIL_TRY(require_context(&context));
  Object* object = find_object(Kind::kPool, handle_value(pool));
  if (ptr_out == nullptr || shareData == nullptr || object == nullptr ||
      object->session != context->session)
    return CUDA_ERROR_INVALID_VALUE;
  ExportHandle exported;
  Session* session = nullptr;
  TENDRIL_TRY(read_export(shareData, ExportKind::kPoolPointer, "cuMemPoolImportPointer",
                          context->session, &session, &exported));
  if (session != context->session) return CUDA_ERROR_INVALID_VALUE;
  wire::cuda::ipc_import_pool_pointer_request request;
  wire::cuda::ipc_import_pool_pointer_reply reply;
  request.pool = object->wire_id;
  request.token = {exported.token, sizeof exported.token};
  TENDRIL_TRY(session->call(context, request, reply));
  bool collides = false;
  TENDRIL_TRY(
      register_pool_range(context, reply.address, reply.bytes, handle_value(pool), &collides));
  *ptr_out = reply.address;
  return CUDA_SUCCESS;
}

}  // namespace tendril::client::cuda
