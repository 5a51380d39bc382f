// SPDX-License-Identifier: Apache-2.0
// A day of 500 clients on 64 GPUs, in simulated time. Each client is a thread. It asks the daemon's
// lease book for slices, makes a context on each GPU that it gets, fills its quota of memory, runs
// kernels that take minutes (and are not executed), gives everything back, and comes again. One
// clock serves them all, so a day takes seconds. The transcript is the same whenever the seed is.
// The clients are not processes, and no bytes travel. Admission, memory, time slices, queues and
// the clock are the real ones. tests/e2e tests the wire, workers and their deaths.
//
// Runs itself as `tendril_day_test --play SEED`, because the mode of time is fixed when a process
// starts, and compares what that prints.

#include <gtest/gtest.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cinttypes>
#include <memory>
#include <mutex>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "lease/lease_book.h"
#include "softgpu/board/board.h"
#include "softgpu/driver/config.h"
#include "softgpu/driver/prototypes.h"
#include "softgpu/driver/stream/clock.h"

namespace tendril {
namespace {

constexpr unsigned kClients = 500, kGpus = 64;
constexpr int64_t kSecondNs = 1'000'000'000, kMinuteNs = 60 * kSecondNs,
                  kDayNs = 24 * 60 * kMinuteNs;
constexpr uint64_t kGpuMib = 16384;

constexpr char kPtx[] = R"(
  .version 7.0
  .target sm_70
  .address_size 64
  .visible .entry work() { ret; }
)";

[[noreturn]] void stop(unsigned client, const char* what, int code) {
  fprintf(stderr, "client %u: %s answered %d\n", client, what, code);
  _exit(1);
}
#define MUST(call)                                                          \
  do {                                                                      \
    const CUresult result = (call);                                         \
    if (result != CUDA_SUCCESS) stop(id_, #call, static_cast<int>(result)); \
  } while (false)

// What the clients share: the book that admits them, and the transcript.
class Hall {
 public:
  Hall() : book_("hall", std::vector<lease::GpuCapacity>(kGpus, {kGpuMib << 20, 0})) {}

  base::Result<std::vector<wire::SliceGrant>> ask(uint64_t lease,
                                                  const wire::LeaseRequest& request) {
    std::lock_guard guard(lock_);
    return book_.grant(lease, request);
  }
  void give_back(uint64_t lease) {
    std::lock_guard guard(lock_);
    book_.release(lease);
  }
  void note(unsigned client, const std::string& what) {
    std::lock_guard guard(lock_);
    printf("%" PRId64 " %u %s\n", softgpu::Clock::instance().now_ns() - begun_ns_, client,
           what.c_str());
  }
  int64_t now_ns() const { return softgpu::Clock::instance().now_ns() - begun_ns_; }

 private:
  std::mutex lock_;
  lease::LeaseBook book_;
  const int64_t begun_ns_ = softgpu::Clock::instance().now_ns();
};

class Client {
 public:
  Client(Hall* hall, unsigned id, uint64_t seed)
      : hall_(hall), id_(id), random_(seed * 1'000'003 + id) {}

  void live() {
    softgpu::Clock& clock = softgpu::Clock::instance();
    clock.sleep(static_cast<int64_t>(id_) * 1'000'003 +
                up_to(20 * kMinuteNs));  // no two at the same instant
    for (uint64_t visit = 0; hall_->now_ns() < kDayNs; ++visit) {
      work(visit * kClients + id_ + 1);
      clock.sleep(up_to(30 * kMinuteNs));
    }
    clock.blocks();  // this thread waits no more and submits nothing
  }

 private:
  struct Slice {
    wire::SliceGrant grant;
    CUcontext context = nullptr;
    CUfunction function = nullptr;
    CUdeviceptr memory = 0;
    CUevent begin = nullptr, end = nullptr;
  };

  int64_t up_to(int64_t most) {
    return static_cast<int64_t>(random_() % static_cast<uint64_t>(most)) + 1;
  }

  // One lease, from asking to giving back.
  void work(uint64_t lease) {
    constexpr uint32_t kShares[] = {125'000, 250'000, 333'333, 500'000, 1'000'000};
    wire::LeaseRequest request;
    request.count = up_to(4) == 1 ? 2 : 1;
    request.slice.share_millionths = kShares[random_() % 5];
    auto granted = hall_->ask(lease, request);
    while (!granted.ok()) {
      hall_->note(id_, "waits");
      softgpu::Clock::instance().sleep(5 * kMinuteNs + up_to(kMinuteNs));
      granted = hall_->ask(lease, request);
    }
    std::vector<Slice> slices;
    for (const wire::SliceGrant& grant : *granted) slices.push_back(open(grant));
    for (int64_t round = up_to(4); round > 0; --round) run(slices);
    for (Slice& slice : slices) close(slice);
    hall_->give_back(lease);
    hall_->note(id_, "leaves");
  }

  Slice open(const wire::SliceGrant& grant) {
    Slice slice;
    CUmodule module = nullptr;
    slice.grant = grant;
    MUST(cuCtxCreate_v2(&slice.context, 0, static_cast<CUdevice>(grant.gpu_index)));
    MUST(cuModuleLoadData(&module, kPtx));
    MUST(cuModuleGetFunction(&slice.function, module, "work"));
    // Quotas of one GPU never add up to more than it has, so this cannot be refused.
    MUST(cuMemAlloc_v2(&slice.memory, grant.memory_bytes / 256 * 256));
    MUST(cuEventCreate(&slice.begin, 0));
    MUST(cuEventCreate(&slice.end, 0));
    hall_->note(id_, "gets gpu " + std::to_string(grant.gpu_index) + " share " +
                         std::to_string(grant.share_millionths) + " memory " +
                         std::to_string(grant.memory_bytes));
    return slice;
  }

  // A kernel of some minutes on every slice at once.
  void run(std::vector<Slice>& slices) {
    const unsigned minutes = static_cast<unsigned>(up_to(20));
    for (Slice& slice : slices) {
      MUST(cuCtxSetCurrent(slice.context));
      MUST(cuEventRecord(slice.begin, nullptr));
      MUST(cuLaunchKernel(slice.function, minutes, 1, 1, 1, 1, 1, 0, nullptr, nullptr, nullptr));
      MUST(cuEventRecord(slice.end, nullptr));
    }
    for (Slice& slice : slices) {
      float ms = 0;
      MUST(cuCtxSetCurrent(slice.context));
      MUST(cuCtxSynchronize());
      MUST(cuEventElapsedTime_v2(&ms, slice.begin, slice.end));
      // Neighbours can only make it longer. At hours the grain of a float is half a millisecond per
      // minute.
      if (ms < 60'000.0f * static_cast<float>(minutes) * 0.99999f)
        stop(id_, "too short a kernel", static_cast<int>(ms));
      char text[64];
      snprintf(text, sizeof text, "ran %u minutes in %.1f on gpu %u", minutes,
               static_cast<double>(ms) / 60'000, slice.grant.gpu_index);
      hall_->note(id_, text);
    }
  }

  void close(Slice& slice) {
    MUST(cuCtxSetCurrent(slice.context));
    MUST(cuMemFree_v2(slice.memory));
    MUST(cuCtxDestroy_v2(slice.context));
  }

  Hall* hall_;
  unsigned id_;
  std::mt19937_64 random_;
};

int play(uint64_t seed) {
  setenv("TENDRIL_SOFTGPU_MODE", "noexec", 1);
  setenv("TENDRIL_SOFTGPU_DEVICES", std::to_string(kGpus).c_str(), 1);
  setenv("TENDRIL_SOFTGPU_MEMORY_MB", std::to_string(kGpuMib).c_str(), 1);
  setenv("TENDRIL_SOFTGPU_KERNEL_US", "work:60e6/block", 1);
  setenv("TENDRIL_SOFTGPU_PATIENCE_MS", "600000",
         1);  // a busy machine must not look like a silent client
  if (cuInit(0) != CUDA_SUCCESS) return 1;
  softgpu::Clock& clock = softgpu::Clock::instance();
  Hall hall;
  std::vector<std::unique_ptr<Client>> clients;
  std::vector<std::thread> threads;
  clock.resumes(1, 0);  // this thread holds the clock until all are there
  for (unsigned i = 0; i < kClients; ++i) {
    clients.push_back(std::make_unique<Client>(&hall, i, seed));
    clock.resumes(1, 0);
    threads.emplace_back([client = clients.back().get()] { client->live(); });
  }
  clock.blocks();
  for (std::thread& thread : threads) thread.join();
  for (unsigned i = 0; i < kGpus; ++i) {
    const softgpu::DeviceView view = softgpu::board().view(static_cast<int>(i));
    printf("gpu %u was busy for %.3f hours\n", i, static_cast<double>(view.busy_ns) / 3600e9);
    if (view.memory_bytes != 0 || !view.processes.empty()) return 1;
  }
  fflush(stdout);
  _exit(0);  // the driver's threads are still there
}

std::string played(const char* seed) {
  char self[4096] = {};
  EXPECT_GT(readlink("/proc/self/exe", self, sizeof self - 1), 0);
  int ends[2];
  EXPECT_EQ(0, pipe(ends));
  const pid_t child = fork();
  if (child == 0) {
    dup2(ends[1], 1);
    execl(self, self, "--play", seed, nullptr);
    _exit(127);
  }
  ::close(ends[1]);
  std::string text;
  char buffer[65536];
  for (ssize_t got; (got = read(ends[0], buffer, sizeof buffer)) > 0;)
    text.append(buffer, static_cast<size_t>(got));
  ::close(ends[0]);
  int status = -1;
  waitpid(child, &status, 0);
  EXPECT_EQ(0, status);
  return text;
}

size_t count(const std::string& text, const std::string& word) {
  size_t found = 0;
  for (size_t at = 0; (at = text.find(word, at)) != std::string::npos; at += word.size()) ++found;
  return found;
}

TEST(Day, FiveHundredClientsOnSixtyFourGpusTwice) {
  const std::string first = played("1");
  EXPECT_GT(count(first, " gets gpu "), 5u * kClients);
  EXPECT_GT(count(first, " waits\n"), 100u);  // there is contention for slices
  EXPECT_EQ(first.find(" in 0.0 "), std::string::npos);
  EXPECT_EQ(kGpus, count(first, " was busy for "));
  const std::string second = played("1");
  EXPECT_TRUE(first == second) << "the same seed gave another day";
  const size_t sessions = count(first, " leaves\n"), kernels = count(first, " ran ");
  RecordProperty("sessions", std::to_string(sessions));
  printf("%zu sessions, %zu kernels, %zu lines\n", sessions, kernels, count(first, "\n"));
}

}  // namespace

int run_day(const char* seed) { return play(strtoull(seed, nullptr, 10)); }

}  // namespace tendril

int main(int argc, char** argv) {
  if (argc == 3 && std::string(argv[1]) == "--play") return tendril::run_day(argv[2]);
  testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
