// SPDX-License-Identifier: Apache-2.0
// Copies between the host and GPUs, and how a large copy delays another thread's launches.
#include <atomic>
#include <cstring>
#include <thread>

#include "base/clock.h"
#include "bench/figures.h"

namespace tendril::bench {
namespace {

constexpr size_t kKiB = 1024, kMiB = 1024 * kKiB;
constexpr size_t kGbFrom =
    16 * kMiB;  // figures of larger copies are in GB/s, of smaller ones in microseconds
constexpr int kFirstCopies =
    20;  // small ones that do not count: first pages, windows that open. The bare ones are warm
constexpr size_t kBeside = 256 * kMiB;
constexpr size_t kMatrixBytes = 64 * kMiB;

std::string size_text(size_t bytes) {
  if (bytes >= 1024 * kMiB) return std::to_string(bytes / (1024 * kMiB)) + "g";
  return bytes >= kMiB ? std::to_string(bytes / kMiB) + "m" : std::to_string(bytes / kKiB) + "k";
}

// Host memory that does not compress, so that no transport looks better than it is. Pageable or
// pinned.
class HostMemory {
 public:
  HostMemory(const Device& device, size_t bytes, bool pinned) : device_(device), pinned_(pinned) {
    if (pinned) {
      device.check(device.driver().cuMemAllocHost_v2(&data_, bytes), "cuMemAllocHost");
    } else {
      data_ = std::malloc(bytes);
      if (data_ == nullptr) throw Failure("out of host memory");
    }
    uint64_t state = 88172645463325252u;
    for (size_t i = 0; i + 8 <= bytes; i += 8) {
      state ^= state << 13;
      state ^= state >> 7;
      state ^= state << 17;
      std::memcpy(static_cast<uint8_t*>(data_) + i, &state, 8);
    }
  }
  ~HostMemory() {
    if (pinned_)
      device_.driver().cuMemFreeHost(data_);
    else
      std::free(data_);
  }
  HostMemory(const HostMemory&) = delete;
  HostMemory& operator=(const HostMemory&) = delete;
  void* data() const { return data_; }

 private:
  const Device& device_;
  bool pinned_;
  void* data_ = nullptr;
};

class DeviceMemory {
 public:
  DeviceMemory(const Device& device, size_t bytes)
      : device_(device), address_(device.allocate(bytes)) {}
  ~DeviceMemory() { device_.driver().cuMemFree_v2(address_); }
  DeviceMemory(const DeviceMemory&) = delete;
  DeviceMemory& operator=(const DeviceMemory&) = delete;
  operator CUdeviceptr() const { return address_; }

 private:
  const Device& device_;
  CUdeviceptr address_;
};

// The median of small copies, or the best of large ones.
template <typename Copy>
double copy_us(const Device& device, size_t bytes, int rounds, Copy copy) {
  std::vector<double> times;
  const bool large = bytes >= kGbFrom;
  const int first = large ? 1 : kFirstCopies;
  const int repeats = large ? 5 : std::max(31, rounds / static_cast<int>(1 + bytes / (64 * kKiB)));
  for (int i = 0; i < first + repeats; ++i) {
    device.synchronize();
    const uint64_t begin_ns = base::now_ns();
    copy();
    device.synchronize();
    if (i >= first) times.push_back(static_cast<double>(base::now_ns() - begin_ns) / 1000);
  }
  return bytes >= kGbFrom ? *std::min_element(times.begin(), times.end()) : median(times);
}

void add_copy(Report& report, const std::string& name, size_t bytes, double us) {
  if (bytes >= kGbFrom) {
    report.add(name + "_gb_per_s", static_cast<double>(bytes) / us / 1000);
  } else {
    report.add(name + "_us", us);
  }
}

void measure_kind(Device& device, const Extent& extent, bool pinned, Report& report) {
  const gpu::Driver& d = device.driver();
  for (const size_t bytes :
       {4 * kKiB, 64 * kKiB, kMiB, 16 * kMiB, 64 * kMiB, 256 * kMiB, 1024 * kMiB}) {
    if (bytes > extent.copy_bytes_max) break;
    const HostMemory host(device, bytes, pinned);
    const DeviceMemory memory(device, bytes);
    const std::string kind = pinned ? "pinned" : "pageable", size = size_text(bytes);
    add_copy(report, kind + "_to_gpu_" + size, bytes, copy_us(device, bytes, extent.rounds, [&] {
               device.check(pinned ? d.cuMemcpyHtoDAsync_v2(memory, host.data(), bytes, nullptr)
                                   : d.cuMemcpyHtoD_v2(memory, host.data(), bytes),
                            "cuMemcpyHtoD");
             }));
    add_copy(report, kind + "_from_gpu_" + size, bytes, copy_us(device, bytes, extent.rounds, [&] {
               device.check(pinned ? d.cuMemcpyDtoHAsync_v2(host.data(), memory, bytes, nullptr)
                                   : d.cuMemcpyDtoH_v2(host.data(), memory, bytes),
                            "cuMemcpyDtoH");
             }));
  }
}

// One thread copies while this one launches. Reports the worst launch, and the worst launch with
// its wait.
void measure_beside(Device& device, const Extent& extent, Report& report) {
  const gpu::Driver& d = device.driver();
  const size_t bytes = std::min(kBeside, extent.copy_bytes_max);
  const HostMemory host(device, bytes, false);
  const DeviceMemory memory(device, bytes);
  CUstream copying = device.stream(), launching = device.stream();
  device.launch_nothing(launching);  // loads the kernel, which does not count as a launch
  device.synchronize();
  std::atomic<int> state{0};  // 1: the copy runs, 2: it is over
  CUresult copied = CUDA_SUCCESS;
  std::thread thread([&] {
    copied = d.cuCtxSetCurrent(device.context());
    state.store(1);
    for (int i = 0; i < 3 && copied == CUDA_SUCCESS; ++i) {
      copied = d.cuMemcpyHtoDAsync_v2(memory, host.data(), bytes, copying);
      if (copied == CUDA_SUCCESS) copied = d.cuStreamSynchronize(copying);
    }
    state.store(2);
  });
  while (state.load() == 0) base::cpu_pause();
  double worst_launch_us = 0, worst_wait_us = 0;
  CUresult waited = CUDA_SUCCESS;
  while (state.load() == 1 && waited == CUDA_SUCCESS) {
    const uint64_t begin_ns = base::now_ns();
    device.launch_nothing(launching);
    worst_launch_us =
        std::max(worst_launch_us, static_cast<double>(base::now_ns() - begin_ns) / 1000);
    waited = d.cuStreamSynchronize(launching);
    worst_wait_us = std::max(worst_wait_us, static_cast<double>(base::now_ns() - begin_ns) / 1000);
  }
  thread.join();
  device.check(copied, "cuMemcpyHtoDAsync");
  device.check(waited, "cuStreamSynchronize");
  report.add("worst_launch_beside_copy_us", worst_launch_us);
  report.add("worst_launch_sync_beside_copy_us", worst_wait_us);
  device.check(d.cuStreamDestroy_v2(copying), "cuStreamDestroy");
  device.check(d.cuStreamDestroy_v2(launching), "cuStreamDestroy");
}

size_t group_of(const std::vector<int>& groups, int endpoint) {
  size_t group = 0;
  while (group < groups.size() && endpoint >= groups[group]) endpoint -= groups[group++];
  return group;
}

}  // namespace

void measure_copies(Device& device, const Extent& extent, Report& report) {
  for (const bool pinned : {true, false}) {
    report.attempt(pinned ? "pinned copies" : "pageable copies",
                   [&] { measure_kind(device, extent, pinned, report); });
  }
  report.attempt("launches beside a copy", [&] { measure_beside(device, extent, report); });
}

void measure_waits(Device& device, const Extent& extent, Report& report) {
  const Extent small{64 * kKiB, extent.rounds * 10};
  report.add("launch_sync_us", median(each_us(small.rounds, [&] {
               device.launch_nothing(nullptr);
               device.synchronize();
             })));
  for (const bool pinned : {true, false}) measure_kind(device, small, pinned, report);
}

// Endpoint -1 is the host. Figures are named FROM_TO_us (4 bytes) and FROM_TO_gb_per_s, with host
// and gpu0, gpu1, ...
void measure_matrix(Device& first, const Extent& extent, const std::vector<int>& groups,
                    Report& report) {
  const gpu::Driver& d = first.driver();
  int count = 0;
  first.check(d.cuDeviceGetCount(&count), "cuDeviceGetCount");
  const size_t bytes = std::min(kMatrixBytes, extent.copy_bytes_max);
  std::vector<std::unique_ptr<Device>> devices;
  std::vector<std::unique_ptr<DeviceMemory>> memory;
  for (int i = 0; i < count; ++i) {
    devices.push_back(std::make_unique<Device>(first, i));
    memory.push_back(std::make_unique<DeviceMemory>(*devices.back(), bytes));
  }
  const HostMemory host(*devices[0], bytes, true);
  const auto copy = [&](int from, int to, size_t n) {
    if (from < 0)
      return d.cuMemcpyHtoDAsync_v2(*memory[static_cast<size_t>(to)], host.data(), n, nullptr);
    const auto source = static_cast<size_t>(from);
    if (to < 0) return d.cuMemcpyDtoHAsync_v2(host.data(), *memory[source], n, nullptr);
    const auto target = static_cast<size_t>(to);
    return d.cuMemcpyPeerAsync(*memory[target], devices[target]->context(), *memory[source],
                               devices[source]->context(), n, nullptr);
  };
  const auto name = [](int endpoint) {
    return endpoint < 0 ? std::string("host") : "gpu" + std::to_string(endpoint);
  };
  const int first_end = groups.empty() ? -1 : 0;  // the host is in no group
  for (int from = first_end; from < count; ++from) {
    for (int to = first_end; to < count; ++to) {
      if (from < 0 && to < 0) continue;
      if (!groups.empty() && group_of(groups, from) == group_of(groups, to)) continue;
      const Device& device = *devices[static_cast<size_t>(from < 0 ? to : from)];
      const std::string pair = name(from) + "_" + name(to);
      report.attempt(pair.c_str(), [&] {
        device.use();
        const auto checked = [&](size_t n) { device.check(copy(from, to, n), "copy"); };
        const double small_us = copy_us(device, 4, extent.rounds, [&] { checked(4); });
        const double large_us = copy_us(device, kGbFrom, extent.rounds, [&] { checked(bytes); });
        report.add(pair + "_us", small_us);
        report.add(pair + "_gb_per_s", static_cast<double>(bytes) / large_us / 1000);
      });
    }
  }
}

}  // namespace tendril::bench
