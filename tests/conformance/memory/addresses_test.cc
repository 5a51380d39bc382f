// SPDX-License-Identifier: Apache-2.0
// Addresses near those of the device's memory that the program already uses. A driver finds them
// taken and chooses others. A server's driver cannot see them, so a client must handle it. These
// tests make that likely. Each runs in a process of its own, because it fills the neighbourhood of
// the driver's mappings.
#include <sys/mman.h>

#include <algorithm>
#include <functional>

#include "tests/conformance/harness.h"

namespace tendril::conformance {
namespace {

constexpr uint64_t kPiece = 2 << 20;  // how coarsely drivers give out addresses
constexpr uint64_t kMiB = 1 << 20;
constexpr uint64_t kAround = 1024 * kMiB;  // more than a few attempts can skip

// Inaccessible pages of this program. Taken addresses stay as they are, for example those that a
// driver keeps.
class Taken {
 public:
  ~Taken() { release(); }

  void around(CUdeviceptr address, uint64_t bytes) {
    const uint64_t first = std::max<uint64_t>(address & ~(kPiece - 1), kAround + kPiece) - kAround;
    for (uint64_t at = first; at < address + bytes + kAround; at += kPiece) take(at);
  }
  bool overlaps(CUdeviceptr address, uint64_t bytes) const {
    return std::any_of(pieces_.begin(), pieces_.end(), [=](uint64_t piece) {
      return piece < address + bytes && address < piece + kPiece;
    });
  }
  void release() {
    for (const uint64_t piece : pieces_)
      EXPECT_EQ(munmap(reinterpret_cast<void*>(piece), kPiece), 0);
    pieces_.clear();
  }

 private:
  void take(uint64_t at) {
#if defined(__SANITIZE_THREAD__)
    return;  // most addresses belong to the sanitizer, and it ends a process that asks for one
#endif
    void* const wanted = reinterpret_cast<void*>(at);
    void* const got =
        mmap(wanted, kPiece, PROT_NONE,
             MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED_NOREPLACE, -1, 0);
    if (got == wanted) {
      pieces_.push_back(at);
    } else if (got != MAP_FAILED) {
      munmap(got, kPiece);
    }
  }

  std::vector<uint64_t> pieces_;
};

struct Block {
  CUdeviceptr address = 0;
  uint64_t bytes = 0;
};

// One way to get memory and to give it back. Both return the result of their last call.
struct Source {
  std::function<CUresult(CUdeviceptr*, uint64_t)> allocate;
  std::function<CUresult(const Block&)> free;
};

std::vector<Block> allocate(const Source& source, const std::vector<uint64_t>& sizes) {
  std::vector<Block> blocks;
  for (const uint64_t bytes : sizes) {
    Block block = {0, bytes};
    EXPECT_EQ(source.allocate(&block.address, bytes), CUDA_SUCCESS)
        << "block " << blocks.size() << " of " << bytes;
    if (block.address != 0) blocks.push_back(block);
  }
  return blocks;
}

void free_all(const Source& source, const std::vector<Block>& blocks) {
  for (const Block& block : blocks) EXPECT_EQ(source.free(block), CUDA_SUCCESS);
}

// Both ends of each.
void use(const std::vector<Block>& blocks) {
  constexpr uint64_t kEnd = 512;
  for (size_t i = 0; i < blocks.size(); i++)
    for (const CUdeviceptr end : {blocks[i].address, blocks[i].address + blocks[i].bytes - kEnd})
      ASSERT_EQ(cuMemsetD8_v2(end, static_cast<uint8_t>(i + 1), kEnd), CUDA_SUCCESS);
  for (size_t i = 0; i < blocks.size(); i++) {
    const std::vector<uint8_t> expected(kEnd, static_cast<uint8_t>(i + 1));
    for (const CUdeviceptr end : {blocks[i].address, blocks[i].address + blocks[i].bytes - kEnd})
      ASSERT_EQ(read_bytes(end, kEnd), expected) << i;
  }
}

void keeps_clear_of_the_program(const Source& source, const std::vector<uint64_t>& sizes) {
  const std::vector<Block> kept = allocate(source, sizes), given_back = allocate(source, sizes);
  free_all(source, given_back);
  ASSERT_EQ(cuCtxSynchronize(), CUDA_SUCCESS);
  Taken taken;
  for (const std::vector<Block>& blocks : {given_back, kept})
    for (const Block& block : blocks) taken.around(block.address, block.bytes);
  // Twice as many as were given back: half of them come to new addresses.
  std::vector<uint64_t> twice = sizes;
  twice.insert(twice.end(), sizes.begin(), sizes.end());
  for (int round = 0; round < 3; round++) {
    const std::vector<Block> blocks = allocate(source, twice);
    for (const Block& block : blocks)
      EXPECT_FALSE(taken.overlaps(block.address, block.bytes)) << block.bytes;
    use(blocks);
    free_all(source, blocks);
  }
  const std::vector<Block> last = allocate(source, twice);
  taken.release();
  use(last);
  use(kept);
  free_all(source, last);
  free_all(source, kept);
  OK(cuCtxSynchronize());
}

const std::vector<uint64_t> kSizes = {64 * kMiB, 16 * kMiB, 4 * kMiB, kMiB, 64 << 10, 4096, 1024};

PROCESS_TEST(AddressesProcess, OfMemory) {
  ASSERT_NE(attach(), nullptr);
  keeps_clear_of_the_program(
      {[](CUdeviceptr* address, uint64_t bytes) { return cuMemAlloc_v2(address, bytes); },
       [](const Block& block) { return cuMemFree_v2(block.address); }},
      kSizes);
}

PROCESS_TEST(AddressesProcess, OfPools) {
  ASSERT_NE(attach(), nullptr);
  REQUIRE_ATTRIBUTE(CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED);
  Stream stream;
  keeps_clear_of_the_program(
      {[&](CUdeviceptr* address, uint64_t bytes) {
         const CUresult result = cuMemAllocAsync(address, bytes, stream);
         return result == CUDA_SUCCESS ? cuStreamSynchronize(stream) : result;
       },
       [&](const Block& block) { return cuMemFreeAsync(block.address, stream); }},
      kSizes);
}

PROCESS_TEST(AddressesProcess, OfHostMemory) {
  ASSERT_NE(attach(), nullptr);
  keeps_clear_of_the_program(
      {[](CUdeviceptr* address, uint64_t bytes) {
         void* memory = nullptr;
         const CUresult result = cuMemHostAlloc(&memory, bytes, 0);
         *address = reinterpret_cast<CUdeviceptr>(memory);
         return result;
       },
       [](const Block& block) { return cuMemFreeHost(reinterpret_cast<void*>(block.address)); }},
      {4 * kMiB, 64 << 10, 4096});
}

PROCESS_TEST(AddressesProcess, OfVirtualRanges) {
  ASSERT_NE(attach(), nullptr);
  REQUIRE_ATTRIBUTE(CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED);
  CUmemAllocationProp prop = {};
  prop.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  prop.location = {CU_MEM_LOCATION_TYPE_DEVICE, device()};
  const auto allocate_at = [&](CUdeviceptr* address, uint64_t bytes) {
    const CUmemAccessDesc access = {prop.location, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    CUmemGenericAllocationHandle memory = 0;
    CUresult result = cuMemAddressReserve(address, bytes, 0, 0, 0);
    if (result == CUDA_SUCCESS) result = cuMemCreate(&memory, bytes, &prop, 0);
    if (result == CUDA_SUCCESS) result = cuMemMap(*address, bytes, 0, memory, 0);
    if (result == CUDA_SUCCESS) result = cuMemRelease(memory);
    return result == CUDA_SUCCESS ? cuMemSetAccess(*address, bytes, &access, 1) : result;
  };
  const auto free = [](const Block& block) {
    const CUresult result = cuMemUnmap(block.address, block.bytes);
    return result == CUDA_SUCCESS ? cuMemAddressFree(block.address, block.bytes) : result;
  };
  keeps_clear_of_the_program({allocate_at, free}, {64 * kMiB, 16 * kMiB, 2 * kMiB});
}

}  // namespace
}  // namespace tendril::conformance
