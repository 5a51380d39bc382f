// SPDX-License-Identifier: Apache-2.0
// Handlers of api/cuda/ipc.spec, and the class of ipc.h.
#include "worker/cuda/ipc.h"

#include <unistd.h>

#include "api/cuda_handlers.gen.h"
#include "worker/cuda/executor/scope.h"
#include "worker/cuda/memory/device_blocks.h"
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

wire::ExportRecord record_of(Executor& executor, ExportKind kind, uint32_t slot, uint64_t bytes) {
  wire::ExportRecord record = {};
  record.kind = kind;
  record.gpu_index =
      slot < executor.assignment().slice_count ? executor.assignment().slices[slot].gpu_index : 0;
  record.bytes = bytes;
  return record;
}

// Finds the session's slot on the GPU where a shared thing lies. False: the session has none.
bool find_slot(Executor& executor, const wire::ExportRecord& record, uint32_t* slot) {
  for (uint32_t i = 0; i < executor.assignment().slice_count; ++i) {
    if (executor.assignment().slices[i].gpu_index != record.gpu_index) continue;
    *slot = i;
    return true;
  }
  return false;
}

template <typename Reply>
CUresult answer_token(Executor& executor, const std::string& token, Reply* reply) {
  Scope scope(executor);
  uint8_t* copy = scope.scratch<uint8_t>(token.size());
  if (!scope.ok()) return scope.error();
  std::memcpy(copy, token.data(), token.size());
  reply->token = {copy, token.size()};
  return CUDA_SUCCESS;
}

// Shares what the driver's handle `content` opens. The reply gets the token.
template <typename Content, typename Reply>
CUresult share(Executor& executor, uint64_t key, const wire::ExportRecord& record,
               const Content& content, Reply* reply) {
  std::string token;
  const CUresult result = executor.ipc().publish(key, record, content, &token);
  return result == CUDA_SUCCESS ? answer_token(executor, token, reply) : result;
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

CUresult range_of(Executor& executor, CUdeviceptr address, Range* range) {
  return executor.driver().cuMemGetAddressRange_v2(&range->base, &range->bytes, address);
}

uint64_t key_of(const void* object) { return reinterpret_cast<uint64_t>(object); }

// Memory that the worker has mapped has no handle of the driver for cuIpcOpenMemHandle. Its
// descriptor stands behind the token instead.
CUresult share_block(Executor& executor, DeviceBlocks::Block* block,
                     wire::cuda::ipc_get_memory_reply* reply) {
  if (!block->token.empty()) return CUDA_ERROR_INVALID_VALUE;  // it is another session's
  base::Fd fd;
  CUresult result = executor.blocks().export_to(block, &fd);
  if (result != CUDA_SUCCESS) return result;
  std::string token;
  result = executor.ipc().publish(
      block->address, record_of(executor, ExportKind::kMemory, block->slot, block->bytes), fd.get(),
      &token);
  if (result != CUDA_SUCCESS) return result;
  reply->bytes = block->bytes;
  return answer_token(executor, token, reply);
}

CUresult open_block(Executor& executor, const wire::ExportRecord& record, const base::Fd& fd,
                    wire::cuda::ipc_open_memory_reply* reply) {
  const wire::Bytes token = {record.token, sizeof record.token};
  uint32_t slot = 0;
  DeviceBlocks::Block* block = nullptr;
  CUresult result = CUDA_SUCCESS;
  if (executor.ipc().owns(token))
    result = CUDA_ERROR_INVALID_CONTEXT;  // a process cannot open its own handles
  else if (!find_slot(executor, record, &slot))
    result = CUDA_ERROR_INVALID_DEVICE;
  else
    result = executor.blocks().import(
        std::string(reinterpret_cast<const char*>(token.data), token.count), fd, slot, record.bytes,
        &block);
  const uint64_t key = result == CUDA_SUCCESS ? block->address : 0;
  executor.ipc().opened(key, record);
  if (result != CUDA_SUCCESS) {
    executor.ipc().closed(key);
    return result;
  }
  reply->address = reply->base = block->address;
  reply->bytes = block->bytes;
  return CUDA_SUCCESS;
}

}  // namespace

CUresult Ipc::publish(uint64_t key, const wire::ExportRecord& wanted, int fd, std::string* token) {
  if (exports_ == nullptr) return CUDA_ERROR_NOT_SUPPORTED;
  auto range = published_.equal_range(key);
  for (auto it = range.first; it != range.second; ++it) {
    const wire::ExportRecord& known = it->second.record;
    if (known.kind != wanted.kind) continue;
    if (std::memcmp(known.content, wanted.content, sizeof known.content) == 0) {
      token->assign(reinterpret_cast<const char*>(known.token), sizeof known.token);
      return CUDA_SUCCESS;
    }
    exports_->withdraw(known, true);  // it ended with its context, and no call said so
    published_.erase(it);
    break;
  }
  return publish_descriptor(key, wanted, fd, token);
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

bool Ipc::owns(const wire::Bytes& token) const {
  for (const auto& [key, published] : published_)
    if (same_token(published.record, token)) return true;
  return false;
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
    // An allocation may live on in mappings, here or elsewhere. Its record stays, so that its end
    // can be reported.
    if (*kind == ExportKind::kPool) published_.erase(it);
    return true;
  }
  return false;
}

void Ipc::opened(uint64_t key, const wire::ExportRecord& record) {
  auto [it, fresh] = opened_.try_emplace(key, Opened{record, 1});
  if (fresh) return;
  const bool again = std::memcmp(it->second.record.token, record.token, sizeof record.token) == 0;
  // What was there ended with its context, and no call said so.
  if (!again) it->second.count = 0;
  // tendrild counts every fetch. We keep only one.
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

CUresult handle(Executor& executor, const wire::cuda::ipc_server_request&,
                wire::cuda::ipc_server_reply& reply) {
  reply.id = {executor.assignment().server_id, sizeof executor.assignment().server_id};
  return CUDA_SUCCESS;
}

CUresult handle(Executor& executor, const wire::cuda::ipc_get_memory_request& request,
                wire::cuda::ipc_get_memory_reply& reply) {
  if (executor.context() == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  if (DeviceBlocks::Block* const block = executor.blocks().find(request.address))
    return share_block(executor, block, &reply);
  CUipcMemHandle content = {};
  CUresult result = executor.driver().cuIpcGetMemHandle(&content, request.address);
  Range range;
  if (result == CUDA_SUCCESS) result = range_of(executor, request.address, &range);
  if (result != CUDA_SUCCESS) return result;
  reply.bytes = range.bytes;
  return share(executor, range.base,
               record_of(executor, ExportKind::kMemory, executor.slot(),
                         PageCharge::bytes_around(range.base, range.bytes)),
               content, &reply);
}

CUresult handle(Executor& executor, const wire::cuda::ipc_open_memory_request& request,
                wire::cuda::ipc_open_memory_reply& reply) {
  if (executor.context() == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  wire::ExportRecord record;
  base::Fd fd;
  CUresult result = executor.ipc().fetch(ExportKind::kMemory, request.token, &record, &fd);
  if (result != CUDA_SUCCESS) return result;
  if (fd.valid()) return open_block(executor, record, fd, &reply);
  uint32_t slot = 0;
  CUdeviceptr address = 0;
  Range range;
  result = find_slot(executor, record, &slot)
               ? executor.driver().cuIpcOpenMemHandle_v2(
                     &address, content_of<CUipcMemHandle>(record), request.flags)
               : CUDA_ERROR_INVALID_DEVICE;
  if (result == CUDA_SUCCESS) {
    result = range_of(executor, address, &range);
    if (result != CUDA_SUCCESS) executor.driver().cuIpcCloseMemHandle(address);
  }
  if (result != CUDA_SUCCESS) {
    executor.ipc().opened(0, record);
    executor.ipc().closed(0);
    return result;
  }
  executor.ipc().opened(address, record);
  reply.address = address;
  reply.base = range.base;
  reply.bytes = range.bytes;
  return CUDA_SUCCESS;
}

CUresult handle(Executor& executor, const wire::cuda::ipc_close_memory_request& request,
                wire::cuda::ipc_close_memory_reply&) {
  DeviceBlocks::Block* const block = executor.blocks().find(request.address);
  if (block != nullptr && (block->address != request.address || block->token.empty()))
    return CUDA_ERROR_INVALID_VALUE;
  const CUresult result = block != nullptr ? executor.blocks().close(block)
                                           : executor.driver().cuIpcCloseMemHandle(request.address);
  if (result == CUDA_SUCCESS) executor.ipc().closed(request.address);
  return result;
}

CUresult handle(Executor& executor, const wire::cuda::ipc_get_event_request& request,
                wire::cuda::ipc_get_event_reply& reply) {
  Scope scope(executor);
  CUevent event = scope.get<CUevent>(Kind::kEvent, request.event);
  if (!scope.ok()) return scope.error();
  CUipcEventHandle content = {};
  const CUresult result = executor.driver().cuIpcGetEventHandle(&content, event);
  if (result != CUDA_SUCCESS) return result;
  return share(executor, key_of(event), record_of(executor, ExportKind::kEvent, executor.slot(), 0),
               content, &reply);
}

CUresult handle(Executor& executor, const wire::cuda::ipc_open_event_request& request,
                wire::cuda::ipc_open_event_reply&) {
  if (executor.context() == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  Scope scope(executor);
  scope.reserve(Kind::kEvent, request.event);
  if (!scope.ok()) return scope.error();
  wire::ExportRecord record;
  base::Fd none;
  CUresult result = executor.ipc().fetch(ExportKind::kEvent, request.token, &record, &none);
  if (result != CUDA_SUCCESS) return result;
  CUevent event = nullptr;
  result = executor.driver().cuIpcOpenEventHandle(&event, content_of<CUipcEventHandle>(record));
  if (result != CUDA_SUCCESS ||
      executor.objects().bind(Kind::kEvent, request.event, event, executor.context()->context))
    return result;
  executor.driver().cuEventDestroy_v2(event);
  return CUDA_ERROR_INVALID_HANDLE;
}

CUresult handle(Executor& executor, const wire::cuda::ipc_record_event_request& request,
                wire::cuda::ipc_record_event_reply&) {
  wire::cuda::event_record_request record;
  record.event = request.event;
  record.stream = request.stream;
  record.flags = request.flags;
  return handle(executor, record);
}

CUresult handle(Executor& executor, const wire::cuda::ipc_export_allocation_request& request,
                wire::cuda::ipc_export_allocation_reply& reply) {
  Scope scope(executor);
  const auto handle = scope.get<CUmemGenericAllocationHandle>(Kind::kAllocation, request.handle);
  if (!scope.ok()) return scope.error();
  if (executor.driver().cuMemExportToShareableHandle == nullptr) return CUDA_ERROR_NOT_SUPPORTED;
  int raw = -1;
  CUresult result = executor.driver().cuMemExportToShareableHandle(&raw, handle, kDescriptor, 0);
  if (result != CUDA_SUCCESS) return result;
  const base::Fd fd(raw);
  uint32_t slot = 0;
  uint64_t bytes = 0;
  executor.virtual_memory().describe(handle, &slot, &bytes);
  reply.bytes = bytes;
  std::string token;
  result = executor.ipc().publish_descriptor(
      handle, record_of(executor, ExportKind::kAllocation, slot, bytes), raw, &token);
  if (result != CUDA_SUCCESS) return result;
  executor.virtual_memory().exported(handle);
  return answer_token(executor, token, &reply);
}

CUresult handle(Executor& executor, const wire::cuda::ipc_import_allocation_request& request,
                wire::cuda::ipc_import_allocation_reply& reply) {
  gpu::Driver& driver = executor.driver();
  if (driver.cuMemImportFromShareableHandle == nullptr) return CUDA_ERROR_NOT_SUPPORTED;
  wire::ExportRecord record;
  base::Fd fd;
  CUresult result = executor.ipc().fetch(ExportKind::kAllocation, request.token, &record, &fd);
  if (result != CUDA_SUCCESS) return result;
  CUmemGenericAllocationHandle handle = 0;
  result = find_slot(executor, record, &reply.slot)
               ? driver.cuMemImportFromShareableHandle(&handle, as_handle(fd), kDescriptor)
               : CUDA_ERROR_INVALID_DEVICE;
  if (result == CUDA_SUCCESS && !executor.objects().bind(Kind::kAllocation, request.handle,
                                                         reinterpret_cast<void*>(handle))) {
    driver.cuMemRelease(handle);
    result = CUDA_ERROR_INVALID_HANDLE;
  }
  const uint64_t key = result == CUDA_SUCCESS ? handle : 0;
  executor.ipc().opened(key, record);
  if (result != CUDA_SUCCESS)
    executor.ipc().closed(key);
  else
    executor.virtual_memory().imported(handle, reply.slot, record.bytes);
  return result;
}

CUresult handle(Executor& executor, const wire::cuda::ipc_export_pool_request& request,
                wire::cuda::ipc_export_pool_reply& reply) {
  Scope scope(executor);
  CUmemoryPool pool = scope.get<CUmemoryPool>(Kind::kPool, request.pool);
  if (!scope.ok()) return scope.error();
  if (executor.driver().cuMemPoolExportToShareableHandle == nullptr)
    return CUDA_ERROR_NOT_SUPPORTED;
  int raw = -1;
  CUresult result = executor.driver().cuMemPoolExportToShareableHandle(&raw, pool, kDescriptor, 0);
  if (result != CUDA_SUCCESS) return result;
  const base::Fd fd(raw);
  std::string token;
  result = executor.ipc().publish_descriptor(
      key_of(pool), record_of(executor, ExportKind::kPool, executor.slot(), 0), raw, &token);
  return result == CUDA_SUCCESS ? answer_token(executor, token, &reply) : result;
}

CUresult handle(Executor& executor, const wire::cuda::ipc_import_pool_request& request,
                wire::cuda::ipc_import_pool_reply&) {
  gpu::Driver& driver = executor.driver();
  if (driver.cuMemPoolImportFromShareableHandle == nullptr) return CUDA_ERROR_NOT_SUPPORTED;
  wire::ExportRecord record;
  base::Fd fd;
  CUresult result = executor.ipc().fetch(ExportKind::kPool, request.token, &record, &fd);
  if (result != CUDA_SUCCESS) return result;
  CUmemoryPool pool = nullptr;
  uint32_t slot = 0;
  result = find_slot(executor, record, &slot)
               ? driver.cuMemPoolImportFromShareableHandle(&pool, as_handle(fd), kDescriptor, 0)
               : CUDA_ERROR_INVALID_DEVICE;
  if (result != CUDA_SUCCESS || executor.objects().bind(Kind::kPool, request.pool, pool))
    return result;
  driver.cuMemPoolDestroy(pool);
  return CUDA_ERROR_INVALID_HANDLE;
}

CUresult handle(Executor& executor, const wire::cuda::ipc_export_pool_pointer_request& request,
                wire::cuda::ipc_export_pool_pointer_reply& reply) {
  gpu::Driver& driver = executor.driver();
  if (driver.cuMemPoolExportPointer == nullptr) return CUDA_ERROR_NOT_SUPPORTED;
  CUmemPoolPtrExportData content = {};
  CUresult result = driver.cuMemPoolExportPointer(&content, request.address);
  Range range;
  if (result == CUDA_SUCCESS) result = range_of(executor, request.address, &range);
  if (result != CUDA_SUCCESS) return result;
  reply.bytes = range.bytes - (request.address - range.base);
  return share(executor, request.address,
               record_of(executor, ExportKind::kPoolPointer, executor.slot(), reply.bytes), content,
               &reply);
}

CUresult handle(Executor& executor, const wire::cuda::ipc_import_pool_pointer_request& request,
                wire::cuda::ipc_import_pool_pointer_reply& reply) {
  gpu::Driver& driver = executor.driver();
  Scope scope(executor);
  CUmemoryPool pool = scope.get<CUmemoryPool>(Kind::kPool, request.pool);
  if (!scope.ok()) return scope.error();
  if (driver.cuMemPoolImportPointer == nullptr) return CUDA_ERROR_NOT_SUPPORTED;
  wire::ExportRecord record;
  base::Fd none;
  CUresult result = executor.ipc().fetch(ExportKind::kPoolPointer, request.token, &record, &none);
  if (result != CUDA_SUCCESS) return result;
  auto content = content_of<CUmemPoolPtrExportData>(record);
  CUdeviceptr address = 0;
  result = driver.cuMemPoolImportPointer(&address, pool, &content);
  executor.ipc().opened(address, record);
  if (result != CUDA_SUCCESS) {
    executor.ipc().closed(address);
    return result;
  }
  reply.address = address;
  reply.bytes = record.bytes;
  return CUDA_SUCCESS;
}

CUresult handle(Executor& executor, const wire::cuda::ipc_drop_request& request) {
  ExportKind kind;
  uint64_t key = 0;
  if (executor.ipc().drop(request.token, &kind, &key) && kind == ExportKind::kAllocation)
    executor.virtual_memory().descriptor_closed(executor, key);
  return CUDA_SUCCESS;
}

}  // namespace tendril::worker::cuda
