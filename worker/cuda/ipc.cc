// SPDX-License-Identifier: Apache-2.0
// Handlers of api/cuda/ipc.spec, and the class of ipc.h.
#include "worker/cuda/ipc.h"

#include <unistd.h>

#include "api/cuda_handlers.gen.h"
#include "worker/cuda/executor/scope.h"
#include "worker/cuda/virtual_memory.h"

namespace tendril::worker::cuda {
namespace {

using wire::ExportKind;

constexpr auto kDescriptor = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;

CUresult result_of(wire::ExportAnswer answer) {
  switch (answer) {
    case wire::ExportAnswer::kDone:
      return CUDA_SUCCESS;
    case wire::ExportAnswer::kFull:
      return CUDA_ERROR_OUT_OF_MEMORY;
    case wire::ExportAnswer::kOtherUser:
      return CUDA_ERROR_NOT_PERMITTED;
    case wire::ExportAnswer::kUnknown:
      break;
  }
  return CUDA_ERROR_INVALID_VALUE;
}

bool same_token(const wire::ExportRecord& record, const wire::Bytes& token) {
  return token.count == sizeof record.token &&
         std::memcmp(record.token, token.data, sizeof record.token) == 0;
}

wire::ExportRecord record_of(Executor& w, ExportKind kind, uint32_t slot, uint64_t bytes) {
  wire::ExportRecord record = {};
  record.kind = kind;
  record.gpu_index = slot < w.assignment().slice_count ? w.assignment().slices[slot].gpu_index : 0;
  record.bytes = bytes;
  return record;
}

// The slot of the session on the GPU where a shared thing lies; false: the session has none.
bool find_slot(Executor& w, const wire::ExportRecord& record, uint32_t* slot) {
  for (uint32_t i = 0; i < w.assignment().slice_count; ++i) {
    if (w.assignment().slices[i].gpu_index != record.gpu_index) continue;
    *slot = i;
    return true;
  }
  return false;
}

template <typename Reply>
CUresult answer_token(Executor& w, const std::string& token, Reply* r) {
  Scope s(w);
  uint8_t* copy = s.scratch<uint8_t>(token.size());
  if (!s.ok()) return s.error();
  std::memcpy(copy, token.data(), token.size());
  r->token = {copy, token.size()};
  return CUDA_SUCCESS;
}

// Shares what the driver's handle `content` opens, and answers with the token.
template <typename Content, typename Reply>
CUresult share(Executor& w, uint64_t key, const wire::ExportRecord& record, const Content& content,
               Reply* r) {
  std::string token;
  const CUresult result = w.ipc().publish(key, record, content, &token);
  return result == CUDA_SUCCESS ? answer_token(w, token, r) : result;
}

// The driver's handle in a record that tendrild keeps.
template <typename Content>
Content content_of(const wire::ExportRecord& record) {
  Content content;
  static_assert(sizeof content <= sizeof record.content);
  std::memcpy(&content, record.content, sizeof content);
  return content;
}

void* as_handle(const base::Fd& fd) {
  return reinterpret_cast<void*>(static_cast<intptr_t>(fd.get()));
}

struct Range {
  CUdeviceptr base = 0;
  size_t bytes = 0;
};

CUresult range_of(Executor& w, CUdeviceptr address, Range* range) {
  return w.driver().cuMemGetAddressRange_v2(&range->base, &range->bytes, address);
}

uint64_t key_of(const void* object) { return reinterpret_cast<uint64_t>(object); }

}  // namespace

CUresult Ipc::publish(uint64_t key, const wire::ExportRecord& wanted, std::string* token) {
  if (exports_ == nullptr) return CUDA_ERROR_NOT_SUPPORTED;
  auto range = published_.equal_range(key);
  for (auto it = range.first; it != range.second; ++it) {
    const wire::ExportRecord& known = it->second.record;
    if (known.kind != wanted.kind) continue;
    if (std::memcmp(known.content, wanted.content, sizeof known.content) == 0) {
      token->assign(reinterpret_cast<const char*>(known.token), sizeof known.token);
      return CUDA_SUCCESS;
    }
    exports_->withdraw(known, true);  // it went with its context, unseen
    published_.erase(it);
    break;
  }
  return publish_descriptor(key, wanted, -1, token);
}

CUresult Ipc::publish_descriptor(uint64_t key, wire::ExportRecord record, int fd,
                                 std::string* token) {
  if (exports_ == nullptr) return CUDA_ERROR_NOT_SUPPORTED;
  const CUresult result = result_of(exports_->publish(&record, fd));
  if (result != CUDA_SUCCESS) return result;
  published_.emplace(key, Published{record});
  token->assign(reinterpret_cast<const char*>(record.token), sizeof record.token);
  return CUDA_SUCCESS;
}

CUresult Ipc::fetch(ExportKind kind, const wire::Bytes& token, wire::ExportRecord* record,
                    base::Fd* fd) {
  if (exports_ == nullptr) return CUDA_ERROR_NOT_SUPPORTED;
  if (token.count != sizeof record->token) return CUDA_ERROR_INVALID_VALUE;
  *record = {};
  record->kind = kind;
  std::memcpy(record->token, token.data, sizeof record->token);
  return result_of(exports_->fetch(record, fd));
}

void Ipc::withdraw_all(uint64_t key) {
  auto range = published_.equal_range(key);
  for (auto it = range.first; it != range.second; ++it) exports_->withdraw(it->second.record, true);
  published_.erase(range.first, range.second);
}

bool Ipc::drop(const wire::Bytes& token, ExportKind* kind, uint64_t* key) {
  for (auto it = published_.begin(); it != published_.end(); ++it) {
    Published& published = it->second;
    if (!same_token(published.record, token)) continue;
    *key = it->first;
    *kind = published.record.kind;
    if (published.dropped || (*kind != ExportKind::kAllocation && *kind != ExportKind::kPool))
      return false;
    published.dropped = true;
    exports_->withdraw(published.record, false);
    // An allocation may live on in mappings, here or elsewhere: its record stays, so that its end
    // can be told.
    if (*kind == ExportKind::kPool) published_.erase(it);
    return true;
  }
  return false;
}

void Ipc::opened(uint64_t key, const wire::ExportRecord& record) {
  auto [it, fresh] = opened_.try_emplace(key, Opened{record, 1});
  if (fresh) return;
  const bool again = std::memcmp(it->second.record.token, record.token, sizeof record.token) == 0;
  // What was there went with its context, unseen.
  if (!again) it->second.count = 0;
  // tendrild counts every fetch; one is enough for us.
  exports_->release(it->second.record);
  it->second.record = record;
  ++it->second.count;
}

void Ipc::closed(uint64_t key) {
  auto it = opened_.find(key);
  if (it == opened_.end() || --it->second.count != 0) return;
  exports_->release(it->second.record);
  opened_.erase(it);
}

CUresult handle(Executor& w, const wire::cuda::ipc_server_request&,
                wire::cuda::ipc_server_reply& r) {
  r.id = {w.assignment().server_id, sizeof w.assignment().server_id};
  return CUDA_SUCCESS;
}

CUresult handle(Executor& w, const wire::cuda::ipc_get_memory_request& m,
                wire::cuda::ipc_get_memory_reply& r) {
  if (w.context() == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  CUipcMemHandle content = {};
  CUresult result = w.driver().cuIpcGetMemHandle(&content, m.address);
  Range range;
  if (result == CUDA_SUCCESS) result = range_of(w, m.address, &range);
  if (result != CUDA_SUCCESS) return result;
  r.bytes = range.bytes;
  return share(w, range.base, record_of(w, ExportKind::kMemory, w.slot(), range.bytes), content,
               &r);
}

CUresult handle(Executor& w, const wire::cuda::ipc_open_memory_request& m,
                wire::cuda::ipc_open_memory_reply& r) {
  if (w.context() == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  wire::ExportRecord record;
  base::Fd none;
  CUresult result = w.ipc().fetch(ExportKind::kMemory, m.token, &record, &none);
  if (result != CUDA_SUCCESS) return result;
  uint32_t slot = 0;
  CUdeviceptr address = 0;
  Range range;
  result = find_slot(w, record, &slot) ? w.driver().cuIpcOpenMemHandle_v2(
                                             &address, content_of<CUipcMemHandle>(record), m.flags)
                                       : CUDA_ERROR_INVALID_DEVICE;
  if (result == CUDA_SUCCESS) {
    result = range_of(w, address, &range);
    if (result != CUDA_SUCCESS) w.driver().cuIpcCloseMemHandle(address);
  }
  if (result != CUDA_SUCCESS) {
    w.ipc().opened(0, record);
    w.ipc().closed(0);
    return result;
  }
  w.ipc().opened(address, record);
  r.address = address;
  r.base = range.base;
  r.bytes = range.bytes;
  return CUDA_SUCCESS;
}

CUresult handle(Executor& w, const wire::cuda::ipc_close_memory_request& m,
                wire::cuda::ipc_close_memory_reply&) {
  const CUresult result = w.driver().cuIpcCloseMemHandle(m.address);
  if (result == CUDA_SUCCESS) w.ipc().closed(m.address);
  return result;
}

CUresult handle(Executor& w, const wire::cuda::ipc_get_event_request& m,
                wire::cuda::ipc_get_event_reply& r) {
  Scope s(w);
  CUevent event = s.get<CUevent>(Kind::kEvent, m.event);
  if (!s.ok()) return s.error();
  CUipcEventHandle content = {};
  const CUresult result = w.driver().cuIpcGetEventHandle(&content, event);
  if (result != CUDA_SUCCESS) return result;
  return share(w, key_of(event), record_of(w, ExportKind::kEvent, w.slot(), 0), content, &r);
}

CUresult handle(Executor& w, const wire::cuda::ipc_open_event_request& m,
                wire::cuda::ipc_open_event_reply&) {
  wire::ExportRecord record;
  base::Fd none;
  CUresult result = w.ipc().fetch(ExportKind::kEvent, m.token, &record, &none);
  if (result != CUDA_SUCCESS) return result;
  CUevent event = nullptr;
  result = w.driver().cuIpcOpenEventHandle(&event, content_of<CUipcEventHandle>(record));
  if (result != CUDA_SUCCESS || w.objects().bind(Kind::kEvent, m.event, event)) return result;
  w.driver().cuEventDestroy_v2(event);
  return CUDA_ERROR_INVALID_HANDLE;
}

CUresult handle(Executor& w, const wire::cuda::ipc_record_event_request& m,
                wire::cuda::ipc_record_event_reply&) {
  wire::cuda::event_record_request record;
  record.event = m.event;
  record.stream = m.stream;
  record.flags = m.flags;
  return handle(w, record);
}

CUresult handle(Executor& w, const wire::cuda::ipc_export_allocation_request& m,
                wire::cuda::ipc_export_allocation_reply& r) {
  Scope s(w);
  const auto handle = s.get<CUmemGenericAllocationHandle>(Kind::kAllocation, m.handle);
  if (!s.ok()) return s.error();
  if (w.driver().cuMemExportToShareableHandle == nullptr) return CUDA_ERROR_NOT_SUPPORTED;
  int raw = -1;
  CUresult result = w.driver().cuMemExportToShareableHandle(&raw, handle, kDescriptor, 0);
  if (result != CUDA_SUCCESS) return result;
  const base::Fd fd(raw);
  uint32_t slot = 0;
  uint64_t bytes = 0;
  w.virtual_memory().describe(handle, &slot, &bytes);
  r.bytes = bytes;
  std::string token;
  result = w.ipc().publish_descriptor(handle, record_of(w, ExportKind::kAllocation, slot, bytes),
                                      raw, &token);
  if (result != CUDA_SUCCESS) return result;
  w.virtual_memory().exported(handle);
  return answer_token(w, token, &r);
}

CUresult handle(Executor& w, const wire::cuda::ipc_import_allocation_request& m,
                wire::cuda::ipc_import_allocation_reply& r) {
  gpu::Driver& d = w.driver();
  if (d.cuMemImportFromShareableHandle == nullptr) return CUDA_ERROR_NOT_SUPPORTED;
  wire::ExportRecord record;
  base::Fd fd;
  CUresult result = w.ipc().fetch(ExportKind::kAllocation, m.token, &record, &fd);
  if (result != CUDA_SUCCESS) return result;
  CUmemGenericAllocationHandle handle = 0;
  result = find_slot(w, record, &r.slot)
               ? d.cuMemImportFromShareableHandle(&handle, as_handle(fd), kDescriptor)
               : CUDA_ERROR_INVALID_DEVICE;
  if (result == CUDA_SUCCESS &&
      !w.objects().bind(Kind::kAllocation, m.handle, reinterpret_cast<void*>(handle))) {
    d.cuMemRelease(handle);
    result = CUDA_ERROR_INVALID_HANDLE;
  }
  const uint64_t key = result == CUDA_SUCCESS ? handle : 0;
  w.ipc().opened(key, record);
  if (result != CUDA_SUCCESS)
    w.ipc().closed(key);
  else
    w.virtual_memory().imported(handle, r.slot, record.bytes);
  return result;
}

CUresult handle(Executor& w, const wire::cuda::ipc_export_pool_request& m,
                wire::cuda::ipc_export_pool_reply& r) {
  Scope s(w);
  CUmemoryPool pool = s.get<CUmemoryPool>(Kind::kPool, m.pool);
  if (!s.ok()) return s.error();
  if (w.driver().cuMemPoolExportToShareableHandle == nullptr) return CUDA_ERROR_NOT_SUPPORTED;
  int raw = -1;
  CUresult result = w.driver().cuMemPoolExportToShareableHandle(&raw, pool, kDescriptor, 0);
  if (result != CUDA_SUCCESS) return result;
  const base::Fd fd(raw);
  std::string token;
  result = w.ipc().publish_descriptor(key_of(pool), record_of(w, ExportKind::kPool, w.slot(), 0),
                                      raw, &token);
  return result == CUDA_SUCCESS ? answer_token(w, token, &r) : result;
}

CUresult handle(Executor& w, const wire::cuda::ipc_import_pool_request& m,
                wire::cuda::ipc_import_pool_reply&) {
  gpu::Driver& d = w.driver();
  if (d.cuMemPoolImportFromShareableHandle == nullptr) return CUDA_ERROR_NOT_SUPPORTED;
  wire::ExportRecord record;
  base::Fd fd;
  CUresult result = w.ipc().fetch(ExportKind::kPool, m.token, &record, &fd);
  if (result != CUDA_SUCCESS) return result;
  CUmemoryPool pool = nullptr;
  uint32_t slot = 0;
  result = find_slot(w, record, &slot)
               ? d.cuMemPoolImportFromShareableHandle(&pool, as_handle(fd), kDescriptor, 0)
               : CUDA_ERROR_INVALID_DEVICE;
  if (result != CUDA_SUCCESS || w.objects().bind(Kind::kPool, m.pool, pool)) return result;
  d.cuMemPoolDestroy(pool);
  return CUDA_ERROR_INVALID_HANDLE;
}

CUresult handle(Executor& w, const wire::cuda::ipc_export_pool_pointer_request& m,
                wire::cuda::ipc_export_pool_pointer_reply& r) {
  gpu::Driver& d = w.driver();
  if (d.cuMemPoolExportPointer == nullptr) return CUDA_ERROR_NOT_SUPPORTED;
  CUmemPoolPtrExportData content = {};
  CUresult result = d.cuMemPoolExportPointer(&content, m.address);
  Range range;
  if (result == CUDA_SUCCESS) result = range_of(w, m.address, &range);
  if (result != CUDA_SUCCESS) return result;
  r.bytes = range.bytes - (m.address - range.base);
  return share(w, m.address, record_of(w, ExportKind::kPoolPointer, w.slot(), r.bytes), content,
               &r);
}

CUresult handle(Executor& w, const wire::cuda::ipc_import_pool_pointer_request& m,
                wire::cuda::ipc_import_pool_pointer_reply& r) {
  gpu::Driver& d = w.driver();
  Scope s(w);
  CUmemoryPool pool = s.get<CUmemoryPool>(Kind::kPool, m.pool);
  if (!s.ok()) return s.error();
  if (d.cuMemPoolImportPointer == nullptr) return CUDA_ERROR_NOT_SUPPORTED;
  wire::ExportRecord record;
  base::Fd none;
  CUresult result = w.ipc().fetch(ExportKind::kPoolPointer, m.token, &record, &none);
  if (result != CUDA_SUCCESS) return result;
  auto content = content_of<CUmemPoolPtrExportData>(record);
  CUdeviceptr address = 0;
  result = d.cuMemPoolImportPointer(&address, pool, &content);
  if (result != CUDA_SUCCESS) return result;
  r.address = address;
  r.bytes = record.bytes;
  return CUDA_SUCCESS;
}

CUresult handle(Executor& w, const wire::cuda::ipc_drop_request& m) {
  ExportKind kind;
  uint64_t key = 0;
  if (w.ipc().drop(m.token, &kind, &key) && kind == ExportKind::kAllocation)
    w.virtual_memory().descriptor_closed(w, key);
  return CUDA_SUCCESS;
}

}  // namespace tendril::worker::cuda
