// SPDX-License-Identifier: Apache-2.0
// Single calls: what a call costs the caller, how long a wait takes, and which rate can be
// sustained.
#include <unistd.h>

#include <condition_variable>
#include <mutex>

#include "base/clock.h"
#include "bench/figures.h"

namespace tendril::bench {
namespace {

constexpr int kBurst = 200;  // few enough to fill no queue
constexpr int kSustained = 20'000;
constexpr int kNodes = 100;
constexpr useconds_t kPauseUs = 60'000;  // longer than any thread on the way spins

// What one of `kBurst` calls costs the caller, in the least disturbed of several bursts.
template <typename Call>
double burst_us(Device& device, Call call) {
  double best = 1e30;
  for (int round = 0; round < 10; ++round) {
    device.synchronize();
    const uint64_t begin_ns = base::now_ns();
    for (int i = 0; i < kBurst; ++i) call();
    best = std::min(best, us_since(begin_ns) / kBurst);
  }
  device.synchronize();
  return best;
}

void launches(Device& device, const Extent& extent, Report& report) {
  const gpu::Driver& d = device.driver();
  const CUdeviceptr counter = device.allocate(4);
  device.check(d.cuMemsetD32_v2(counter, 0, 1), "cuMemsetD32");
  for (int i = 0; i < 20; ++i) device.launch_nothing(nullptr);
  report.add("enqueue_us", burst_us(device, [&] { device.launch_nothing(nullptr); }));
  const int launches = extent.rounds * (kSustained / 200);
  double best_us = 1e30;
  for (int round = 0; round < 3; ++round) {
    device.synchronize();
    const uint64_t begin_ns = base::now_ns();
    for (int i = 0; i < launches; ++i) device.launch_count(counter, nullptr);
    device.synchronize();
    best_us = std::min(best_us, us_since(begin_ns));
  }
  uint32_t counted = 0;
  device.check(d.cuMemcpyDtoH_v2(&counted, counter, 4), "cuMemcpyDtoH");
  if (counted != 3u * static_cast<uint32_t>(launches)) throw Failure("launches were lost");
  report.add("sustained_per_s", launches / best_us * 1e6);
  std::vector<double> waits = each_us(extent.rounds * 5, [&] {
    device.launch_nothing(nullptr);
    device.synchronize();
  });
  report.add("launch_sync_us", median(waits));
  std::sort(waits.begin(), waits.end());
  report.add("launch_sync_p99_us", waits[waits.size() * 99 / 100]);
  report.add("item_us", median(each_us(extent.rounds * 5, [&] {
               device.launch_count(counter, nullptr);
               device.check(d.cuMemcpyDtoH_v2(&counted, counter, 4), "cuMemcpyDtoH");
             })));
  device.check(d.cuMemFree_v2(counter), "cuMemFree");
}

void events(Device& device, Report& report) {
  const gpu::Driver& d = device.driver();
  CUevent event = nullptr;
  device.check(d.cuEventCreate(&event, CU_EVENT_DISABLE_TIMING), "cuEventCreate");
  const auto record = [&] { device.check(d.cuEventRecord(event, nullptr), "cuEventRecord"); };
  record();
  report.add("event_record_us", burst_us(device, record));
  device.check(d.cuEventSynchronize(event), "cuEventSynchronize");
  report.add("event_query_us",
             burst_us(device, [&] { device.check(d.cuEventQuery(event), "cuEventQuery"); }));
  device.check(d.cuEventDestroy_v2(event), "cuEventDestroy");
}

void pool(Device& device, Report& report) {
  const gpu::Driver& d = device.driver();
  CUstream stream = device.stream();
  const auto pair = [&] {
    CUdeviceptr memory = 0;
    device.check(d.cuMemAllocAsync(&memory, 4096, stream), "cuMemAllocAsync");
    device.check(d.cuMemFreeAsync(memory, stream), "cuMemFreeAsync");
  };
  pair();
  report.add("alloc_free_async_us", burst_us(device, pair));
  device.check(d.cuStreamDestroy_v2(stream), "cuStreamDestroy");
}

void graphs(Device& device, const Extent& extent, Report& report) {
  const gpu::Driver& d = device.driver();
  CUstream stream = device.stream();
  device.check(d.cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_RELAXED),
               "cuStreamBeginCapture");
  for (int i = 0; i < kNodes; ++i) device.launch_nothing(stream);
  CUgraph graph = nullptr;
  CUgraphExec exec = nullptr;
  device.check(d.cuStreamEndCapture(stream, &graph), "cuStreamEndCapture");
  device.check(d.cuGraphInstantiateWithFlags(&exec, graph, 0), "cuGraphInstantiate");
  const auto launch = [&] { device.check(d.cuGraphLaunch(exec, stream), "cuGraphLaunch"); };
  launch();
  device.synchronize();
  // One at a time: a second launch of a graph waits for the first.
  std::vector<double> enqueued, done;
  for (int i = 0; i < extent.rounds; ++i) {
    const uint64_t begin_ns = base::now_ns();
    launch();
    enqueued.push_back(us_since(begin_ns));
    device.synchronize();
    done.push_back(us_since(begin_ns));
  }
  report.add("graph_launch_100_us", median(enqueued));
  report.add("graph_launch_100_sync_us", median(done));
  device.check(d.cuGraphExecDestroy(exec), "cuGraphExecDestroy");
  device.check(d.cuGraphDestroy(graph), "cuGraphDestroy");
  device.check(d.cuStreamDestroy_v2(stream), "cuStreamDestroy");
}

// A program that, like JAX, learns from a host function that its copy has arrived. Copy and host
// function must both come back from the server.
class CopyAndTell {
 public:
  explicit CopyAndTell(Device& device)
      : device_(device),
        stream_(device.stream()),
        beside_(device.stream()),
        value_(device.allocate(4)) {
    device.check(device.driver().cuMemHostAlloc(&host_, 4, CU_MEMHOSTALLOC_PORTABLE),
                 "cuMemHostAlloc");
    device.check(device.driver().cuEventCreate(&copied_, CU_EVENT_DISABLE_TIMING), "cuEventCreate");
  }
  ~CopyAndTell() {
    const gpu::Driver& d = device_.driver();
    d.cuStreamSynchronize(stream_);
    d.cuMemFreeHost(host_);
    d.cuMemFree_v2(value_);
    d.cuEventDestroy_v2(copied_);
    d.cuStreamDestroy_v2(stream_);
    d.cuStreamDestroy_v2(beside_);
  }

  void tell() { tell(stream_); }
  // One host function tells the owner of the buffers, and one tells the program.
  void copy_and_tell() {
    const gpu::Driver& d = device_.driver();
    device_.check(d.cuMemcpyDtoHAsync_v2(host_, value_, 4, stream_), "cuMemcpyDtoHAsync");
    device_.check(d.cuLaunchHostFunc(stream_, nothing, nullptr), "cuLaunchHostFunc");
    device_.check(d.cuEventRecord(copied_, stream_), "cuEventRecord");
    device_.check(d.cuStreamWaitEvent(beside_, copied_, 0), "cuStreamWaitEvent");
    tell(beside_);
  }

 private:
  void tell(CUstream stream) {
    told_ = false;
    device_.check(device_.driver().cuLaunchHostFunc(stream, note, this), "cuLaunchHostFunc");
    std::unique_lock<std::mutex> hold(mutex_);
    changed_.wait(hold, [&] { return told_; });
  }
  static void nothing(void*) {}
  static void note(void* self) {
    CopyAndTell* mine = static_cast<CopyAndTell*>(self);
    const std::lock_guard<std::mutex> hold(mine->mutex_);
    mine->told_ = true;
    mine->changed_.notify_one();
  }

  Device& device_;
  const CUstream stream_, beside_;
  const CUdeviceptr value_;
  CUevent copied_ = nullptr;
  void* host_ = nullptr;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool told_ = false;
};

void host_functions(Device& device, const Extent& extent, Report& report) {
  CopyAndTell work(device);
  work.copy_and_tell();
  report.add("host_function_us", median(each_us(extent.rounds, [&] { work.tell(); })));
  report.add("copy_host_functions_us",
             median(each_us(extent.rounds, [&] { work.copy_and_tell(); })));
  std::vector<double> after_pauses;
  for (int i = 0; i < 10; ++i) {
    usleep(kPauseUs);
    after_pauses.push_back(each_us(1, [&] { work.copy_and_tell(); })[0]);
  }
  report.add("copy_host_functions_after_pause_us", median(after_pauses));
}

}  // namespace

void measure_calls(Device& device, const Extent& extent, Report& report) {
  report.attempt("launches", [&] { launches(device, extent, report); });
  report.attempt("events", [&] { events(device, report); });
  report.attempt("allocation in stream order", [&] { pool(device, report); });
  report.attempt("graphs", [&] { graphs(device, extent, report); });
  report.attempt("host functions", [&] { host_functions(device, extent, report); });
}

}  // namespace tendril::bench
