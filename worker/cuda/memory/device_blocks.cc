// SPDX-License-Identifier: Apache-2.0
// See device_blocks.h.
#include "worker/cuda/memory/device_blocks.h"

#include <algorithm>
#include <iterator>

#include "worker/cuda/memory/direct.h"

namespace tendril::worker::cuda {
namespace {

constexpr uint64_t kPage = base::kGpuPageBytes;
constexpr auto kBlockDescriptor = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
// Addresses are plentiful, and each window costs the driver a mapping.
constexpr uint64_t kWindowLeast = 64ull << 30;
constexpr uint64_t kWindowAlign = 1ull << 30;
constexpr uint64_t kArenaMost = 16ull << 40;

bool has_calls(const gpu::Driver& driver) {
  return driver.cuMemAddressReserve != nullptr && driver.cuMemAddressFree != nullptr &&
         driver.cuMemCreate != nullptr && driver.cuMemRelease != nullptr &&
         driver.cuMemMap != nullptr && driver.cuMemUnmap != nullptr &&
         driver.cuMemSetAccess != nullptr && driver.cuMemGetAllocationGranularity != nullptr &&
         driver.cuMemExportToShareableHandle != nullptr &&
         driver.cuMemImportFromShareableHandle != nullptr;
}

}  // namespace

CUresult wait_for_all(Executor& executor) {
  gpu::Driver& driver = executor.driver();
  if (executor.streams().capturing()) {
    CUdeviceptr least = 0;
    const CUresult result = driver.cuMemAlloc_v2(&least, 1);
    return result == CUDA_SUCCESS ? driver.cuMemFree_v2(least) : result;
  }
  const WorkerContext* const own = executor.context();
  CUresult own_result = CUDA_SUCCESS;
  executor.contexts().for_each([&](WorkerContext& context) {
    if (context.context == nullptr) return;
    CUresult result = executor.contexts().use(context.context);
    if (result == CUDA_SUCCESS) result = driver.cuCtxSynchronize();
    if (&context == own) own_result = result;  // others may have ended, or tell it themselves
  });
  if (own != nullptr) executor.contexts().use(own->context);
  return own_result;
}

bool anything_runs(Executor& executor) {
  gpu::Driver& driver = executor.driver();
  if (executor.streams().capturing()) return true;
  bool runs = false;
  executor.contexts().for_each([&](const WorkerContext& context) {
    if (runs || context.context == nullptr) return;
    runs = context.waits.load() != 0;
    if (runs || executor.contexts().use(context.context) != CUDA_SUCCESS) return;
    runs = driver.cuStreamQuery(CU_STREAM_LEGACY) == CUDA_ERROR_NOT_READY;
    for (CUstream stream : context.touched)
      runs = runs || driver.cuStreamQuery(stream) == CUDA_ERROR_NOT_READY;
  });
  return runs;
}

DeviceBlocks::~DeviceBlocks() {
  while (!blocks_.empty()) erase(&blocks_.begin()->second);
  for (const Window& window : windows_) w_.driver().cuMemAddressFree(window.base, window.bytes);
}

DeviceBlocks::Device& DeviceBlocks::device_of(uint32_t slot) {
  Device& device = devices_[slot];
  if (device.known) return device;
  device.known = true;
  device.device = w_.device_of(slot);
  gpu::Driver& driver = w_.driver();
  if (device.device < 0 || !has_calls(driver)) return device;
  const auto has = [&](CUdevice_attribute attribute) {
    int value = 0;
    return driver.cuDeviceGetAttribute(&value, attribute, device.device) == CUDA_SUCCESS &&
           value != 0;
  };
  CUmemAllocationProp& properties = device.properties;
  properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.location = {CU_MEM_LOCATION_TYPE_DEVICE, device.device};
  properties.requestedHandleTypes = kBlockDescriptor;  // cuIpcGetMemHandle wants it later
  // What cuMemAlloc gives, other devices of the machine may reach.
  if (has(CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED))
    properties.allocFlags.gpuDirectRDMACapable = 1;
  size_t granularity = 0;
  device.usable =
      has(CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED) &&
      has(CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED) &&
      driver.cuMemGetAllocationGranularity(&granularity, &properties,
                                           CU_MEM_ALLOC_GRANULARITY_MINIMUM) == CUDA_SUCCESS &&
      granularity != 0 && kPage % granularity == 0;
  return device;
}

bool DeviceBlocks::open_window(uint32_t slot, uint64_t bytes) {
  const uint64_t wanted =
      base::rounded_up(std::max({bytes, kWindowLeast, 4 * w_.charge().quota(slot)}), kWindowAlign);
  for (const uint64_t size : {wanted, base::rounded_up(bytes, kPage)}) {
    CUdeviceptr address = 0;
    if (w_.driver().cuMemAddressReserve(&address, size, 0, 0, 0) != CUDA_SUCCESS) continue;
    windows_.push_back({address, size});
    give_addresses(slot, address, size);
    return true;
  }
  return false;
}

// First fit, so that few page tables are needed. 0: there are no addresses.
uint64_t DeviceBlocks::take_addresses(uint32_t slot, uint64_t bytes) {
  base::Holes<>& holes = device_of(slot).holes;
  uint64_t address = 0;
  if (holes.take(bytes, &address)) return address;
  return open_window(slot, bytes) && holes.take(bytes, &address) ? address : 0;
}

void DeviceBlocks::give_addresses(uint32_t slot, uint64_t address, uint64_t bytes) {
  devices_[slot].holes.add(address, bytes);
}

void DeviceBlocks::avoid(uint64_t address, uint64_t bytes) {
  for (auto& [slot, device] : devices_) device.holes.cut_out(address, bytes);
}

// Maps the block's physical memory, for all that reach it. On failure nothing is mapped.
CUresult DeviceBlocks::map(const Block& block) {
  gpu::Driver& driver = w_.driver();
  CUresult result = driver.cuMemMap(block.address, block.bytes, 0, block.physical, 0);
  if (result != CUDA_SUCCESS) return result;
  std::vector<CUmemAccessDesc> access = {
      {{CU_MEM_LOCATION_TYPE_DEVICE, device_of(block.slot).device},
       CU_MEM_ACCESS_FLAGS_PROT_READWRITE}};
  const auto add = [&](uint32_t slot) {
    const CUdevice device = device_of(slot).device;
    for (const CUmemAccessDesc& known : access)
      if (known.location.id == device) return;
    access.push_back({{CU_MEM_LOCATION_TYPE_DEVICE, device}, CU_MEM_ACCESS_FLAGS_PROT_READWRITE});
  };
  for (const auto& [from, to] : reach_)
    if (to == block.context) add(from->slot);
  if (!block.token.empty()) add(w_.slot());  // opened where it is to be used
  result = driver.cuMemSetAccess(block.address, block.bytes, access.data(), access.size());
  if (result != CUDA_SUCCESS) driver.cuMemUnmap(block.address, block.bytes);
  return result;
}

// Gives a new block its memory, and keeps the block.
CUresult DeviceBlocks::fill(Block* block) {
  size_t limit = 0;  // a context that has failed refuses allocations
  CUresult result = w_.driver().cuCtxGetLimit(&limit, CU_LIMIT_STACK_SIZE);
  block->slot = w_.slot();
  block->context = w_.context();
  if (result == CUDA_SUCCESS) result = restore_memory(block);
  if (result == CUDA_SUCCESS) blocks_[block->address] = *block;
  return result;
}

CUresult DeviceBlocks::make(uint64_t bytes, CUdeviceptr* address) {
  Block block;
  block.bytes = base::whole_pages(bytes);
  block.address = take_addresses(w_.slot(), block.bytes);
  if (block.address == 0) return CUDA_ERROR_OUT_OF_MEMORY;
  const CUresult result = fill(&block);
  if (result == CUDA_SUCCESS)
    *address = block.address;
  else
    give_addresses(w_.slot(), block.address, block.bytes);
  return result;
}

bool DeviceBlocks::open_arena(uint64_t wished, uint64_t bytes, uint64_t own) {
  const uint32_t slot = w_.slot();
  Device& device = device_of(slot);
  if (!serves(slot) || device.arena_bytes != 0 || wished % kPage != 0 || bytes % kPage != 0 ||
      own % kPage != 0 || own == 0 || own >= bytes || bytes > kArenaMost)
    return false;
  gpu::Driver& driver = w_.driver();
  CUdeviceptr address = 0;
  if (driver.cuMemAddressReserve(&address, bytes, 0, wished, 0) != CUDA_SUCCESS) return false;
  if (address != wished) {
    driver.cuMemAddressFree(address, bytes);
    return false;
  }
  windows_.push_back({address, bytes});
  device.arena_base = address;
  device.arena_bytes = own;
  // From now on memory comes from here only, so it never collides with anything of the client's.
  device.holes.clear();
  give_addresses(slot, address + own, bytes - own);
  return true;
}

CUresult DeviceBlocks::make_at(uint64_t address, uint64_t bytes) {
  const Device& device = device_of(w_.slot());
  const uint64_t offset = address - device.arena_base;
  if (bytes == 0 || bytes % kPage != 0 || address % kPage != 0 || offset >= device.arena_bytes ||
      bytes > device.arena_bytes - offset)
    return CUDA_ERROR_INVALID_VALUE;
  const auto after = blocks_.lower_bound(address + bytes);
  if (after != blocks_.begin()) {
    const Block& before = std::prev(after)->second;
    if (before.address + before.bytes > address) return CUDA_ERROR_INVALID_VALUE;
  }
  Block block;
  block.address = address;
  block.bytes = bytes;
  block.of_arena = true;
  return fill(&block);
}

CUresult DeviceBlocks::restore_memory(Block* block) {
  gpu::Driver& driver = w_.driver();
  if (block->physical != 0) return CUDA_SUCCESS;
  CUresult result =
      driver.cuMemCreate(&block->physical, block->bytes, &device_of(block->slot).properties, 0);
  if (result == CUDA_SUCCESS) {
    result = map(*block);
    if (result != CUDA_SUCCESS) driver.cuMemRelease(block->physical);
  }
  if (result != CUDA_SUCCESS) block->physical = 0;
  return result;
}

CUresult DeviceBlocks::release_memory(Block* block) {
  if (block->physical == 0) return CUDA_SUCCESS;
  w_.direct().forget(*block);
  const CUresult result = w_.driver().cuMemUnmap(block->address, block->bytes);
  if (result != CUDA_SUCCESS) return result;
  w_.driver().cuMemRelease(block->physical);
  block->physical = 0;
  return CUDA_SUCCESS;
}

DeviceBlocks::Block* DeviceBlocks::find(uint64_t address) {
  auto after = blocks_.upper_bound(address);
  if (after == blocks_.begin()) return nullptr;
  Block& block = (--after)->second;
  return address - block.address < block.bytes ? &block : nullptr;
}

void DeviceBlocks::erase(Block* block) {
  release_memory(block);
  if (!block->of_arena) give_addresses(block->slot, block->address, block->bytes);
  blocks_.erase(block->address);
}

CUresult DeviceBlocks::give_back(Block* block) {
  const CUresult result = wait_for_all(w_);
  if (result == CUDA_SUCCESS) erase(block);
  return result;
}

bool DeviceBlocks::reaches(CUdevice device, const WorkerContext* to) {
  for (const auto& [from, target] : reach_)
    if (target == to && device_of(from->slot).device == device) return true;
  return false;
}

CUresult DeviceBlocks::let_reach(const WorkerContext* from, const WorkerContext* to, bool allowed) {
  const CUdevice device = device_of(from->slot).device;
  const bool before = reaches(device, to);
  if (allowed)
    reach_.insert({from, to});
  else
    reach_.erase({from, to});
  if (reaches(device, to) == before || device == device_of(to->slot).device) return CUDA_SUCCESS;
  const CUmemAccessDesc access = {
      {CU_MEM_LOCATION_TYPE_DEVICE, device},
      allowed ? CU_MEM_ACCESS_FLAGS_PROT_READWRITE : CU_MEM_ACCESS_FLAGS_PROT_NONE};
  CUresult result = CUDA_SUCCESS;
  for (const auto& [address, block] : blocks_) {
    if (block.context != to || block.physical == 0 || !block.token.empty()) continue;
    const CUresult set = w_.driver().cuMemSetAccess(address, block.bytes, &access, 1);
    if (result == CUDA_SUCCESS) result = set;
  }
  return result;
}

CUresult DeviceBlocks::export_to(Block* block, base::Fd* fd) {
  int raw = -1;
  block->exported = true;  // also if that fails: the client thinks so
  const CUresult result =
      w_.driver().cuMemExportToShareableHandle(&raw, block->physical, kBlockDescriptor, 0);
  if (result != CUDA_SUCCESS) return result;
  *fd = base::Fd(raw);
  return CUDA_SUCCESS;
}

CUresult DeviceBlocks::import(const std::string& token, const base::Fd& fd, uint32_t slot,
                              uint64_t bytes, Block** out) {
  for (auto& [address, known] : blocks_) {
    if (known.token != token || known.context != w_.context()) continue;
    ++known.opened;
    *out = &known;
    return CUDA_SUCCESS;
  }
  gpu::Driver& driver = w_.driver();
  if (!serves(slot)) return CUDA_ERROR_NOT_SUPPORTED;
  Block block;
  block.bytes = base::whole_pages(bytes);
  block.slot = slot;
  block.context = w_.context();
  block.token = token;
  block.opened = 1;
  CUresult result = driver.cuMemImportFromShareableHandle(
      &block.physical, reinterpret_cast<void*>(static_cast<intptr_t>(fd.get())), kBlockDescriptor);
  if (result != CUDA_SUCCESS) return result;
  block.address = take_addresses(slot, block.bytes);
  result = block.address == 0 ? CUDA_ERROR_OUT_OF_MEMORY : map(block);
  if (result != CUDA_SUCCESS) {
    if (block.address != 0) give_addresses(slot, block.address, block.bytes);
    driver.cuMemRelease(block.physical);
    return result;
  }
  *out = &(blocks_[block.address] = block);
  return CUDA_SUCCESS;
}

CUresult DeviceBlocks::close(Block* block) {
  if (block->opened > 1) {
    --block->opened;
    return CUDA_SUCCESS;
  }
  return give_back(block);
}

}  // namespace tendril::worker::cuda
