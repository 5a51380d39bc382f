// SPDX-License-Identifier: Apache-2.0
// Handlers of api/cuda/device.spec: the snapshot, primary contexts, facts of devices.
#include <cstring>

#include "api/cuda_handlers.gen.h"
#include "worker/cuda/device_facts.h"
#include "worker/cuda/executor/scope.h"
#include "worker/cuda/executor/waits.h"
#include "worker/cuda/memory/kept_memory.h"
#include "worker/cuda/memory/mirror.h"
#include "worker/cuda/module.h"

namespace tendril::worker::cuda {
namespace {

// Limits and priorities. Asking needs a context. All contexts of a device have the same.
void context_facts(Executor& executor, uint32_t slot, uint64_t* limits, int32_t* priorities) {
  gpu::Driver& driver = executor.driver();
  CUcontext context = nullptr;
  const CUdevice device = executor.device_of(slot);
  if (driver.cuDevicePrimaryCtxRetain(&context, device) != CUDA_SUCCESS) return;
  executor.contexts().use(context);
  for (int i = 0; i < CU_LIMIT_MAX; ++i) {
    size_t value = 0;
    if (driver.cuCtxGetLimit(&value, static_cast<CUlimit>(i)) == CUDA_SUCCESS) limits[i] = value;
  }
  int least = 0, greatest = 0;
  driver.cuCtxGetStreamPriorityRange(&least, &greatest);
  priorities[0] = least;
  priorities[1] = greatest;
  // The context is kept. The client will want it next, and creating it takes most of a second.
  executor.gate().has_context(slot);
}

}  // namespace

CUresult handle(Executor& executor, const wire::cuda::snapshot_request&,
                wire::cuda::snapshot_reply& reply) {
  Scope scope(executor);
  const uint32_t slots = executor.assignment().slice_count;
  DeviceTexts texts;
  int32_t* attributes = scope.scratch<int32_t>(uint64_t{slots} * kAttributes * 2);
  uint64_t* totals = scope.scratch<uint64_t>(slots);
  uint64_t* limits = scope.scratch<uint64_t>(uint64_t{slots} * CU_LIMIT_MAX);
  int32_t* priorities = scope.scratch<int32_t>(uint64_t{slots} * 2);
  if (!scope.ok()) return scope.error();
  for (uint32_t slot = 0; slot < slots; ++slot) {
    const CUdevice device = executor.device_of(slot);
    if (device < 0) return CUDA_ERROR_INVALID_DEVICE;
    const CUresult result = describe_device(executor.driver(), device, executor.mirrors().shares(),
                                            &texts, attributes + slot * kAttributes * 2);
    if (result != CUDA_SUCCESS) return result;
    totals[slot] = executor.charge().quota(slot);
    context_facts(executor, slot, limits + slot * CU_LIMIT_MAX, priorities + slot * 2);
  }
  int version = 0;
  executor.driver().cuDriverGetVersion(&version);
  auto bytes_of = [&](const std::string& text) {
    uint8_t* copy = scope.scratch<uint8_t>(text.size());
    if (copy != nullptr) std::memcpy(copy, text.data(), text.size());
    return wire::Bytes{copy, copy != nullptr ? text.size() : 0};
  };
  reply.driver_version = version;
  reply.slots = slots;
  reply.attribute_count = kAttributes;
  reply.attributes = {attributes, uint64_t{slots} * kAttributes * 2};
  reply.names = bytes_of(texts.names);
  reply.pci = bytes_of(texts.pci);
  reply.uuids = bytes_of(texts.uuids);
  reply.total_memory = {totals, slots};
  reply.limits = {limits, uint64_t{slots} * CU_LIMIT_MAX};
  reply.priorities = {priorities, uint64_t{slots} * 2};
  reply.keep_ptx = texts.keeps_ptx();
  return scope.ok() ? CUDA_SUCCESS : scope.error();
}

CUresult handle(Executor& executor, const wire::cuda::error_text_request& request,
                wire::cuda::error_text_reply& reply) {
  const char* text = nullptr;
  const CUresult result =
      executor.driver().cuGetErrorString(static_cast<CUresult>(request.code), &text);
  if (result == CUDA_SUCCESS && text != nullptr) reply.text = wire::bytes_of(text);
  return result;
}

CUresult handle(Executor& executor, const wire::cuda::peer_attribute_request& request,
                wire::cuda::peer_attribute_reply& reply) {
  Scope scope(executor);
  const CUdevice source = scope.device(request.source),
                 destination = scope.device(request.destination);
  if (!scope.ok()) return scope.error();
  return executor.driver().cuDeviceGetP2PAttribute(
      &reply.value, static_cast<CUdevice_P2PAttribute>(request.attribute), source, destination);
}

CUresult handle(Executor& executor, const wire::cuda::primary_retain_request& request,
                wire::cuda::primary_retain_reply&) {
  Scope scope(executor);
  const CUdevice device = scope.device(request.slot);
  if (!scope.ok()) return scope.error();
  WorkerContext* context = executor.contexts().find(request.context);
  if (context != nullptr && (!context->primary || context->slot != request.slot))
    return CUDA_ERROR_INVALID_CONTEXT;
  if (context == nullptr) {
    scope.reserve(Kind::kContext, request.context);
    if (!scope.ok()) return scope.error();
    context = executor.contexts().add(request.context);
  }
  if (context == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  CUcontext driver_context = nullptr;
  const CUresult result = executor.driver().cuDevicePrimaryCtxRetain(&driver_context, device);
  if (result != CUDA_SUCCESS) {
    executor.remove_context(request.context);
    return result;
  }
  context->context = driver_context;
  context->slot = request.slot;
  context->primary = true;
  ++context->retains;
  executor.gate().has_context(request.slot);
  executor.objects().bind(Kind::kContext, request.context, driver_context);
  return executor.contexts().use(driver_context);
}

CUresult handle(Executor& executor, const wire::cuda::primary_reset_request& request,
                wire::cuda::primary_reset_reply&) {
  Scope scope(executor);
  const CUdevice device = scope.device(request.slot);
  if (!scope.ok()) return scope.error();
  CUcontext primary = nullptr;
  executor.contexts().for_each([&](const WorkerContext& context) {
    if (context.primary && context.slot == request.slot) primary = context.context;
  });
  if (primary != nullptr && !executor.prepare_to_end(primary)) return CUDA_ERROR_UNKNOWN;
  executor.waiters().staging().forget();
  const CUresult result = executor.driver().cuDevicePrimaryCtxReset_v2(device);
  executor.kept_memory().forget_slot(request.slot);
  executor.objects().for_each(Kind::kContext, [&](uint64_t id, void*) {
    WorkerContext* context = executor.contexts().find(id);
    if (context != nullptr && context->primary && context->slot == request.slot)
      executor.empty_context(context);
  });
  executor.contexts().forget_current();
  return result;
}

// The driver's own answer, from the private table that cuBLASLt reads. If the driver has no such
// table, the answer is an even spread.
CUresult handle(Executor& executor, const wire::cuda::multiprocessor_layout_request&,
                wire::cuda::multiprocessor_layout_reply& reply) {
  using Get = CUresult(uint8_t**, uint8_t**);
  using Done = CUresult(uint8_t*, uint8_t*);
  static const CUuuid kTable = {{0x17, 0x34, static_cast<char>(0xdc), 0x26, static_cast<char>(0x80),
                                 0x0d, 0x47, 0x45, static_cast<char>(0x87), 0x26,
                                 static_cast<char>(0xc0), static_cast<char>(0xf1),
                                 static_cast<char>(0xe7), static_cast<char>(0xdd),
                                 static_cast<char>(0x8b), static_cast<char>(0xca)}};
  Scope scope(executor);
  int count = 0;
  CUresult result = executor.driver().cuDeviceGetAttribute(
      &count, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, executor.device_of(executor.slot()));
  if (result != CUDA_SUCCESS || count <= 0)
    return result != CUDA_SUCCESS ? result : CUDA_ERROR_UNKNOWN;
  const auto bytes = static_cast<uint64_t>(count);
  uint8_t* group = scope.scratch<uint8_t>(bytes);
  uint8_t* place = scope.scratch<uint8_t>(bytes);
  if (!scope.ok()) return scope.error();
  for (uint64_t i = 0; i < bytes; ++i) {
    group[i] = static_cast<uint8_t>(i % 8);
    place[i] = static_cast<uint8_t>(i / 8);
  }
  const void* table = nullptr;
  const bool known = executor.driver().cuGetExportTable != nullptr &&
                     executor.driver().cuGetExportTable(&table, &kTable) == CUDA_SUCCESS;
  const void* const* slots = static_cast<const void* const*>(table);
  if (known && slots != nullptr && reinterpret_cast<uintptr_t>(slots[0]) >= 14 * sizeof(void*)) {
    uint8_t *real_group = nullptr, *real_place = nullptr;
    result =
        reinterpret_cast<Get*>(reinterpret_cast<uintptr_t>(slots[4]))(&real_group, &real_place);
    if (result == CUDA_SUCCESS && real_group != nullptr && real_place != nullptr) {
      std::memcpy(group, real_group, bytes);
      std::memcpy(place, real_place, bytes);
      reinterpret_cast<Done*>(reinterpret_cast<uintptr_t>(slots[13]))(real_group, real_place);
    }
  }
  reply.group = {group, bytes};
  reply.place = {place, bytes};
  return CUDA_SUCCESS;
}

}  // namespace tendril::worker::cuda
