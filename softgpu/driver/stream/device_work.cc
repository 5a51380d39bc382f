// SPDX-License-Identifier: Apache-2.0
// See device_work.h. This is the only place with the cost model, which docs/softgpu.md describes.

#include "softgpu/driver/stream/device_work.h"

#include <algorithm>
#include <chrono>
#include <thread>

#include "softgpu/board/board.h"
#include "softgpu/driver/config.h"
#include "softgpu/driver/device/context.h"
#include "softgpu/driver/stream/clock.h"

namespace tendril::softgpu {
namespace {

// A well-mixed number of seed and order, so that the delay of an operation depends on nothing else.
uint64_t mixed(uint64_t seed, uint64_t order) {
  uint64_t x = seed + order * 0x9e3779b97f4a7c15;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
  x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
  return x ^ (x >> 31);
}

int64_t random_delay(const DeviceFaults& faults_of_device) {
  if (faults_of_device.delay_ns == 0) return 0;
  const uint64_t random = mixed(faults().seed, charge().order);
  return static_cast<int64_t>(random % static_cast<uint64_t>(faults_of_device.delay_ns + 1));
}

const KernelTime* configured_time(const std::string& name) {
  const KernelTime* any = nullptr;
  for (const KernelTime& time : faults().kernel_times) {
    if (time.name == name) return &time;
    if (time.name == "*") any = &time;
  }
  return any;
}

}  // namespace

uint64_t board_key(const Context& context) {
  return (static_cast<uint64_t>(board().slot()) + 1) << 32 | (context.id & 0xffffffff);
}

Engine copy_engine(bool from_host, bool to_host) {
  if (from_host == to_host)
    return Engine::kCompute;  // within a device, or between two: no link to the host
  return from_host ? Engine::kCopyIn : Engine::kCopyOut;
}

DeviceWork::DeviceWork(Context& context, Engine engine)
    : context_(context), engine_(engine), refusal_(CUDA_SUCCESS), begun_ns_(host_now_ns()) {
  const DeviceFaults& now = faults().device[context.device];
  if (now.lost) refusal_ = CUDA_ERROR_UNKNOWN;
  if (now.ecc && refusal_ == CUDA_SUCCESS) {
    board().count_ecc_error(context.device);
    refusal_ = CUDA_ERROR_ECC_UNCORRECTABLE;
  }
  if (!Clock::instance().timed() && engine_ == Engine::kCompute) board().begin_work(context.device);
}

DeviceWork::~DeviceWork() {
  const DeviceFaults& now = faults().device[context_.device];
  const int64_t elapsed = host_now_ns() - begun_ns_, delay = random_delay(now);
  Clock& clock = Clock::instance();
  if (!clock.timed()) {
    const double slower = now.slow > 1 ? (now.slow - 1) * static_cast<double>(elapsed) : 0;
    const int64_t pause = static_cast<int64_t>(slower) + delay;
    if (pause > 0) std::this_thread::sleep_for(std::chrono::nanoseconds(pause));
    if (engine_ == Engine::kCompute) board().end_work(context_.device);
    return;
  }
  int64_t cost = cost_ns_;
  if (cost < kForEverNs) cost = static_cast<int64_t>(static_cast<double>(cost) * now.slow) + delay;
  // On a clock that follows the host's, computing the result has already used some of the time.
  if (config().mode == TimeMode::kPaced) cost = std::max<int64_t>(cost - elapsed, 1);
  Charge& mine = charge();
  const bool mixes = mine.ns != 0 && mine.engine != engine_;
  mine.device = context_.device;
  mine.context = board_key(context_);
  mine.engine = mixes ? Engine::kCompute : engine_;
  mine.ns = std::min(mine.ns + cost, kForEverNs);
}

bool DeviceWork::executes() const { return Clock::instance().executes(); }

void DeviceWork::took_kernel(const std::string& name, Dim3 grid, const LaunchResult& result) {
  if (!Clock::instance().timed()) return;
  const DeviceSettings& device = config().device[context_.device];
  const double blocks = static_cast<double>(grid.x) * grid.y * grid.z;
  if (const KernelTime* time = configured_time(name)) {
    cost_ns_ =
        time->per_block ? static_cast<int64_t>(static_cast<double>(time->ns) * blocks) : time->ns;
    return;
  }
  const double processors = std::min(blocks, static_cast<double>(config().sm_count));
  const double computing =
      static_cast<double>(result.warp_instructions) / (processors * device.rate);
  const double moving =
      static_cast<double>(result.bytes_read + result.bytes_written) / device.bandwidth;
  cost_ns_ = device.launch_ns + static_cast<int64_t>(std::max(computing, moving));
}

void DeviceWork::took_bytes(uint64_t bytes) {
  const DeviceSettings& device = config().device[context_.device];
  const double speed = engine_ == Engine::kCompute ? device.bandwidth : device.link;
  cost_ns_ = device.copy_ns + static_cast<int64_t>(static_cast<double>(bytes) / speed);
}

bool DeviceWork::hangs(const std::string& kernel) const {
  const std::string& name = faults().device[context_.device].hang;
  return !name.empty() && (name == "*" || name == kernel);
}

CUresult DeviceWork::hang() {
  if (faults().step_budget != 0) return CUDA_ERROR_LAUNCH_TIMEOUT;  // it would use that up
  if (Clock::instance().timed()) {
    cost_ns_ = kForEverNs;
    return CUDA_SUCCESS;
  }
  while (!context_.cancelled() && !faults().device[context_.device].lost)
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  return context_.cancelled() ? CUDA_ERROR_CONTEXT_IS_DESTROYED : CUDA_ERROR_UNKNOWN;
}

}  // namespace tendril::softgpu
