// SPDX-License-Identifier: Apache-2.0
// What one thread must not do to another. Beside a thread that is held up, this one launches and waits again and again in a stream of
// its own, and tells the longest time that took. Argument: what holds the other thread up: "copy" (default), a large copy to the device;
// "back", one to the host; "free", calls that wait for a host function which does not end before all launches are through. Prints times.
#include <atomic>
#include <condition_variable>
#include <mutex>
#include <string>
#include <thread>

#include "kernels.ptx.gen.h"
#include "tests/programs/program.h"

namespace {

constexpr size_t kBytes = size_t{256} << 20;

struct Gate {
  std::mutex mutex;
  std::condition_variable changed;
  bool open = false;
  static void wait(void* gate) {
    auto* self = static_cast<Gate*>(gate);
    std::unique_lock<std::mutex> lock(self->mutex);
    self->changed.wait(lock, [self] { return self->open; });
  }
  void release() {
    std::lock_guard<std::mutex> lock(mutex);
    open = true;
    changed.notify_all();
  }
};

class Launches {
 public:
  Launches() : affine_(program::load(kKernelsPtx, "affine")) {
    CHECK(cuStreamCreate(&stream_, CU_STREAM_NON_BLOCKING));
    CHECK(cuMemAlloc(&data_, 1024));
    once();
  }
  void once() {
    const double begin = program::seconds_now();
    CHECK(program::launch(affine_, 1, 256, stream_, data_, 3u, 1u, 256u));
    CHECK(cuStreamSynchronize(stream_));
    const double took = program::seconds_now() - begin;
    if (count_++ > 0 && took > worst_) worst_ = took;
  }
  int count() const { return count_; }
  double worst() const { return worst_; }

 private:
  CUfunction affine_;
  CUstream stream_ = nullptr;
  CUdeviceptr data_ = 0;
  int count_ = 0;
  double worst_ = 0;
};

// A copy on a stream of its own thread, and how long it took.
double copy_beside(CUcontext context, Launches* launches, bool back) {
  CUdeviceptr device = 0;
  CHECK(cuMemAlloc(&device, kBytes));
  std::vector<uint8_t> host(kBytes, 7);
  std::atomic<bool> over{false};
  double took = 0;
  std::thread other([&] {
    CHECK(cuCtxSetCurrent(context));
    const double begin = program::seconds_now();
    if (back)
      CHECK(cuMemcpyDtoH(host.data(), device, kBytes));
    else
      CHECK(cuMemcpyHtoD(device, host.data(), kBytes));
    took = program::seconds_now() - begin;
    over = true;
  });
  while (!over) launches->once();
  other.join();
  CHECK(cuMemFree(device));
  return took;
}

// Calls that wait for a host function, which waits for the launches of this thread.
void free_beside(CUcontext context, Launches* launches) {
  Gate gate;
  CUstream held;
  CUdeviceptr device = 0;
  CUarray array;
  CUDA_ARRAY3D_DESCRIPTOR description = {};
  description.Width = 64;
  description.Format = CU_AD_FORMAT_UNSIGNED_INT8;
  description.NumChannels = 1;
  CHECK(cuStreamCreate(&held, CU_STREAM_NON_BLOCKING));
  CHECK(cuMemAlloc(&device, 1 << 20));
  CHECK(cuArray3DCreate_v2(&array, &description));
  CHECK(cuLaunchHostFunc(held, Gate::wait, &gate));
  std::thread other([&] {
    CHECK(cuCtxSetCurrent(context));
    CHECK(cuMemFree(device));
    CHECK(cuArrayDestroy(array));
  });
  for (int i = 0; i < 200; i++) launches->once();
  gate.release();
  other.join();
  CHECK(cuStreamSynchronize(held));
}

}  // namespace

int main(int argc, char** argv) {
  const std::string what = argc > 1 ? argv[1] : "copy";
  const CUcontext context = program::use_device(0);
  Launches launches;
  double took = 0;
  if (what == "free")
    free_beside(context, &launches);
  else
    took = copy_beside(context, &launches, what == "back");
  std::printf("beside %s: %.3f s, %d launches, worst %.6f s\n", what.c_str(), took, launches.count(), launches.worst());
  return program::finish(launches.count() > 1);
}
