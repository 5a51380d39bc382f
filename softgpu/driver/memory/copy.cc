// SPDX-License-Identifier: Apache-2.0
// The copy engine. See copy.h; the calls are in copy_calls.cc.

#include "softgpu/driver/memory/copy.h"

#include <algorithm>
#include <cstring>

#include "softgpu/driver/config.h"
#include "softgpu/driver/memory/array.h"
#include "softgpu/driver/memory/memory_map.h"
#include "softgpu/driver/stream/device_work.h"

namespace tendril::softgpu {
namespace {

constexpr size_t kStageBytes =
    1u << 20;  // a pageable source up to this size is copied at once, so nobody waits for it
constexpr uint64_t kLimit =
    1ull << 46;  // larger than any sane copy; keeps products from overflowing

struct Side {
  CUmemorytype type;
  uint64_t address;
  Array* array;
  size_t x, y, z, pitch, height;
};

Side source_side(const CopyWork& work) {
  const CUDA_MEMCPY3D& p = work.params;
  uint64_t address =
      p.srcMemoryType == CU_MEMORYTYPE_HOST ? reinterpret_cast<uint64_t>(p.srcHost) : p.srcDevice;
  return {p.srcMemoryType, address,    work.source_array.get(), p.srcXInBytes, p.srcY, p.srcZ,
          p.srcPitch,      p.srcHeight};
}

Side target_side(const CopyWork& work) {
  const CUDA_MEMCPY3D& p = work.params;
  uint64_t address =
      p.dstMemoryType == CU_MEMORYTYPE_HOST ? reinterpret_cast<uint64_t>(p.dstHost) : p.dstDevice;
  return {p.dstMemoryType, address,    work.target_array.get(), p.dstXInBytes, p.dstY, p.dstZ,
          p.dstPitch,      p.dstHeight};
}

// Pitch and rows per slice. Defaults: tight rows, and as many rows as are copied.
void complete(Side& side, const CUDA_MEMCPY3D& p) {
  if (side.array != nullptr) {
    side.pitch = side.array->pitch;
    side.height = side.array->rows;
    return;
  }
  if (side.pitch == 0) side.pitch = p.WidthInBytes + side.x;
  if (side.height == 0) side.height = p.Height + side.y;
}

uint64_t first_byte(const Side& side) {
  return (side.z * side.height + side.y) * side.pitch + side.x;
}

uint64_t extent(const Side& side, const CUDA_MEMCPY3D& p) {
  return ((p.Depth - 1) * side.height + p.Height - 1) * side.pitch + p.WidthInBytes;
}

CUresult check(Side side, const CUDA_MEMCPY3D& p) {
  complete(side, p);
  unsigned __int128 reach =
      static_cast<unsigned __int128>(side.z + p.Depth) * side.height * side.pitch;
  if (side.x > kLimit || side.y > kLimit || side.z > kLimit || side.pitch > kLimit ||
      side.height > kLimit || reach > kLimit)
    return CUDA_ERROR_INVALID_VALUE;
  if (p.Height > 1 || p.Depth > 1) {
    if (side.x + p.WidthInBytes > side.pitch) return CUDA_ERROR_INVALID_VALUE;
    if (p.Depth > 1 && side.y + p.Height > side.height) return CUDA_ERROR_INVALID_VALUE;
  }
  if (side.array != nullptr) {
    bool fits = side.x + p.WidthInBytes <= side.array->pitch &&
                side.y + p.Height <= side.array->rows && side.z + p.Depth <= side.array->slices;
    return fits ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
  }
  if (side.address == 0) return CUDA_ERROR_INVALID_VALUE;
  MemoryMap& map = MemoryMap::instance();
  if (side.type == CU_MEMORYTYPE_HOST) {
    // Device memory passed as host memory would crash the process. Unified addressing makes it a
    // device address.
    return CUDA_SUCCESS;
  }
  if (map.resolve(side.address + first_byte(side), extent(side, p)) != nullptr) return CUDA_SUCCESS;
  bool ours = map.known(side.address) || address_plan().contains(side.address);
  return side.type == CU_MEMORYTYPE_UNIFIED && !ours ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

// Where the first byte is now. Null if the memory has been freed since the call.
uint8_t* locate(const Side& side, const CUDA_MEMCPY3D& p) {
  if (side.array != nullptr) return side.array->bytes.data() + first_byte(side);
  uint64_t address = side.address + first_byte(side);
  MemoryMap& map = MemoryMap::instance();
  if (uint8_t* at = map.resolve(address, extent(side, p))) return at;
  bool host = side.type == CU_MEMORYTYPE_HOST || side.type == CU_MEMORYTYPE_UNIFIED;
  return host && !address_plan().contains(address) ? reinterpret_cast<uint8_t*>(address) : nullptr;
}

bool pageable(CUmemorytype type, uint64_t address) {
  if (type != CU_MEMORYTYPE_HOST && type != CU_MEMORYTYPE_UNIFIED) return false;
  return !MemoryMap::instance().known(address);
}

bool host_side(CUmemorytype type, uint64_t address) {
  if (type == CU_MEMORYTYPE_HOST) return true;
  if (type != CU_MEMORYTYPE_UNIFIED) return false;
  auto found = MemoryMap::instance().find(address);
  return !found || !found->on_device();
}

// The seed decides which bit.
void flip_one_bit(uint8_t* bytes, uint64_t count) {
  const uint64_t bit = faults().seed * 0x9e3779b97f4a7c15 % (count * 8);
  bytes[bit / 8] = static_cast<uint8_t>(bytes[bit / 8] ^ (1u << bit % 8));
}

CUresult take_array(CUmemorytype type, CUarray handle, ArrayPtr* out) {
  if (type != CU_MEMORYTYPE_ARRAY) return CUDA_SUCCESS;
  check_live(handle);
  *out = arrays().get(handle);
  return *out ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

// The contexts that a copy in a legacy stream is ordered against. Empty if it concerns the current
// one only.
std::vector<ContextPtr> contexts_of_copy(const CopyWork& work, const ContextPtr& current,
                                         std::vector<ContextPtr> list) {
  bool named = !list.empty();
  for (const Side& side : {source_side(work), target_side(work)}) {
    if (side.array != nullptr || side.type == CU_MEMORYTYPE_HOST) continue;
    auto memory = MemoryMap::instance().find(side.address);
    if (memory && memory->on_device()) list.push_back(contexts().get(memory->context));
  }
  if (named) list.push_back(current);
  std::erase_if(list, [&](const ContextPtr& one) { return !one || (!named && one == current); });
  std::sort(list.begin(), list.end());
  list.erase(std::unique(list.begin(), list.end()), list.end());
  return list;
}

}  // namespace

CUDA_MEMCPY3D flat_copy(CUmemorytype to, uint64_t target, CUmemorytype from, uint64_t source,
                        size_t bytes) {
  CUDA_MEMCPY3D p = {};
  p.srcMemoryType = from;
  p.dstMemoryType = to;
  p.srcHost = reinterpret_cast<const void*>(source);
  p.dstHost = reinterpret_cast<void*>(target);
  p.srcDevice = source;
  p.dstDevice = target;
  p.WidthInBytes = bytes;
  p.Height = 1;
  p.Depth = 1;
  return p;
}

CUresult make_copy(const CUDA_MEMCPY3D& p, std::shared_ptr<CopyWork>* out) {
  auto valid = [](CUmemorytype type) {
    return type >= CU_MEMORYTYPE_HOST && type <= CU_MEMORYTYPE_UNIFIED;
  };
  if (!valid(p.srcMemoryType) || !valid(p.dstMemoryType)) return CUDA_ERROR_INVALID_VALUE;
  if (p.WidthInBytes > kLimit || p.Height > kLimit || p.Depth > kLimit)
    return CUDA_ERROR_INVALID_VALUE;
  auto work = std::make_shared<CopyWork>();
  work->params = p;
  if (CUresult bad = take_array(p.srcMemoryType, p.srcArray, &work->source_array)) return bad;
  if (CUresult bad = take_array(p.dstMemoryType, p.dstArray, &work->target_array)) return bad;
  if (p.WidthInBytes != 0 && p.Height != 0 && p.Depth != 0) {
    if (CUresult bad = check(source_side(*work), p)) return bad;
    if (CUresult bad = check(target_side(*work), p)) return bad;
  }
  *out = std::move(work);
  return CUDA_SUCCESS;
}

CUresult CopyWork::run(Context& context) {
  if (params.WidthInBytes == 0 || params.Height == 0 || params.Depth == 0) return CUDA_SUCCESS;
  const Engine engine = copy_engine(host_side(params.srcMemoryType, source_side(*this).address),
                                    host_side(params.dstMemoryType, target_side(*this).address));
  DeviceWork device(context, engine);
  if (device.refusal() != CUDA_SUCCESS) return device.refusal();
  device.took_bytes(params.WidthInBytes * params.Height * params.Depth);
  return device.executes() ? execute() : CUDA_SUCCESS;
}

CUresult CopyWork::execute() const {
  std::shared_lock running(MemoryMap::instance().execution());
  Side from = source_side(*this), to = target_side(*this);
  complete(from, params);
  complete(to, params);
  const uint8_t* source = staged ? staged->data() : locate(from, params);
  uint8_t* target = locate(to, params);
  if (source == nullptr || target == nullptr) return CUDA_ERROR_ILLEGAL_ADDRESS;
  for (size_t z = 0; z < params.Depth; ++z)
    for (size_t y = 0; y < params.Height; ++y)
      memmove(target + (z * to.height + y) * to.pitch, source + (z * from.height + y) * from.pitch,
              params.WidthInBytes);
  if (flips_this_copy()) flip_one_bit(target, params.WidthInBytes);
  return CUDA_SUCCESS;
}

CUresult submit_copy(CUstream handle, const CUDA_MEMCPY3D& p, bool synchronous,
                     std::vector<ContextPtr> named) {
  StreamPtr stream;
  ContextPtr context;
  if (CUresult bad = find_stream(handle, &stream, &context)) return bad;
  std::shared_ptr<CopyWork> work;
  if (CUresult bad = make_copy(p, &work)) return bad;
  if (p.WidthInBytes == 0 || p.Height == 0 || p.Depth == 0) return CUDA_SUCCESS;
  Side from = source_side(*work), to = target_side(*work);
  SubmitOptions options;
  options.every_stream = synchronous && !named.empty();
  if (stream->is_legacy) options.contexts = contexts_of_copy(*work, context, std::move(named));
  bool host = host_side(from.type, from.address) || host_side(to.type, to.address);
  if (synchronous) {
    options.wait = host;
    options.inline_ok = host;
    options.allow_capture = false;
  }
  bool capturing = false;
  if (any_capture()) {
    std::lock_guard guard(capture_lock());
    capturing = stream->capture != nullptr;
  }
  if (!synchronous && !capturing) {
    complete(from, p);
    if (pageable(to.type, to.address)) {
      options.wait = options.inline_ok = true;
    } else if (pageable(from.type, from.address)) {
      uint64_t bytes = extent(from, p);
      if (bytes <= kStageBytes) {
        auto* start = reinterpret_cast<const uint8_t*>(from.address + first_byte(from));
        work->staged = std::make_shared<std::vector<uint8_t>>(start, start + bytes);
      } else {
        options.wait = options.inline_ok = true;
      }
    }
  }
  return submit_work(stream, context, std::move(work), options);
}

}  // namespace tendril::softgpu
