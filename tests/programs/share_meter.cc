// SPDX-License-Identifier: Apache-2.0
// How much of a GPU this program gets. It runs fixed pieces of work, with always more queued than
// the GPU has done, and counts them by 100 ms of the machine's monotonic clock, so that several of
// these can be compared.
// It says `attached` when the GPU has answered once and `ready` after a first piece. Then it reads
// from standard input the nanosecond at which to begin (an empty line: at once). It prints one line
// of JSON, then PASS.
// Arguments: the kind of piece, and seconds. Kinds: tiny (5 us on an H200), medium (500 us), long
// (50 ms), graph (100 tiny ones), memory (500 us, bound by memory), sync (300 us, each waited for),
// pause (as sync, with 2 ms between), both (medium ones on the first and the second GPU in turn, in
// one order of calls).
// With a third argument it becomes a bad neighbour after that time, and says `bad` and how: fault
// (an illegal address), assert, trap, hang (an endless kernel), launches (tiny ones, never waited
// for), allocations (taken and given back without end). The last three go on until killed.
// For the software GPU, SHARE_METER_SCALE makes pieces smaller, and SHARE_METER_BATCH says after
// how many to look.
#include <time.h>

#include <algorithm>
#include <deque>
#include <string>
#include <vector>

#include "kernels.ptx.gen.h"
#include "tests/programs/program.h"

namespace {

constexpr uint64_t kBucketNs = 100'000'000;
constexpr uint64_t kSecondNs = 1'000'000'000;
// Enough that the GPU always has more to do. A wait is answered after the work before it has passed
// the server's gate, so all queued work delays the first answers.
constexpr size_t kBatchesInFlight = 2;
// A piece that took longer has waited for a turn.
constexpr uint64_t kTurnNs = 3'000'000;
constexpr size_t kAfterWait = 4;

// Blocks of 256 threads, eight on each processor at a time. Every piece fills the GPU, so nothing
// of another one fits beside it.
constexpr uint32_t kThreads = 256, kBlocksAtOnce = 8;

struct Kind {
  const char* name;
  const char* kernel;
  uint32_t rounds;  // chosen on an H200
  uint32_t waves;   // how often blocks fill the GPU
  uint32_t batch;   // pieces between two looks
  bool waits;
  uint32_t pause_us;
  int gpus = 1;
};

constexpr Kind kKinds[] = {
    {"tiny", "share_tiny", 20, 1, 400, false, 0},
    {"medium", "share_medium", 930, 4, 4, false, 0},
    {"long", "share_long", 93'000, 4, 1, false, 0},
    {"graph", "share_tiny", 20, 1, 4, false, 0},
    {"memory", "share_memory", 4, 2, 4, false, 0},
    {"sync", "share_short", 560, 4, 1, true, 0},
    {"pause", "share_short", 560, 4, 1, true, 2'000},
    {"both", "share_medium", 930, 4, 4, false, 0, 2},
};

uint64_t now_ns() {
  timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return static_cast<uint64_t>(t.tv_sec) * kSecondNs + static_cast<uint64_t>(t.tv_nsec);
}

void sleep_until(uint64_t ns) {
  const timespec t{static_cast<time_t>(ns / kSecondNs), static_cast<long>(ns % kSecondNs)};
  clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &t, nullptr);
}

class Meter {
 public:
  explicit Meter(const Kind& kind) : kind_(kind) {
    say_attached();
    const char* text = std::getenv("SHARE_METER_SCALE");
    const double scale = text != nullptr ? std::strtod(text, nullptr) : 1;
    CHECK(cuDeviceGetAttribute(&processors_, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, 0));
    blocks_ = static_cast<unsigned>(processors_) * (scale < 1 ? 1 : kBlocksAtOnce * kind.waves);
    const bool memory = kind.kernel == std::string("share_memory");
    rounds_ = memory ? kind.rounds : std::max(1u, static_cast<uint32_t>(kind.rounds * scale));
    count_ = memory ? std::max(4096u, static_cast<uint32_t>((256 << 20) / 16 * scale)) : 1;
    const char* batch = std::getenv("SHARE_METER_BATCH");
    batch_ = batch != nullptr && !kind.waits
                 ? static_cast<uint32_t>(std::strtoul(batch, nullptr, 10))
                 : kind.batch;
    for (int gpu = kind.gpus - 1; gpu >= 0; --gpu) {
      gpus_.push_back(make_gpu(gpu));
      use(gpus_.back());
      if (kind.name == std::string("graph")) make_graph();
      submit();
      CHECK(cuStreamSynchronize(stream_));
    }
    batch_ = std::max(batch_, static_cast<uint32_t>(kind.gpus));
  }

  void run(uint64_t begin_ns, uint64_t end_ns) {
    begin_ns_ = begin_ns;
    buckets_.assign(std::max<uint64_t>(1, (end_ns - begin_ns) / kBucketNs),
                    0);  // whole ones: they become rates
    if (kind_.waits)
      wait_for_each(end_ns);
    else
      keep_busy(end_ns);
  }

  void print() {
    std::sort(latencies_ns_.begin(), latencies_ns_.end());
    std::printf("share_meter {\"kind\": \"%s\", \"processors\": %d, ", kind_.name, processors_);
    std::printf("\"begin_ns\": %llu, \"bucket_ns\": %llu, \"pieces\": [",
                static_cast<unsigned long long>(begin_ns_),
                static_cast<unsigned long long>(kBucketNs));
    for (size_t i = 0; i < buckets_.size(); ++i) std::printf(i == 0 ? "%u" : ", %u", buckets_[i]);
    std::printf("], \"latency_us\": {");
    const struct {
      const char* name;
      size_t per_mille;
    } places[] = {{"p50", 500}, {"p90", 900}, {"p99", 990}, {"max", 1000}};
    for (const auto& place : places) {
      if (latencies_ns_.empty()) break;
      const size_t at =
          std::min(latencies_ns_.size() - 1, latencies_ns_.size() * place.per_mille / 1000);
      std::printf("%s\"%s\": %.1f", place.per_mille == 500 ? "" : ", ", place.name,
                  static_cast<double>(latencies_ns_[at]) / 1000);
    }
    std::printf("}, \"after_wait_us\": [");
    for (size_t i = 0; i < kAfterWait; ++i) {
      uint64_t sum_ns = 0;
      for (const uint64_t one_ns : after_wait_ns_[i]) sum_ns += one_ns;
      const size_t pieces = std::max<size_t>(1, after_wait_ns_[i].size());
      std::printf(i == 0 ? "%.1f" : ", %.1f",
                  static_cast<double>(sum_ns) / static_cast<double>(pieces) / 1000);
    }
    std::printf("], \"waits\": %zu}\n", after_wait_ns_[0].size());
  }

  // Returns when the device has ended this program's work.
  void misbehave(const char* how) {
    const std::string kind = how;
    std::printf("bad %s\n", how);
    std::fflush(stdout);
    if (kind == "launches") launch_without_end();
    if (kind == "allocations") allocate_without_end();
    submit();
    const auto bad = [](const char* kernel) { return program::load(kKernelsPtx, kernel); };
    if (kind == "fault") CHECK(program::launch(bad("write_at"), 1, 1, stream_, CUdeviceptr{0}, 1u));
    if (kind == "assert") CHECK(program::launch(bad("bad_assert"), 1, 1, stream_, 0u));
    if (kind == "trap") CHECK(program::launch(bad("bad_trap"), 1, 1, stream_));
    if (kind == "hang") {
      CHECK(cuMemsetD8(data_, 0, 4));
      CHECK(program::launch(bad("bad_endless"), blocks_, kThreads, stream_, data_));
    }
    const char* name = "unknown code";
    cuGetErrorName(cuStreamSynchronize(stream_), &name);
    std::printf("ended %s\n", name);
  }

 private:
  struct Gpu {
    CUcontext context;
    CUdeviceptr data = 0;
    CUstream stream = nullptr;
    CUfunction function = nullptr;
  };
  Gpu make_gpu(int ordinal) const {
    Gpu gpu;
    gpu.context = program::use_device(ordinal);
    CHECK(cuMemAlloc(&gpu.data, size_t{count_} * 16));
    CHECK(cuMemsetD8(gpu.data, 0, size_t{count_} * 16));
    CHECK(cuStreamCreate(&gpu.stream, CU_STREAM_NON_BLOCKING));
    gpu.function = program::load(kKernelsPtx, kind_.kernel);
    return gpu;
  }
  void use(const Gpu& gpu) {
    if (gpus_.size() > 1) CHECK(cuCtxSetCurrent(gpu.context));
    data_ = gpu.data;
    stream_ = gpu.stream;
    function_ = gpu.function;
  }
  static void say_attached() {
    CUdeviceptr word;
    CHECK(cuMemAlloc(&word, 4));
    CHECK(cuMemsetD8(word, 0, 4));
    CHECK(cuCtxSynchronize());
    CHECK(cuMemFree(word));
    std::printf("attached\n");
    std::fflush(stdout);
  }
  void make_graph() {
    CUgraph graph;
    CHECK(cuStreamBeginCapture(stream_, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
    for (int i = 0; i < 100; ++i) launch();
    CHECK(cuStreamEndCapture(stream_, &graph));
    CHECK(cuGraphInstantiateWithFlags(&graph_, graph, 0));
  }
  void launch() {
    if (count_ > 1)
      CHECK(program::launch(function_, blocks_, kThreads, stream_, data_, count_, rounds_));
    else
      CHECK(program::launch(function_, blocks_, kThreads, stream_, data_, rounds_));
  }
  void submit() {
    if (graph_ != nullptr)
      CHECK(cuGraphLaunch(graph_, stream_));
    else
      launch();
  }
  void count(uint64_t at_ns, uint32_t pieces) {
    const uint64_t bucket = (at_ns - begin_ns_) / kBucketNs;
    if (bucket < buckets_.size()) buckets_[bucket] += pieces;
  }
  void wait_for_each(uint64_t end_ns) {
    size_t since_wait = kAfterWait;
    for (uint64_t before_ns = now_ns(); before_ns < end_ns;) {
      submit();
      CHECK(cuStreamSynchronize(stream_));
      const uint64_t after_ns = now_ns();
      count(after_ns, 1);
      latencies_ns_.push_back(after_ns - before_ns);
      if (after_ns - before_ns > kTurnNs) {
        since_wait = 0;
      } else if (since_wait < kAfterWait) {
        after_wait_ns_[since_wait++].push_back(after_ns - before_ns);
      }
      if (kind_.pause_us != 0) sleep_until(after_ns + kind_.pause_us * 1000);
      before_ns = now_ns();
    }
  }
  void keep_busy(uint64_t end_ns) {
    std::deque<CUevent> flying, spare;
    for (;;) {
      const bool more = now_ns() < end_ns;
      if (!more && flying.empty()) break;
      if (more && flying.size() < kBatchesInFlight) {
        CUevent event = nullptr;
        if (spare.empty()) {
          CHECK(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
        } else {
          event = spare.front();
          spare.pop_front();
        }
        for (uint32_t i = 0; i < batch_; ++i) {
          if (gpus_.size() > 1) use(gpus_[i % gpus_.size()]);
          submit();
        }
        CHECK(cuEventRecord(event, stream_));
        flying.push_back(event);
        continue;
      }
      CHECK(cuEventSynchronize(flying.front()));
      count(now_ns(), batch_);
      spare.push_back(flying.front());
      flying.pop_front();
    }
  }

  [[noreturn]] void launch_without_end() {
    const CUfunction tiny = program::load(kKernelsPtx, "nothing");
    for (;;) CHECK(program::launch(tiny, 1, 1, stream_));
  }
  [[noreturn]] static void allocate_without_end() {
    for (size_t bytes = 4096;; bytes = bytes < (64 << 20) ? bytes * 2 : 4096) {
      CUdeviceptr block;
      if (cuMemAlloc(&block, bytes) == CUDA_SUCCESS)
        CHECK(cuMemFree(block));  // a small slice may be full
    }
  }

  const Kind& kind_;
  int processors_ = 0;  // a piece is as large as the part of the GPU that the program sees
  unsigned blocks_ = 0;
  uint32_t rounds_ = 0, count_ = 0, batch_ = 1;
  std::vector<Gpu> gpus_;  // the last stamp is the first of the program; below it is the one in use
  CUdeviceptr data_ = 0;
  CUstream stream_ = nullptr;
  CUfunction function_ = nullptr;
  CUgraphExec graph_ = nullptr;
  uint64_t begin_ns_ = 0;
  std::vector<uint32_t> buckets_;
  std::vector<uint64_t> latencies_ns_;
  std::vector<uint64_t>
      after_wait_ns_[kAfterWait];  // of the first pieces after a piece that waited for a turn
};

}  // namespace

int main(int argc, char** argv) {
  const Kind* kind = nullptr;
  for (const Kind& each : kKinds) {
    if (argc > 1 && std::strcmp(argv[1], each.name) == 0) kind = &each;
  }
  if (kind == nullptr)
    program::fail("the first argument is a kind of piece; see the head of share_meter.cc");
  const double seconds = argc > 2 ? std::strtod(argv[2], nullptr) : 2;
  program::use_device(0);
  Meter meter(*kind);
  std::printf("ready\n");
  std::fflush(stdout);
  char line[64] = {};
  uint64_t begin_ns = now_ns();
  if (std::fgets(line, sizeof line, stdin) != nullptr && line[0] >= '0' && line[0] <= '9')
    begin_ns = std::strtoull(line, nullptr, 10);
  sleep_until(begin_ns);
  meter.run(begin_ns, begin_ns + static_cast<uint64_t>(seconds * 1e9));
  meter.print();
  if (argc > 3) meter.misbehave(argv[3]);
  return program::finish(true);
}
