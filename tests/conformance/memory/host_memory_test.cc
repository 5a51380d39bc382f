// SPDX-License-Identifier: Apache-2.0
// Conformance of pinned, registered and mapped host memory, including kernels that read and write
// it directly.
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <functional>
#include <thread>

#include "tests/conformance/harness.h"

namespace tendril::conformance {
namespace {

class HostMemoryTest : public CudaTest {};

// Page-aligned ordinary memory.
class Pages {
 public:
  explicit Pages(size_t bytes) : memory_(aligned_alloc(4096, bytes)) {}
  ~Pages() { free(memory_); }
  Pages(const Pages&) = delete;
  uint8_t* data() { return static_cast<uint8_t*>(memory_); }
  uint32_t* words() { return static_cast<uint32_t*>(memory_); }

 private:
  void* memory_;
};

TEST_F(HostMemoryTest, AllocHostAndFree) {
  void* memory = nullptr;
  OK(cuMemAllocHost_v2(&memory, 10000));
  ASSERT_NE(memory, nullptr);
  memset(memory, 1, 10000);
  OK(cuMemFreeHost(memory));
}

// Asynchronous copies may still be reading. Freeing the memory waits for them.
TEST_F(HostMemoryTest, GivenUpRightBehindCopiesFromIt) {
  constexpr size_t kBytes = 6 << 20;
  Stream stream, other;
  Buffer first(kBytes), second(kBytes), third(kBytes);
  for (uint64_t round = 0; round < 3; round++) {
    void* pinned = nullptr;
    Pages plain(kBytes);
    OK(cuMemAllocHost_v2(&pinned, kBytes));
    OK(cuMemHostRegister_v2(plain.data(), kBytes, 0));
    const std::vector<uint8_t> one = pattern_bytes(kBytes, 3 * round),
                               two = pattern_bytes(kBytes, 3 * round + 1);
    memcpy(pinned, one.data(), kBytes);
    memcpy(plain.data(), two.data(), kBytes);
    OK(cuMemcpyHtoDAsync_v2(first, pinned, kBytes, stream));
    OK(cuMemcpyHtoDAsync_v2(second, plain.data(), kBytes, other));
    OK(cuMemcpyHtoDAsync_v2(third, static_cast<uint8_t*>(pinned) + kBytes / 2, kBytes / 2, other));
    OK(cuMemFreeHost(pinned));
    OK(cuMemHostUnregister(plain.data()));
    memset(plain.data(), 0, kBytes);
    EXPECT_TRUE(read_bytes(first, kBytes) == one);
    EXPECT_TRUE(read_bytes(second, kBytes) == two);
    EXPECT_TRUE(read_bytes(third, kBytes / 2) ==
                std::vector<uint8_t>(one.begin() + kBytes / 2, one.end()));
  }
}

TEST_F(HostMemoryTest, OverwrittenOnceTheCopyFromItIsOver) {
  constexpr size_t kBytes = 4 << 20;
  Stream stream;
  Buffer data(kBytes);
  Pinned host(kBytes);
  CUevent copied = nullptr;
  OK(cuEventCreate(&copied, CU_EVENT_DISABLE_TIMING));
  const std::function<void()> waits[] = {[&] { OK(cuStreamSynchronize(stream)); },
                                         [&] { OK(cuEventSynchronize(copied)); },
                                         [&] { OK(cuCtxSynchronize()); },
                                         [&] {
                                           while (cuEventQuery(copied) == CUDA_ERROR_NOT_READY)
                                             continue;
                                         },
                                         [&] {
                                           while (cuStreamQuery(stream) == CUDA_ERROR_NOT_READY)
                                             continue;
                                         }};
  uint64_t seed = 40;
  for (const std::function<void()>& wait : waits) {
    const std::vector<uint8_t> bytes = pattern_bytes(kBytes, seed++);
    memcpy(host.data(), bytes.data(), kBytes);
    OK(cuMemcpyHtoDAsync_v2(data, host.data(), kBytes, stream));
    OK(cuEventRecord(copied, stream));
    wait();
    memset(host.data(), 0, kBytes);
    EXPECT_TRUE(read_bytes(data, kBytes) == bytes) << seed;
  }
  OK(cuEventDestroy_v2(copied));
}

TEST_F(HostMemoryTest, AllocErrors) {
  void* memory = nullptr;
  INVALID(cuMemAllocHost_v2(nullptr, 4096));
  INVALID(cuMemHostAlloc(nullptr, 4096, 0));
  INVALID(cuMemHostAlloc(&memory, 4096, 0x8000));
}

TEST_F(HostMemoryTest, FreeErrors) {
  int local = 0;
  INVALID(cuMemFreeHost(&local));
  void* memory = nullptr;
  OK(cuMemAllocHost_v2(&memory, 4096));
  OK(cuMemFreeHost(memory));
  INVALID(cuMemFreeHost(memory));
}

TEST_F(HostMemoryTest, EveryFlagAllocates) {
  for (unsigned flags = 0; flags < 8; flags++) {
    void* memory = nullptr;
    OK(cuMemHostAlloc(&memory, 8192, flags));
    unsigned got = 0;
    OK(cuMemHostGetFlags(&got, memory));
    EXPECT_EQ(got & flags, flags);
    OK(cuMemFreeHost(memory));
  }
}

TEST_F(HostMemoryTest, GetFlagsErrors) {
  Pinned memory(4096);
  unsigned flags = 0;
  int local = 0;
  INVALID(cuMemHostGetFlags(nullptr, memory.data()));
  INVALID(cuMemHostGetFlags(&flags, &local));
}

TEST_F(HostMemoryTest, DevicePointerIsTheHostPointer) {
  Pinned memory(8192, CU_MEMHOSTALLOC_DEVICEMAP);
  CUdeviceptr address = 0;
  OK(cuMemHostGetDevicePointer_v2(&address, memory.data(), 0));
  EXPECT_EQ(address, memory.device_address());
  OK(cuMemHostGetDevicePointer_v2(&address, memory.data() + 100, 0));
  EXPECT_EQ(address, memory.device_address() + 100);
}

TEST_F(HostMemoryTest, DevicePointerErrors) {
  Pinned memory(4096);
  CUdeviceptr address = 0;
  int local = 0;
  INVALID(cuMemHostGetDevicePointer_v2(nullptr, memory.data(), 0));
  INVALID(cuMemHostGetDevicePointer_v2(&address, memory.data(), 1));
  INVALID(cuMemHostGetDevicePointer_v2(&address, &local, 0));
}

TEST_F(HostMemoryTest, NewMemoryIsNotTouchedByWhatUsedItBefore) {
  constexpr size_t kWords = 10'000;
  Stream late;
  Buffer ones(4 * kWords);
  void *before = nullptr, *after = nullptr;
  OK(cuMemsetD32_v2(ones, 1, kWords));
  OK(cuCtxSynchronize());
  OK(cuMemAllocHost_v2(&before, 4 * kWords));
  OK(cuLaunchHostFunc(
      late, [](void*) { usleep(30'000); }, nullptr));
  OK(cuMemcpyDtoHAsync_v2(before, ones, 4 * kWords, late));
  OK(cuMemFreeHost(before));
  OK(cuMemAllocHost_v2(&after, 4 * kWords));
  uint32_t* const words = static_cast<uint32_t*>(after);
  std::fill_n(words, kWords, 2u);
  OK(cuStreamSynchronize(late));
  EXPECT_EQ(std::vector<uint32_t>(words, words + kWords), std::vector<uint32_t>(kWords, 2));
  OK(cuMemFreeHost(after));
}

TEST_F(HostMemoryTest, KernelReadsHostMemory) {
  REQUIRE_ATTRIBUTE(CU_DEVICE_ATTRIBUTE_CAN_MAP_HOST_MEMORY);
  Pinned host(4096, CU_MEMHOSTALLOC_DEVICEMAP);
  Buffer out(4096);
  for (uint32_t round = 1; round <= 3; round++) {
    for (uint32_t i = 0; i < 1024; i++) host.words()[i] = i * round;
    OK(launch(basic("copy_words"), {4}, {256}, 0, nullptr, CUdeviceptr{out}, host.device_address(),
              1024u));
    EXPECT_EQ(read_words(out, 1024)[1023], 1023 * round);
  }
}

TEST_F(HostMemoryTest, KernelWritesHostMemory) {
  REQUIRE_ATTRIBUTE(CU_DEVICE_ATTRIBUTE_CAN_MAP_HOST_MEMORY);
  Pinned host(4096, CU_MEMHOSTALLOC_DEVICEMAP);
  memset(host.data(), 0, 4096);
  for (uint32_t round = 1; round <= 3; round++) {
    OK(launch(basic("iota"), {4}, {256}, 0, nullptr, host.device_address(), round * 1000, 1024u));
    OK(cuCtxSynchronize());
    EXPECT_EQ(host.words()[0], round * 1000);
    EXPECT_EQ(host.words()[1023], round * 1000 + 1023);
  }
}

// However short or long the wait is.
TEST_F(HostMemoryTest, EveryKindOfWaitShowsWhatAKernelWrote) {
  REQUIRE_ATTRIBUTE(CU_DEVICE_ATTRIBUTE_CAN_MAP_HOST_MEMORY);
  Pinned host(4096, CU_MEMHOSTALLOC_DEVICEMAP);
  Stream stream;
  Event event;
  Buffer device(4);
  uint32_t word = 0;
  const auto until_ready = [](const auto& query) {
    CUresult result = query();
    while (result == CUDA_ERROR_NOT_READY) result = query();
    OK(result);
  };
  const std::function<void()> waits[] = {
      [&] { OK(cuStreamSynchronize(stream)); },
      [&] { OK(cuEventSynchronize(event)); },
      [&] { OK(cuCtxSynchronize()); },
      [&] { until_ready([&] { return cuStreamQuery(stream); }); },
      [&] { until_ready([&] { return cuEventQuery(event); }); },
      [&] { OK(cuMemcpyDtoHAsync_v2(&word, device, 4, stream)); },
  };
  uint32_t value = 0;
  for (const int busy_ms : {0, 5}) {
    for (const auto& wait : waits) {
      value += 10000;
      Gate gate;
      if (busy_ms != 0) gate.block(stream);
      OK(launch(basic("iota"), {4}, {256}, 0, stream, host.device_address(), value, 1024u));
      OK(cuEventRecord(event, stream));
      std::thread opener([&] {
        std::this_thread::sleep_for(std::chrono::milliseconds(busy_ms));
        gate.open();
      });
      wait();
      EXPECT_EQ(host.words()[1023], value + 1023)
          << "wait " << &wait - waits << " of " << busy_ms << " ms";
      opener.join();
    }
  }
}

TEST_F(HostMemoryTest, ThreadsEachSeeWhatTheirKernelWrote) {
  REQUIRE_ATTRIBUTE(CU_DEVICE_ATTRIBUTE_CAN_MAP_HOST_MEMORY);
  constexpr int kThreads = 3, kRounds = 100;
  Pinned host(kThreads * 4096, CU_MEMHOSTALLOC_DEVICEMAP);
  const CUfunction iota = basic("iota");
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; t++) {
    threads.emplace_back([&, t] {
      OK(cuCtxSetCurrent(context_));
      Stream stream;
      for (uint32_t round = 1; round <= kRounds; round++) {
        OK(launch(iota, {4}, {256}, 0, stream, host.device_address() + t * 4096, round * 1000,
                  1024u));
        OK(cuStreamSynchronize(stream));
        ASSERT_EQ(host.words()[t * 1024 + 1023], round * 1000 + 1023);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

TEST_F(HostMemoryTest, KernelReadsWhatTheHostChangedBetweenLaunches) {
  REQUIRE_ATTRIBUTE(CU_DEVICE_ATTRIBUTE_CAN_MAP_HOST_MEMORY);
  Pinned host(4096, CU_MEMHOSTALLOC_DEVICEMAP);
  for (uint32_t i = 0; i < 1024; i++) host.words()[i] = 1;
  OK(launch(basic("affine"), {4}, {256}, 0, nullptr, host.device_address(), 3u, 1u, 1024u));
  OK(cuCtxSynchronize());
  host.words()[7] += 10;  // one word of a page that the device wrote too
  OK(launch(basic("affine"), {4}, {256}, 0, nullptr, host.device_address(), 2u, 0u, 1024u));
  OK(cuCtxSynchronize());
  EXPECT_EQ(host.words()[6], 8u);
  EXPECT_EQ(host.words()[7], 28u);
}

// However often they have been copied from, and whatever kernels did there in between.
TEST_F(HostMemoryTest, CopiesFromMemoryThatKernelsKnow) {
  REQUIRE_ATTRIBUTE(CU_DEVICE_ATTRIBUTE_CAN_MAP_HOST_MEMORY);
  Pinned host(4096, CU_MEMHOSTALLOC_DEVICEMAP);
  Buffer device(4096), seen(4096);
  Stream stream;
  const auto run = [&](const char* kernel, auto... arguments) {
    OK(launch(basic(kernel), {4}, {256}, 0, stream, arguments..., 1024u));
  };
  for (uint32_t round = 1; round <= 8; round++) {
    for (uint32_t i = 0; i < 1024; i++) host.words()[i] = i * round;
    OK(cuMemcpyHtoDAsync_v2(device, host.data(), 4096, stream));
    run("copy_words", CUdeviceptr{seen}, host.device_address());
    OK(cuStreamSynchronize(stream));
    EXPECT_EQ(read_words(device, 1024)[1023], 1023 * round);
    EXPECT_EQ(read_words(seen, 1024)[1023], 1023 * round);
    run("iota", host.device_address(), round * 5000);
    OK(cuMemcpyHtoDAsync_v2(device, host.data(), 4096, stream));
    OK(cuStreamSynchronize(stream));
    EXPECT_EQ(read_words(device, 1024)[1023], round * 5000 + 1023);
    EXPECT_EQ(host.words()[1023], round * 5000 + 1023);
  }
}

// A kernel may wait for the host, as long as the host writes before it waits for the kernel. Timers
// of compilers do so.
TEST_F(HostMemoryTest, KernelPollsForWhatTheHostWritesMeanwhile) {
  REQUIRE_ATTRIBUTE(CU_DEVICE_ATTRIBUTE_CAN_MAP_HOST_MEMORY);
  constexpr uint32_t kTries = 5'000'000;
  Pinned host(4096, CU_MEMHOSTALLOC_DEVICEMAP);
  Buffer out(4096);
  Stream stream;
  Event over;
  using Wait = std::function<CUresult()>;
  const Wait waits[] = {[&] { return cuStreamSynchronize(stream); },
                        [&] { return cuEventSynchronize(over); }, [] { return cuCtxSynchronize(); },
                        [&] {
                          CUresult seen;
                          while ((seen = cuStreamQuery(stream)) == CUDA_ERROR_NOT_READY) {
                          }
                          return seen;
                        },
                        [&] {
                          CUresult seen;
                          while ((seen = cuEventQuery(over)) == CUDA_ERROR_NOT_READY) {
                          }
                          return seen;
                        }};
  volatile uint32_t* word = host.words();
  constexpr uint32_t kWhole = 0x01020304;  // a part of which is never seen alone
  for (uint32_t way = 0; way < std::size(waits); way++) {
    *word = 0;
    OK(launch(basic("await_word"), {1}, {1}, 0, stream, host.device_address(), CUdeviceptr{out},
              kTries));
    OK(cuEventRecord(over, stream));
    *word = kWhole + way;
    OK(waits[way]());
    EXPECT_EQ(read_words(out, 1)[0], kWhole + way);
  }
}

// A kernel that sees the word that was written last also sees what was written before it. Over a
// network it sees neither.
TEST_F(HostMemoryTest, KernelThatPollsSeesNoWordBeforeAnEarlierOne) {
  REQUIRE_ATTRIBUTE(CU_DEVICE_ATTRIBUTE_CAN_MAP_HOST_MEMORY);
  constexpr uint32_t kTries = 100'000, kFar = (4u << 20) / 4 - 1;
  Pinned host(4u << 20, CU_MEMHOSTALLOC_DEVICEMAP);
  Buffer out(4096);
  Stream stream;
  volatile uint32_t* words = host.words();
  for (uint32_t round = 1; round <= 5; round++) {
    words[0] = 0;
    words[kFar] = 0;
    OK(launch(basic("await_and_read"), {1}, {1}, 0, stream, host.device_address(),
              host.device_address() + kFar * 4, CUdeviceptr{out}, kTries));
    words[kFar] = round;
    words[0] = 1;
    OK(cuStreamSynchronize(stream));
    const std::vector<uint32_t> seen = read_words(out, 2);
    EXPECT_TRUE(seen[0] == 0 || seen[1] == round) << "the flag came, and " << seen[1];
  }
}

TEST_F(HostMemoryTest, RegisterAndUnregister) {
  REQUIRE_ATTRIBUTE(CU_DEVICE_ATTRIBUTE_HOST_REGISTER_SUPPORTED);
  Pages pages(16384);
  OK(cuMemHostRegister_v2(pages.data(), 16384, 0));
  OK(cuMemHostUnregister(pages.data()));
  OK(cuMemHostRegister_v2(pages.data(), 16384,
                          CU_MEMHOSTREGISTER_PORTABLE | CU_MEMHOSTREGISTER_DEVICEMAP));
  OK(cuMemHostUnregister(pages.data()));
}

TEST_F(HostMemoryTest, RegisterErrors) {
  REQUIRE_ATTRIBUTE(CU_DEVICE_ATTRIBUTE_HOST_REGISTER_SUPPORTED);
  Pages pages(8192);
  INVALID(cuMemHostRegister_v2(nullptr, 4096, 0));
  INVALID(cuMemHostRegister_v2(pages.data(), 0, 0));
  INVALID(cuMemHostRegister_v2(pages.data(), 4096, 0x8000));
  EXPECT_CU(cuMemHostUnregister(pages.data()), CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED);
  OK(cuMemHostRegister_v2(pages.data(), 8192, 0));
  EXPECT_CU(cuMemHostRegister_v2(pages.data(), 8192, 0), CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED);
  OK(cuMemHostUnregister(pages.data()));
  EXPECT_CU(cuMemHostUnregister(pages.data()), CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED);
}

TEST_F(HostMemoryTest, AsyncCopyFromRegisteredMemory) {
  REQUIRE_ATTRIBUTE(CU_DEVICE_ATTRIBUTE_HOST_REGISTER_SUPPORTED);
  Pages source(65536), target(65536);
  for (size_t i = 0; i < 65536; i++) source.data()[i] = pattern(i, 7);
  OK(cuMemHostRegister_v2(source.data(), 65536, 0));
  OK(cuMemHostRegister_v2(target.data(), 65536, 0));
  Stream stream;
  Buffer device_memory(65536);
  OK(cuMemcpyHtoDAsync_v2(device_memory, source.data(), 65536, stream));
  OK(cuMemcpyDtoHAsync_v2(target.data(), device_memory, 65536, stream));
  OK(cuStreamSynchronize(stream));
  EXPECT_EQ(memcmp(source.data(), target.data(), 65536), 0);
  OK(cuMemHostUnregister(source.data()));
  OK(cuMemHostUnregister(target.data()));
}

TEST_F(HostMemoryTest, KernelUsesRegisteredMemory) {
  REQUIRE_ATTRIBUTE(CU_DEVICE_ATTRIBUTE_HOST_REGISTER_SUPPORTED);
  Pages pages(8192);
  for (uint32_t i = 0; i < 2048; i++) pages.words()[i] = i;
  OK(cuMemHostRegister_v2(pages.data(), 8192, CU_MEMHOSTREGISTER_DEVICEMAP));
  CUdeviceptr address = 0;
  OK(cuMemHostGetDevicePointer_v2(&address, pages.data(), 0));
  OK(launch(basic("affine"), {8}, {256}, 0, nullptr, address, 2u, 1u, 2048u));
  OK(cuCtxSynchronize());
  EXPECT_EQ(pages.words()[0], 1u);
  EXPECT_EQ(pages.words()[2047], 4095u);
  OK(cuMemHostUnregister(pages.data()));
}

// Unified addressing: the program need not ask for the device address.
TEST_F(HostMemoryTest, KernelUsesRegisteredMemoryByItsHostAddress) {
  REQUIRE_ATTRIBUTE(CU_DEVICE_ATTRIBUTE_HOST_REGISTER_SUPPORTED);
  REQUIRE_ATTRIBUTE(CU_DEVICE_ATTRIBUTE_CAN_USE_HOST_POINTER_FOR_REGISTERED_MEM);
  for (unsigned flags : {0u, static_cast<unsigned>(CU_MEMHOSTREGISTER_DEVICEMAP)}) {
    Pages pages(8192);
    for (uint32_t i = 0; i < 2048; i++) pages.words()[i] = i;
    OK(cuMemHostRegister_v2(pages.data(), 8192, flags));
    const CUdeviceptr address = reinterpret_cast<CUdeviceptr>(pages.data());
    OK(launch(basic("affine"), {8}, {256}, 0, nullptr, address, 2u, 1u, 2048u));
    OK(cuCtxSynchronize());
    EXPECT_EQ(pages.words()[2047], 4095u);
    OK(cuMemHostUnregister(pages.data()));
  }
}

// The GPU's copy of it has the same addresses, which lie among those of libraries. They must be
// free again for it after other memory was there.
TEST_F(HostMemoryTest, KernelUsesRegisteredMemoryBetweenLibraries) {
  REQUIRE_ATTRIBUTE(CU_DEVICE_ATTRIBUTE_HOST_REGISTER_SUPPORTED);
  REQUIRE_ATTRIBUTE(CU_DEVICE_ATTRIBUTE_CAN_USE_HOST_POINTER_FOR_REGISTERED_MEM);
  constexpr size_t kBytes = 1 << 20, kWords = kBytes / 4;
  auto make = [] {
    return static_cast<uint32_t*>(
        mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
  };
  auto use = [](uint32_t* words) {
    OK(cuMemHostRegister_v2(words, kBytes, 0));
    for (uint32_t i = 0; i < kWords; i++) words[i] = i;
    OK(launch(basic("affine"), {kWords / 256}, {256}, 0, nullptr,
              reinterpret_cast<CUdeviceptr>(words), 3u, 1u, uint32_t{kWords}));
    OK(cuCtxSynchronize());
    EXPECT_EQ(words[kWords - 1], 3 * (uint32_t{kWords} - 1) + 1);
  };
  uint32_t *const first = make(), *const second = make();
  use(first);
  OK(cuMemHostUnregister(first));
  use(second);
  use(first);
  OK(cuMemHostUnregister(first));
  OK(cuMemHostUnregister(second));
  munmap(first, kBytes);
  munmap(second, kBytes);
}

TEST_F(HostMemoryTest, MemsetOfPinnedMemory) {
  Pinned host(4096);
  memset(host.data(), 1, 4096);
  OK(cuMemsetD32_v2(host.device_address(), 9, 512));
  EXPECT_EQ(host.words()[0], 9u);  // a synchronous call is over
  EXPECT_EQ(host.words()[511], 9u);
  EXPECT_EQ(host.words()[512], 0x01010101u);
}

TEST_F(HostMemoryTest, ContentsSurviveRegistration) {
  REQUIRE_ATTRIBUTE(CU_DEVICE_ATTRIBUTE_HOST_REGISTER_SUPPORTED);
  Pages pages(8192);
  for (size_t i = 0; i < 8192; i++) pages.data()[i] = pattern(i, 8);
  OK(cuMemHostRegister_v2(pages.data(), 8192, 0));
  for (size_t i = 0; i < 8192; i++) ASSERT_EQ(pages.data()[i], pattern(i, 8));
  OK(cuMemHostUnregister(pages.data()));
  for (size_t i = 0; i < 8192; i++) ASSERT_EQ(pages.data()[i], pattern(i, 8));
}

TEST_F(HostMemoryTest, RegisterUnalignedRange) {
  REQUIRE_ATTRIBUTE(CU_DEVICE_ATTRIBUTE_HOST_REGISTER_SUPPORTED);
  Pages pages(16384);
  uint8_t* start = pages.data() + 100;
  for (size_t i = 0; i < 10000; i++) start[i] = pattern(i, 9);
  OK(cuMemHostRegister_v2(start, 10000, 0));
  Buffer device_memory(10000);
  OK(cuMemcpyHtoDAsync_v2(device_memory, start, 10000, nullptr));
  OK(cuCtxSynchronize());
  EXPECT_EQ(read_bytes(device_memory, 10000), pattern_bytes(10000, 9));
  OK(cuMemHostUnregister(start));
}

TEST_F(HostMemoryTest, PinnedMemoryIsOrdinaryMemoryToTheHost) {
  Pinned a(1 << 20), b(1 << 20);
  memset(a.data(), 0x5a, 1 << 20);
  memcpy(b.data(), a.data(), 1 << 20);
  EXPECT_EQ(b.data()[0], 0x5a);
  EXPECT_EQ(b.data()[(1 << 20) - 1], 0x5a);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(a.data()) % 4096, 0u);
}

TEST_F(HostMemoryTest, PortableMemoryInAnotherContext) {
  Pinned host(4096, CU_MEMHOSTALLOC_PORTABLE);
  for (uint32_t i = 0; i < 1024; i++) host.words()[i] = i + 5;
  CUcontext other = nullptr;
  MUST(cuCtxCreate_v2(&other, 0, device()));
  {
    Buffer data(4096);
    OK(cuMemcpyHtoDAsync_v2(data, host.data(), 4096, nullptr));
    OK(cuCtxSynchronize());
    EXPECT_EQ(read_words(data, 1024)[1000], 1005u);
  }
  OK(cuCtxDestroy_v2(other));
}

}  // namespace
}  // namespace tendril::conformance
