// SPDX-License-Identifier: Apache-2.0
// The cost of several ways to do the same thing with a driver: launches, waits, small copies with
// ways to learn their end, and large copies through pieces of pinned memory with one thread or
// several. It makes the calls as the worker does. The worker's ways were chosen with this program.
// It can be run again for another driver. It runs without Tendril: give it the real library.
#include <sys/mman.h>
#if defined(__x86_64__)
#include <emmintrin.h>
#endif

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstring>
#include <functional>
#include <thread>

#include "base/clock.h"
#include "bench/device.h"
#include "bench/report.h"

namespace {

using namespace tendril;         // NOLINT: a program
using namespace tendril::bench;  // NOLINT

constexpr size_t kKiB = 1024, kMiB = 1024 * kKiB;
constexpr size_t kLarge = 256 * kMiB;
constexpr int kParametersMany = 12;

constexpr const char* kManyPtx = R"(
.version 7.0
.target sm_52
.address_size 64
.visible .entry many(
    .param .u64 a, .param .u64 b, .param .u64 c, .param .u64 d, .param .u64 e, .param .u64 f,
    .param .u64 g, .param .u64 h, .param .u64 i, .param .u64 j, .param .u64 k, .param .u64 l)
{
  ret;
}
)";

void print(const char* what, double value, const char* unit) {
  std::printf("  %-64s %9.2f %s\n", what, value, unit);
  std::fflush(stdout);
}

uint8_t* memory(size_t bytes) {
  void* at = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (at == MAP_FAILED) throw Failure("out of host memory");
  std::memset(at, 1, bytes);
  return static_cast<uint8_t*>(at);
}

double median_us(const Device& device, int rounds, const std::function<void()>& work) {
  std::vector<double> times;
  work();
  for (int i = 0; i < rounds; ++i) {
    device.synchronize();
    const uint64_t begin_ns = base::now_ns();
    work();
    times.push_back(us_since(begin_ns));
  }
  return median(times);
}

// ---- launches ----

void launches(Device& device) {
  const gpu::Driver& d = device.driver();
  CUmodule module = nullptr;
  CUfunction many = nullptr;
  device.check(d.cuModuleLoadData(&module, kManyPtx), "cuModuleLoadData");
  device.check(d.cuModuleGetFunction(&many, module, "many"), "cuModuleGetFunction");
  uint64_t packed[kParametersMany] = {};
  void* pointers[kParametersMany];
  for (int i = 0; i < kParametersMany; ++i) pointers[i] = &packed[i];
  size_t bytes = sizeof packed;
  void* extra[] = {CU_LAUNCH_PARAM_BUFFER_POINTER, packed, CU_LAUNCH_PARAM_BUFFER_SIZE, &bytes,
                   CU_LAUNCH_PARAM_END};
  CUlaunchConfig config;
  std::memset(&config, 0, sizeof config);
  config.gridDimX = config.gridDimY = config.gridDimZ = config.blockDimX = config.blockDimY =
      config.blockDimZ = 1;
  const auto rate = [&](const char* what, const std::function<void(CUstream)>& launch) {
    for (const bool legacy : {true, false}) {
      CUstream stream = legacy ? CU_STREAM_LEGACY : device.stream();
      double best = 1e30;
      for (int round = 0; round < 5; ++round) {
        device.synchronize();
        const uint64_t begin_ns = base::now_ns();
        for (int i = 0; i < 20000; ++i) launch(stream);
        device.synchronize();
        best = std::min(best, us_since(begin_ns) / 20000);
      }
      print((std::string(what) + (legacy ? ", legacy stream" : ", stream")).c_str(), best, "us");
      if (!legacy) device.check(d.cuStreamDestroy_v2(stream), "cuStreamDestroy");
    }
  };
  rate("launch, 12 parameters by pointers", [&](CUstream stream) {
    d.cuLaunchKernel(many, 1, 1, 1, 1, 1, 1, 0, stream, pointers, nullptr);
  });
  rate("launch, 12 parameters as a buffer", [&](CUstream stream) {
    d.cuLaunchKernel(many, 1, 1, 1, 1, 1, 1, 0, stream, nullptr, extra);
  });
  rate("launch by cuLaunchKernelEx, by pointers", [&](CUstream stream) {
    config.hStream = stream;
    d.cuLaunchKernelEx(&config, many, pointers, nullptr);
  });
  rate("launch by cuLaunchKernelEx, as a buffer", [&](CUstream stream) {
    config.hStream = stream;
    d.cuLaunchKernelEx(&config, many, nullptr, extra);
  });
}

// Launches with other work between them, as in a worker: each time a certain amount of memory is
// read.
void launches_between_reads(Device& device) {
  uint8_t* other = memory(64 * kKiB);
  for (const size_t touched : {size_t{0}, size_t{1024}, size_t{4096}, size_t{16384}}) {
    uint64_t own_ns = 0;
    volatile uint8_t sum = 0;
    const auto touch = [&] {
      for (size_t i = 0; i < touched; i += 64) sum = static_cast<uint8_t>(sum + other[i]);
    };
    device.synchronize();
    for (int i = 0; i < 20000; ++i) {
      const uint64_t begin_ns = base::now_ns();
      touch();
      own_ns += base::now_ns() - begin_ns;
    }
    double best = 1e30;
    for (int round = 0; round < 3; ++round) {
      const uint64_t begin_ns = base::now_ns();
      for (int i = 0; i < 20000; ++i) {
        device.launch_nothing(CU_STREAM_LEGACY);
        touch();
      }
      device.synchronize();
      best = std::min(best, us_since(begin_ns) / 20000);
    }
    char what[96];
    std::snprintf(what, sizeof what, "launch, %zu bytes read between two (alone %.0f ns)", touched,
                  static_cast<double>(own_ns) / 20000);
    print(what, best, "us");
  }
}

// ---- waits ----

void poll_stream(Device& device, CUstream stream) {
  const gpu::Driver& d = device.driver();
  while (d.cuStreamQuery(stream) == CUDA_ERROR_NOT_READY) {
  }
}

// Between a launch and its reply, the worker synchronises with the event of the last wait while the
// next kernel runs. This measures that.
void as_the_worker_waits(Device& device) {
  const gpu::Driver& d = device.driver();
  CUevent events[2] = {};
  for (CUevent& event : events)
    device.check(d.cuEventCreate(&event, CU_EVENT_DISABLE_TIMING), "cuEventCreate");
  const auto ask_whether_any_prints = [&] {
    size_t bytes = 0;
    d.cuCtxGetLimit(&bytes, CU_LIMIT_PRINTF_FIFO_SIZE);
    d.cuCtxSetLimit(CU_LIMIT_PRINTF_FIFO_SIZE, bytes);
  };
  print("printf's room asked and set", median_us(device, 2000, ask_whether_any_prints), "us");
  size_t turn = 0;
  const double us = median_us(device, 2000, [&] {
    CUevent event = events[++turn % 2], before = events[(turn + 1) % 2];
    device.launch_nothing(CU_STREAM_LEGACY);
    d.cuEventRecord(event, CU_STREAM_LEGACY);
    ask_whether_any_prints();
    d.cuEventSynchronize(before);
    while (d.cuEventQuery(event) == CUDA_ERROR_NOT_READY) {
    }
  });
  print("launch, event recorded and polled, the last one synchronised with", us, "us");
  for (CUevent event : events) device.check(d.cuEventDestroy_v2(event), "cuEventDestroy");
}

// A launch, and several ways to learn that it is over. The worker queries an event until the launch
// is over, so that it can serve other calls meanwhile. Then it synchronises (waits.cc says why).
// The last way does not ask the driver.
void waits(Device& device, uint8_t* pinned) {
  const gpu::Driver& d = device.driver();
  const auto row = [&](const char* what, const std::function<void()>& work) {
    print(what, median_us(device, 2000, work), "us");
  };
  row("launch, cuCtxSynchronize", [&] {
    device.launch_nothing(CU_STREAM_LEGACY);
    d.cuCtxSynchronize();
  });
  row("launch, stream polled", [&] {
    device.launch_nothing(CU_STREAM_LEGACY);
    poll_stream(device, CU_STREAM_LEGACY);
  });
  row("launch, stream polled, cuCtxSynchronize", [&] {
    device.launch_nothing(CU_STREAM_LEGACY);
    poll_stream(device, CU_STREAM_LEGACY);
    d.cuCtxSynchronize();
  });
  row("launch, stream polled, cuStreamSynchronize", [&] {
    device.launch_nothing(CU_STREAM_LEGACY);
    poll_stream(device, CU_STREAM_LEGACY);
    d.cuStreamSynchronize(CU_STREAM_LEGACY);
  });
  CUevent event = nullptr;
  device.check(d.cuEventCreate(&event, CU_EVENT_DISABLE_TIMING), "cuEventCreate");
  const auto poll_event = [&] {
    device.launch_nothing(CU_STREAM_LEGACY);
    d.cuEventRecord(event, CU_STREAM_LEGACY);
    while (d.cuEventQuery(event) == CUDA_ERROR_NOT_READY) {
    }
  };
  row("launch, event recorded and polled", poll_event);
  row("launch, event recorded and polled, cuEventSynchronize", [&] {
    poll_event();
    d.cuEventSynchronize(event);
  });
  row("launch, event recorded and polled, cuCtxSynchronize", [&] {
    poll_event();
    d.cuCtxSynchronize();
  });
  device.check(d.cuEventDestroy_v2(event), "cuEventDestroy");
  as_the_worker_waits(device);
  row("cuStreamQuery when all is over", [&] { d.cuStreamQuery(CU_STREAM_LEGACY); });
  row("cuCtxSynchronize when all is over", [&] { d.cuCtxSynchronize(); });
  CUdeviceptr word = 0;
  if (d.cuMemHostGetDevicePointer_v2(&word, pinned, 0) != CUDA_SUCCESS) return;
  volatile cuuint32_t* seen = reinterpret_cast<volatile cuuint32_t*>(pinned);
  cuuint32_t next = 1;
  const auto poll_word = [&](unsigned flags) {
    device.launch_nothing(CU_STREAM_LEGACY);
    const CUresult result = d.cuStreamWriteValue32_v2(CU_STREAM_LEGACY, word, ++next, flags);
    if (result != CUDA_SUCCESS) return;
    const uint64_t begin_ns = base::now_ns();
    while (*seen != next && us_since(begin_ns) < 1e5) {
    }
  };
  row("launch, word written behind it, the word polled",
      [&] { poll_word(CU_STREAM_WRITE_VALUE_DEFAULT); });
  row("the same without a barrier of memory",
      [&] { poll_word(CU_STREAM_WRITE_VALUE_NO_MEMORY_BARRIER); });
  row("launch, word polled, cuCtxSynchronize", [&] {
    poll_word(CU_STREAM_WRITE_VALUE_DEFAULT);
    d.cuCtxSynchronize();
  });
  row("launch, word polled, cuStreamSynchronize", [&] {
    poll_word(CU_STREAM_WRITE_VALUE_DEFAULT);
    d.cuStreamSynchronize(CU_STREAM_LEGACY);
  });
}

// ---- small copies ----

struct Small {
  Device& device;
  CUdeviceptr gpu;
  uint8_t *pinned, *pageable;
  CUevent event;
};

void copy_ordinary(uint8_t* to, const uint8_t* from, size_t bytes) { std::memcpy(to, from, bytes); }

// Bypasses the caches, so that no lines need to be fetched. `to` is aligned, `bytes` a multiple of
// 64.
void copy_streaming(uint8_t* to, const uint8_t* from, size_t bytes) {
#if defined(__x86_64__)
  for (size_t i = 0; i < bytes; i += 64) {
    for (size_t j = 0; j < 64; j += 16) {
      const __m128i word = _mm_loadu_si128(reinterpret_cast<const __m128i*>(from + i + j));
      _mm_stream_si128(reinterpret_cast<__m128i*>(to + i + j), word);
    }
  }
  _mm_sfence();
#else
  std::memcpy(to, from, bytes);
#endif
}

void small_copies(Small s, size_t bytes) {
  Device& device = s.device;
  const gpu::Driver& d = device.driver();
  const std::string size = bytes >= kMiB ? "1 MB" : std::to_string(bytes / kKiB) + " KB";
  const auto row = [&](const char* what, const std::function<void()>& work) {
    print((size + " " + what).c_str(), median_us(device, 400, work), "us");
  };
  const auto context_wait = [&] {
    poll_stream(device, CU_STREAM_LEGACY);
    d.cuCtxSynchronize();
  };
  row("to, native way: cuMemcpyHtoD, cuCtxSynchronize", [&] {
    d.cuMemcpyHtoD_v2(s.gpu, s.pageable, bytes);
    d.cuCtxSynchronize();
  });
  row("to, pinned, wait", [&] {
    d.cuMemcpyHtoDAsync_v2(s.gpu, s.pinned, bytes, CU_STREAM_LEGACY);
    context_wait();
  });
  row("to, pinned, event recorded, wait, event asked", [&] {
    d.cuMemcpyHtoDAsync_v2(s.gpu, s.pinned, bytes, CU_STREAM_LEGACY);
    d.cuEventRecord(s.event, CU_STREAM_LEGACY);
    d.cuEventQuery(s.event);
    context_wait();
  });
  row("to, pageable async, wait", [&] {
    d.cuMemcpyHtoDAsync_v2(s.gpu, s.pageable, bytes, CU_STREAM_LEGACY);
    context_wait();
  });
  row("from, native way: cuMemcpyDtoH", [&] { d.cuMemcpyDtoH_v2(s.pageable, s.gpu, bytes); });
  row("from, pinned, event recorded, polled, waited for", [&] {
    d.cuMemcpyDtoHAsync_v2(s.pinned, s.gpu, bytes, CU_STREAM_LEGACY);
    d.cuEventRecord(s.event, CU_STREAM_LEGACY);
    while (d.cuEventQuery(s.event) == CUDA_ERROR_NOT_READY) {
    }
    d.cuEventSynchronize(s.event);
  });
  row("from, pinned, stream polled and waited for", [&] {
    d.cuMemcpyDtoHAsync_v2(s.pinned, s.gpu, bytes, CU_STREAM_LEGACY);
    poll_stream(device, CU_STREAM_LEGACY);
    d.cuStreamSynchronize(CU_STREAM_LEGACY);
  });
  row("from, pinned, stream polled only", [&] {
    d.cuMemcpyDtoHAsync_v2(s.pinned, s.gpu, bytes, CU_STREAM_LEGACY);
    poll_stream(device, CU_STREAM_LEGACY);
  });
  row("from, pinned, stream waited for", [&] {
    d.cuMemcpyDtoHAsync_v2(s.pinned, s.gpu, bytes, CU_STREAM_LEGACY);
    d.cuStreamSynchronize(CU_STREAM_LEGACY);
  });
  row("copied on the host, pageable to pinned", [&] { std::memcpy(s.pinned, s.pageable, bytes); });
  row("copied on the host, pinned to pageable", [&] { std::memcpy(s.pageable, s.pinned, bytes); });
}

// The cost of the processor's copy after the GPU has read or written the same pinned memory.
void staged_copies(Small s, size_t bytes) {
  Device& device = s.device;
  const gpu::Driver& d = device.driver();
  const std::string size = bytes >= kMiB ? "1 MB" : std::to_string(bytes / kKiB) + " KB";
  const auto row = [&](const char* what, const std::function<void()>& work) {
    print((size + " " + what).c_str(), median_us(device, 300, work), "us");
  };
  const auto context_wait = [&] {
    poll_stream(device, CU_STREAM_LEGACY);
    d.cuCtxSynchronize();
  };
  const auto to = [&](const char* what, size_t piece, size_t places,
                      void (*copy)(uint8_t*, const uint8_t*, size_t)) {
    size_t place = 0;
    row(what, [&, place]() mutable {
      uint8_t* pinned = s.pinned + place++ % places * kMiB;
      for (size_t at = 0; at < bytes; at += piece) {
        copy(pinned + at, s.pageable + at, std::min(piece, bytes - at));
        d.cuMemcpyHtoDAsync_v2(s.gpu + at, pinned + at, std::min(piece, bytes - at),
                               CU_STREAM_LEGACY);
      }
      context_wait();
    });
  };
  to("to, staged whole", bytes, 1, copy_ordinary);
  to("to, staged whole, eight places in turn", bytes, 8, copy_ordinary);
  to("to, staged whole, streaming stores", bytes, 1, copy_streaming);
  to("to, staged whole, streaming stores, eight places", bytes, 8, copy_streaming);
  to("to, staged in four pieces", bytes / 4, 1, copy_ordinary);
  to("to, staged in four pieces, streaming stores", bytes / 4, 1, copy_streaming);
  to("to, staged in pieces of 64 KB, streaming stores", 64 * kKiB, 1, copy_streaming);
  const auto from = [&](const char* what, void (*copy)(uint8_t*, const uint8_t*, size_t)) {
    row(what, [&] {
      d.cuMemcpyDtoHAsync_v2(s.pinned, s.gpu, bytes, CU_STREAM_LEGACY);
      d.cuStreamSynchronize(CU_STREAM_LEGACY);
      copy(s.pageable, s.pinned, bytes);
    });
  };
  from("from, staged whole", copy_ordinary);
  from("from, staged whole, streaming stores", copy_streaming);
}

// ---- large copies ----

// Each thread has two pieces of pinned memory and a stream. While the GPU copies one piece, the
// thread copies the other.
double through_pieces_gb_per_s(Device& device, CUdeviceptr gpu, uint8_t* pinned, uint8_t* host,
                               bool to_gpu, size_t piece, unsigned threads) {
  const gpu::Driver& d = device.driver();
  std::atomic<size_t> next{0};
  const auto work = [&](unsigned index) {
    d.cuCtxSetCurrent(device.context());
    CUstream stream = device.stream();
    CUevent events[2] = {};
    for (CUevent& event : events) d.cuEventCreate(&event, CU_EVENT_DISABLE_TIMING);
    uint8_t* slots[2] = {pinned + index * 2 * piece, pinned + (index * 2 + 1) * piece};
    size_t at[2] = {kLarge, kLarge};
    const auto finish = [&](unsigned slot) {  // from the GPU: the piece is in the slot, and goes to
                                              // its destination now
      d.cuEventSynchronize(events[slot]);
      if (!to_gpu && at[slot] < kLarge)
        std::memcpy(host + at[slot], slots[slot], std::min(piece, kLarge - at[slot]));
    };
    for (unsigned slot = 0;; slot ^= 1) {
      finish(slot);
      at[slot] = next.fetch_add(piece);
      if (at[slot] >= kLarge) break;
      const size_t bytes = std::min(piece, kLarge - at[slot]);
      if (to_gpu) {
        std::memcpy(slots[slot], host + at[slot], bytes);
        d.cuMemcpyHtoDAsync_v2(gpu + at[slot], slots[slot], bytes, stream);
      } else {
        d.cuMemcpyDtoHAsync_v2(slots[slot], gpu + at[slot], bytes, stream);
      }
      d.cuEventRecord(events[slot], stream);
    }
    for (unsigned slot = 0; slot < 2; ++slot) finish(slot);
    for (CUevent event : events) d.cuEventDestroy_v2(event);
    d.cuStreamDestroy_v2(stream);
  };
  double best = 0;
  for (int round = 0; round < 4; ++round) {
    next.store(0);
    std::vector<std::thread> others;
    const uint64_t begin_ns = base::now_ns();
    for (unsigned i = 1; i < threads; ++i) others.emplace_back(work, i);
    work(0);
    for (std::thread& other : others) other.join();
    best = std::max(best, static_cast<double>(kLarge) / us_since(begin_ns) / 1000);
  }
  return best;
}

void large_copies(Device& device, CUdeviceptr gpu, uint8_t* pinned) {
  const gpu::Driver& d = device.driver();
  uint8_t* host = memory(kLarge);
  for (const bool to_gpu : {true, false}) {
    double best = 0;
    for (int round = 0; round < 3; ++round) {
      const uint64_t begin_ns = base::now_ns();
      device.check(
          to_gpu ? d.cuMemcpyHtoD_v2(gpu, host, kLarge) : d.cuMemcpyDtoH_v2(host, gpu, kLarge),
          "copy");
      best = std::max(best, static_cast<double>(kLarge) / us_since(begin_ns) / 1000);
    }
    const std::string way = to_gpu ? "256 MB to, " : "256 MB from, ";
    print((way + "native way").c_str(), best, "GB/s");
    for (const size_t piece : {128 * kKiB, 512 * kKiB, 2 * kMiB}) {
      for (const unsigned threads : {1u, 2u, 3u, 4u}) {
        const std::string size = std::to_string(piece / kKiB), count = std::to_string(threads);
        const std::string what = way + "pieces of " + size + " KB, threads: " + count;
        print(what.c_str(),
              through_pieces_gb_per_s(device, gpu, pinned, host, to_gpu, piece, threads), "GB/s");
      }
    }
  }
}

}  // namespace

int main(int argc, char** argv) {
  try {
    Device device(argc > 1 ? argv[1] : "", 0);
    const gpu::Driver& d = device.driver();
    std::puts("what a driver charges");
    const bool staged_only = argc > 2 && std::strcmp(argv[2], "staged") == 0;
    if (!staged_only) {
      launches(device);
      launches_between_reads(device);
    }
    const CUdeviceptr gpu = device.allocate(kLarge);
    uint8_t* pinned = memory(32 * kMiB);
    device.check(d.cuMemHostRegister_v2(pinned, 32 * kMiB, CU_MEMHOSTREGISTER_PORTABLE),
                 "cuMemHostRegister");
    if (!staged_only) waits(device, pinned);
    CUevent event = nullptr;
    device.check(d.cuEventCreate(&event, CU_EVENT_DISABLE_TIMING), "cuEventCreate");
    for (const size_t bytes : {4 * kKiB, 64 * kKiB, kMiB}) {
      const Small small = {device, gpu, pinned, memory(kMiB), event};
      if (!staged_only) small_copies(small, bytes);
      if (bytes > 4 * kKiB) staged_copies(small, bytes);
    }
    if (!staged_only) large_copies(device, gpu, pinned);
  } catch (const Failure& failure) {
    std::fprintf(stderr, "tendril_driver_bench: %s\n", failure.what());
    return 1;
  }
  return 0;
}
