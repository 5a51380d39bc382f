// SPDX-License-Identifier: Apache-2.0
// Handlers of api/cuda/device.spec: the snapshot, primary contexts, facts of devices.
#include <cstring>

#include "api/cuda_handlers.gen.h"
#include "worker/cuda/executor/scope.h"
#include "worker/cuda/executor/waits.h"
#include "worker/cuda/memory/kept_memory.h"
#include "worker/cuda/memory/mirror.h"
#include "worker/cuda/module.h"

namespace tendril::worker::cuda {
namespace {

// More than any driver knows today; the unknown ones answer an error each.
constexpr uint32_t kAttributes = 160;

struct Texts {
  std::string names, pci, uuids;
};

CUresult describe(Executor& w, uint32_t slot, Texts* texts, int32_t* attributes, uint64_t* total) {
  gpu::Driver& d = w.driver();
  const CUdevice device = w.device_of(slot);
  if (device < 0) return CUDA_ERROR_INVALID_DEVICE;
  char name[256] = {}, pci[64] = {};
  CUuuid uuid{};
  const CUresult result = d.cuDeviceGetName(name, sizeof name - 1, device);
  if (result != CUDA_SUCCESS) return result;
  d.cuDeviceGetPCIBusId(pci, sizeof pci - 1, device);
  d.cuDeviceGetUuid_v2(&uuid, device);
  texts->names.append(name).push_back('\0');
  texts->pci.append(pci).push_back('\0');
  texts->uuids.append(uuid.bytes, sizeof uuid.bytes);
  for (uint32_t i = 0; i < kAttributes; ++i) {
    int value = 0;
    const CUresult answer =
        i == 0 ? CUDA_ERROR_INVALID_VALUE
               : d.cuDeviceGetAttribute(&value, static_cast<CUdevice_attribute>(i), device);
    attributes[i * 2] = answer;
    attributes[i * 2 + 1] = value;
  }
  // What cannot work between machines must not be promised: programs then take the paths that do.
  const CUdevice_attribute absent[] = {
      CU_DEVICE_ATTRIBUTE_PAGEABLE_MEMORY_ACCESS,
      CU_DEVICE_ATTRIBUTE_PAGEABLE_MEMORY_ACCESS_USES_HOST_PAGE_TABLES,
      CU_DEVICE_ATTRIBUTE_DIRECT_MANAGED_MEM_ACCESS_FROM_HOST,
      CU_DEVICE_ATTRIBUTE_HOST_NATIVE_ATOMIC_SUPPORTED,
      CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_SUPPORTED,
      CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED,
      CU_DEVICE_ATTRIBUTE_DMA_BUF_SUPPORTED,
      CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_FABRIC_SUPPORTED,
      CU_DEVICE_ATTRIBUTE_MULTICAST_SUPPORTED};
  for (CUdevice_attribute which : absent) attributes[which * 2 + 1] = 0;
  if (!w.mirrors().shares()) attributes[CU_DEVICE_ATTRIBUTE_CONCURRENT_MANAGED_ACCESS * 2 + 1] = 0;
  attributes[CU_DEVICE_ATTRIBUTE_MEMPOOL_SUPPORTED_HANDLE_TYPES * 2 + 1] &=
      CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
  *total = w.charge().quota(slot);
  return CUDA_SUCCESS;
}

// Limits and priorities need a context; they are the same for every context of a device.
void context_facts(Executor& w, uint32_t slot, uint64_t* limits, int32_t* priorities) {
  gpu::Driver& d = w.driver();
  CUcontext context = nullptr;
  const CUdevice device = w.device_of(slot);
  if (d.cuDevicePrimaryCtxRetain(&context, device) != CUDA_SUCCESS) return;
  w.contexts().use(context);
  for (int i = 0; i < CU_LIMIT_MAX; ++i) {
    size_t value = 0;
    if (d.cuCtxGetLimit(&value, static_cast<CUlimit>(i)) == CUDA_SUCCESS) limits[i] = value;
  }
  int least = 0, greatest = 0;
  d.cuCtxGetStreamPriorityRange(&least, &greatest);
  priorities[0] = least;
  priorities[1] = greatest;
  // The context is kept: the client will want it next, and creating it took most of a second.
  w.gate().has_context(slot);
}

}  // namespace

CUresult handle(Executor& w, const wire::cuda::snapshot_request&, wire::cuda::snapshot_reply& r) {
  Scope s(w);
  const uint32_t slots = w.assignment().slice_count;
  Texts texts;
  int32_t* attributes = s.scratch<int32_t>(uint64_t{slots} * kAttributes * 2);
  uint64_t* totals = s.scratch<uint64_t>(slots);
  uint64_t* limits = s.scratch<uint64_t>(uint64_t{slots} * CU_LIMIT_MAX);
  int32_t* priorities = s.scratch<int32_t>(uint64_t{slots} * 2);
  if (!s.ok()) return s.error();
  for (uint32_t slot = 0; slot < slots; ++slot) {
    const CUresult result =
        describe(w, slot, &texts, attributes + slot * kAttributes * 2, totals + slot);
    if (result != CUDA_SUCCESS) return result;
    context_facts(w, slot, limits + slot * CU_LIMIT_MAX, priorities + slot * 2);
  }
  int version = 0;
  w.driver().cuDriverGetVersion(&version);
  auto bytes_of = [&](const std::string& text) {
    uint8_t* copy = s.scratch<uint8_t>(text.size());
    if (copy != nullptr) std::memcpy(copy, text.data(), text.size());
    return wire::Bytes{copy, copy != nullptr ? text.size() : 0};
  };
  r.driver_version = version;
  r.slots = slots;
  r.attribute_count = kAttributes;
  r.attributes = {attributes, uint64_t{slots} * kAttributes * 2};
  r.names = bytes_of(texts.names);
  r.pci = bytes_of(texts.pci);
  r.uuids = bytes_of(texts.uuids);
  r.total_memory = {totals, slots};
  r.limits = {limits, uint64_t{slots} * CU_LIMIT_MAX};
  r.priorities = {priorities, uint64_t{slots} * 2};
  r.keep_ptx = texts.names.find("Test Device") != std::string::npos;
  return s.ok() ? CUDA_SUCCESS : s.error();
}

CUresult handle(Executor& w, const wire::cuda::error_text_request& m,
                wire::cuda::error_text_reply& r) {
  const char* text = nullptr;
  const CUresult result = w.driver().cuGetErrorString(static_cast<CUresult>(m.code), &text);
  if (result == CUDA_SUCCESS && text != nullptr) r.text = wire::bytes_of(text);
  return result;
}

CUresult handle(Executor& w, const wire::cuda::peer_attribute_request& m,
                wire::cuda::peer_attribute_reply& r) {
  Scope s(w);
  const CUdevice source = s.device(m.source), destination = s.device(m.destination);
  if (!s.ok()) return s.error();
  return w.driver().cuDeviceGetP2PAttribute(
      &r.value, static_cast<CUdevice_P2PAttribute>(m.attribute), source, destination);
}

CUresult handle(Executor& w, const wire::cuda::primary_retain_request& m,
                wire::cuda::primary_retain_reply&) {
  Scope s(w);
  const CUdevice device = s.device(m.slot);
  if (!s.ok()) return s.error();
  WorkerContext* context = w.contexts().find(m.context);
  if (context == nullptr) context = w.contexts().add(m.context);
  if (context == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  CUcontext driver_context = nullptr;
  const CUresult result = w.driver().cuDevicePrimaryCtxRetain(&driver_context, device);
  if (result != CUDA_SUCCESS) {
    w.remove_context(m.context);
    return result;
  }
  context->context = driver_context;
  context->slot = m.slot;
  context->primary = true;
  ++context->retains;
  w.gate().has_context(m.slot);
  w.objects().bind(Kind::kContext, m.context, driver_context);
  return w.contexts().use(driver_context);
}

CUresult handle(Executor& w, const wire::cuda::primary_reset_request& m,
                wire::cuda::primary_reset_reply&) {
  Scope s(w);
  const CUdevice device = s.device(m.slot);
  if (!s.ok()) return s.error();
  w.waiters().deliver_all();
  w.waiters().reclaim(0);
  w.waiters().staging().forget();
  const CUresult result = w.driver().cuDevicePrimaryCtxReset_v2(device);
  w.kept_memory().forget_slot(m.slot);
  w.objects().for_each(Kind::kContext, [&](uint64_t id, void*) {
    WorkerContext* context = w.contexts().find(id);
    if (context != nullptr && context->primary && context->slot == m.slot) w.empty_context(context);
  });
  w.contexts().forget_current();
  return result;
}

// The driver's own answer, from the private table that cuBLASLt reads it from; a driver without it
// gets an even spread.
CUresult handle(Executor& w, const wire::cuda::multiprocessor_layout_request&,
                wire::cuda::multiprocessor_layout_reply& r) {
  using Get = CUresult(uint8_t**, uint8_t**);
  using Done = CUresult(uint8_t*, uint8_t*);
  static const CUuuid kTable = {{0x17, 0x34, static_cast<char>(0xdc), 0x26, static_cast<char>(0x80),
                                 0x0d, 0x47, 0x45, static_cast<char>(0x87), 0x26,
                                 static_cast<char>(0xc0), static_cast<char>(0xf1),
                                 static_cast<char>(0xe7), static_cast<char>(0xdd),
                                 static_cast<char>(0x8b), static_cast<char>(0xca)}};
  Scope s(w);
  int count = 0;
  CUresult result = w.driver().cuDeviceGetAttribute(
      &count, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, w.device_of(w.slot()));
  if (result != CUDA_SUCCESS || count <= 0)
    return result != CUDA_SUCCESS ? result : CUDA_ERROR_UNKNOWN;
  const auto bytes = static_cast<uint64_t>(count);
  uint8_t* group = s.scratch<uint8_t>(bytes);
  uint8_t* place = s.scratch<uint8_t>(bytes);
  if (!s.ok()) return s.error();
  for (uint64_t i = 0; i < bytes; ++i) {
    group[i] = static_cast<uint8_t>(i % 8);
    place[i] = static_cast<uint8_t>(i / 8);
  }
  const void* table = nullptr;
  const bool known = w.driver().cuGetExportTable != nullptr &&
                     w.driver().cuGetExportTable(&table, &kTable) == CUDA_SUCCESS;
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
  r.group = {group, bytes};
  r.place = {place, bytes};
  return CUDA_SUCCESS;
}

}  // namespace tendril::worker::cuda
