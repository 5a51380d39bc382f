// SPDX-License-Identifier: Apache-2.0
// What it costs to move device memory to the host and back, as parked leases do it
// (worker/cuda/parking). Beside each figure are its parts, from the same run: the driver's own copy
// to pinned memory, and the kernel's new pages. So the ratio says what is ours. Run it on an idle
// machine with the driver's library and, if wanted, how many MiB.
#include <sys/mman.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "base/clock.h"
#include "gpu/cuda/driver.h"
#include "worker/cuda/parking/host_pages.h"
#include "worker/cuda/parking/host_store.h"

namespace {

using namespace tendril;  // NOLINT: a program
using worker::cuda::HostPages;
using worker::cuda::HostStore;

constexpr uint64_t kMib = 1u << 20;
constexpr uint64_t kPinnedBytes = 64 * kMib;
constexpr uint64_t kPieceBytes = 8 * kMib;
constexpr int kRounds = 5;

void must(CUresult result, const char* what) {
  if (result == CUDA_SUCCESS) return;
  std::fprintf(stderr, "park_bench: %s: the driver answers %d\n", what, result);
  std::exit(1);
}

double seconds(const std::function<void()>& work) {
  const uint64_t began_ns = base::now_ns();
  work();
  return static_cast<double>(base::now_ns() - began_ns) / 1e9;
}

double median(std::vector<double> all) {
  std::nth_element(all.begin(), all.begin() + static_cast<ptrdiff_t>(all.size() / 2), all.end());
  return all[all.size() / 2];
}

// Of work on each piece, with as many threads as a park may have.
double shared_s(uint64_t bytes, const std::function<void(uint64_t from, uint64_t size)>& work) {
  const unsigned threads = std::clamp(std::thread::hardware_concurrency(), 1u, 12u);
  return seconds([&] {
    std::vector<std::thread> all;
    for (unsigned i = 0; i < threads; ++i) {
      all.emplace_back([=] {
        for (uint64_t from = i * kPieceBytes; from < bytes; from += threads * kPieceBytes)
          work(from, std::min(kPieceBytes, bytes - from));
      });
    }
    for (std::thread& one : all) one.join();
  });
}

double new_pages_s(uint64_t bytes) {
  HostPages pages;
  uint8_t* const at = pages.take(bytes);
  return shared_s(bytes,
                  [&](uint64_t from, uint64_t size) { HostPages::prepare(at + from, size); });
}

// What no park into memory can be faster than on this machine, if its link were free.
double memcpy_s(uint64_t bytes) {
  HostPages pages;
  uint8_t* const to = pages.take(bytes);
  const std::vector<uint8_t> source(kPinnedBytes, 7);
  const auto prepare = [&](uint64_t from, uint64_t size) { HostPages::prepare(to + from, size); };
  shared_s(bytes, prepare);
  return shared_s(bytes, [&](uint64_t from, uint64_t size) {
    std::memcpy(to + from, source.data() + from % kPinnedBytes, size);
  });
}

class Bench {
 public:
  Bench(gpu::Driver* driver, uint64_t bytes)
      : driver_(*driver), staging_(driver), store_(driver, &staging_), bytes_(bytes) {
    must(driver_.cuInit(0), "cuInit");
    must(driver_.cuDevicePrimaryCtxRetain(&context_, 0), "cuDevicePrimaryCtxRetain");
    must(driver_.cuCtxSetCurrent(context_), "cuCtxSetCurrent");
    must(driver_.cuMemAlloc_v2(&device_, bytes), "cuMemAlloc");
    must(driver_.cuMemsetD8_v2(device_, 7, bytes), "cuMemsetD8");
    must(driver_.cuMemHostAlloc(&pinned_, kPinnedBytes, 0), "cuMemHostAlloc");
    for (uint64_t at = 0; at < bytes; at += HostStore::kRangeBytesMax) {
      lots_.push_back({{device_ + at, std::min(HostStore::kRangeBytesMax, bytes - at), context_}});
    }
  }
  double link_s(bool out) {
    return seconds([&] {
      for (uint64_t at = 0; at < bytes_; at += kPinnedBytes) {
        const uint64_t size = std::min(kPinnedBytes, bytes_ - at);
        must(out ? driver_.cuMemcpyDtoHAsync_v2(pinned_, device_ + at, size, nullptr)
                 : driver_.cuMemcpyHtoDAsync_v2(device_ + at, pinned_, size, nullptr),
             "a copy");
      }
      must(driver_.cuStreamSynchronize(nullptr), "cuStreamSynchronize");
    });
  }
  double park_s() {
    const double spent_s =
        seconds([&] { must(store_.save(lots_, nullptr, nullptr), "copying to the host"); });
    must(driver_.cuCtxSetCurrent(context_), "cuCtxSetCurrent");
    return spent_s;
  }
  double wake_s() {
    const double spent_s =
        seconds([&] { must(store_.load(lots_, nullptr, nullptr), "copying back"); });
    must(driver_.cuCtxSetCurrent(context_), "cuCtxSetCurrent");
    return spent_s;
  }
  void forget() { store_.drop(); }
  void write() { store_.wrote(); }

 private:
  gpu::Driver& driver_;
  worker::cuda::Staging staging_;
  HostStore store_;
  const uint64_t bytes_;
  CUcontext context_ = nullptr;
  CUdeviceptr device_ = 0;
  void* pinned_ = nullptr;
  std::vector<HostStore::Lot> lots_;
};

void print(const char* what, double spent_s, double parts_s, uint64_t bytes) {
  std::printf("%-44s %8.3f s %7.2f GB/s", what, spent_s,
              static_cast<double>(bytes) / spent_s / 1e9);
  if (parts_s > 0) std::printf("   %.2f times its parts", spent_s / parts_s);
  std::printf("\n");
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2) {
    std::fprintf(stderr, "usage: tendril_park_bench DRIVER [MIB]\n");
    return 2;
  }
  auto driver = gpu::Driver::open(argv[1]);
  if (!driver.ok()) {
    std::fprintf(stderr, "park_bench: %s\n", driver.status().message().c_str());
    return 1;
  }
  const uint64_t bytes = (argc > 2 ? std::strtoull(argv[2], nullptr, 10) : 2048) * kMib;
  Bench bench(driver->get(), bytes);
  std::vector<double> out, in, pages, first, again, same, back, bare;
  for (int round = 0; round < kRounds; ++round) {
    out.push_back(bench.link_s(true));
    in.push_back(bench.link_s(false));
    bench.forget();  // so that both have pages that were free a moment ago
    pages.push_back(new_pages_s(bytes));
    bare.push_back(memcpy_s(bytes));
    first.push_back(bench.park_s());
    back.push_back(bench.wake_s());
    bench.write();
    again.push_back(bench.park_s());
    same.push_back(bench.park_s());
  }
  std::printf("%llu MiB, medians of %d rounds\n", static_cast<unsigned long long>(bytes / kMib),
              kRounds);
  print("device to pinned memory, the driver alone", median(out), 0, bytes);
  print("pinned memory to device, the driver alone", median(in), 0, bytes);
  print("new pages of the host alone", median(pages), 0, bytes);
  print("memcpy into used pages, as many threads", median(bare), 0, bytes);
  print("park, new pages (copy and pages)", median(first), median(out) + median(pages), bytes);
  print("park again, all written (copy)", median(again), median(out), bytes);
  print("park again, nothing written", median(same), 0, bytes);
  print("wake (copy)", median(back), median(in), bytes);
  return 0;
}
