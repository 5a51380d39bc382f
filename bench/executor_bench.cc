// SPDX-License-Identifier: Apache-2.0
// What the worker spends on a launch besides the driver's own call. The real service and executor
// run a lane full of launches. The driver's launch does nothing, or it only empties the processor's
// caches as a real one does. There is one thread, so that callgrind always counts the same
// instructions (tests/cost). It prints nanoseconds per launch, the best of several rounds.
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>

#include "api/cuda_messages.gen.h"
#include "base/clock.h"
#include "gpu/cuda/driver.h"
#include "session/lane/service.h"
#include "transport/shm/shm.h"
#include "worker/cuda/executor/callbacks.h"
#include "worker/cuda/executor/executor.h"

namespace {

using namespace tendril;  // NOLINT: a program
using worker::cuda::Executor;

constexpr uint64_t kRingBytes = 16u << 20;
constexpr uint64_t kFunctions = 64;  // a training step has about as many in flight
constexpr int kParameters = 4;

uint64_t g_launches;
uint8_t g_memory[64 << 10];
volatile uint8_t g_sum;

// Runs through as much code and data as the first-level caches hold, as a driver of many megabytes
// does.
CUresult sweep_caches(CUfunction, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned,
                      unsigned, CUstream, void**, void**) {
  ++g_launches;
#if defined(__x86_64__)
  asm volatile(".rept 6600\n\tnopl 0x0(%rax,%rax,1)\n\t.endr");
#endif
  uint8_t sum = 0;
  for (size_t i = 0; i < sizeof g_memory; i += 64) sum = static_cast<uint8_t>(sum + g_memory[i]);
  g_sum = sum;
  return CUDA_SUCCESS;
}

double alone_ns(gpu::Driver* driver, uint64_t launches) {
  const uint64_t begin_ns = base::now_ns();
  for (uint64_t i = 0; i < launches; ++i) {
    driver->cuLaunchKernel(nullptr, 1, 1, 1, 1, 1, 1, 0, nullptr, nullptr, nullptr);
  }
  return static_cast<double>(base::now_ns() - begin_ns) / static_cast<double>(launches);
}

CUresult count_launch(CUfunction, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned,
                      unsigned, CUstream, void**, void**) {
  ++g_launches;
  return CUDA_SUCCESS;
}

CUresult tell_parameter(CUfunction, size_t index, size_t* offset, size_t* size) {
  if (index >= kParameters) return CUDA_ERROR_INVALID_VALUE;
  *offset = index * 8;
  *size = 8;
  return CUDA_SUCCESS;
}

uint64_t id(api::cuda::Kind kind, uint64_t index) {
  return api::make_id(kind, 0, 0, static_cast<uint32_t>(index));
}

// Writes the records as a client's library does.
void enqueue(transport::OutgoingRing* ring, uint64_t launches) {
  const uint8_t parameters[kParameters * 8] = {};
  for (uint64_t i = 0; i < launches; ++i) {
    wire::cuda::launch_kernel_request m;
    m.function = id(api::cuda::Kind::kFunction, 1 + i % kFunctions);
    m.stream = id(api::cuda::Kind::kStream, 1);
    m.shape = {{1, 1, 1}, {32, 1, 1}, 0, 0};
    m.params = {parameters, sizeof parameters};
    const auto body = static_cast<uint32_t>(wire::message_bytes(m));
    const uint32_t bytes = static_cast<uint32_t>(sizeof(wire::CallHeader)) + body;
    uint8_t* at = ring->reserve(bytes);
    if (at == nullptr) abort();
    const wire::CallHeader header{bytes, static_cast<uint16_t>(m.kOp), 0, 1, 0};
    std::memcpy(at, &header, sizeof header);
    wire::write_message(m, at + sizeof header);
    ring->publish(bytes);
  }
  const wire::CallHeader goodbye{sizeof goodbye, 0, wire::kFlagGoodbye, 0, 0};
  uint8_t* at = ring->reserve(sizeof goodbye);
  if (at == nullptr) abort();
  std::memcpy(at, &goodbye, sizeof goodbye);
  ring->publish(sizeof goodbye);
}

// A turn of a shared GPU that never ends. The GPU finishes everything at once.
worker::Turns endless_turn() {
  static wire::TurnPage page;
  wire::TurnPart& part = page.slices[0];
  part.regime = wire::TurnRegime::kTurns;
  part.until_ns = wire::kTurnWithoutEnd;
  part.window_ns = 5'000'000;
  part.linger_ns = UINT64_MAX;
  part.turn = 1;
  part.drained = 0;
  return {&page, -1};
}

double round_ns(gpu::Driver* driver, uint64_t launches, worker::Turns turns) {
  std::unique_ptr<transport::Channel> worker_end;
  auto client_end = transport::loopback_pair(&worker_end, kRingBytes).take();
  auto service = session::Service::open(std::move(worker_end), nullptr, 0, {});
  static wire::AccountingPage page;
  wire::Assignment assignment{};
  assignment.slice_count = 1;
  assignment.slices[0] = {0, 1'000'000, 64u << 20};
  Executor executor(driver, service.get(), assignment, &page, {}, nullptr, turns);
  executor.callbacks().end();
  CUcontext context = nullptr;
  if (driver->cuDevicePrimaryCtxRetain(&context, 0) != CUDA_SUCCESS) abort();
  executor.contexts().add(id(api::cuda::Kind::kContext, 1))->context = context;
  int objects[kFunctions + 1];
  executor.objects().bind(api::cuda::Kind::kStream, id(api::cuda::Kind::kStream, 1),
                          &objects[kFunctions]);
  for (uint64_t i = 0; i < kFunctions; ++i) {
    executor.objects().bind(api::cuda::Kind::kFunction, id(api::cuda::Kind::kFunction, 1 + i),
                            &objects[i]);
  }
  enqueue(client_end->ring(), launches);
  const uint64_t begin_ns = base::now_ns();
  executor.run();
  return static_cast<double>(base::now_ns() - begin_ns) / static_cast<double>(launches);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2) {
    std::fprintf(stderr, "usage: %s DRIVER [LAUNCHES [ROUNDS [warm|gated]]]\n", argv[0]);
    return 2;
  }
  const uint64_t launches = argc > 2 ? std::strtoull(argv[2], nullptr, 10) : 100'000;
  const int rounds = argc > 3 ? std::atoi(argv[3]) : 20;
  auto driver = gpu::Driver::open(argv[1]);
  if (!driver.ok() || (*driver)->cuInit(0) != CUDA_SUCCESS) {
    std::fprintf(stderr, "no driver: %s\n",
                 driver.ok() ? "cuInit failed" : driver.status().message().c_str());
    return 1;
  }
  (*driver)->cuFuncGetParamInfo = tell_parameter;
  (*driver)->cuStreamGetCtx = [](CUstream, CUcontext* context) {
    return (*context = nullptr, CUDA_SUCCESS);
  };
  (*driver)->cuEventRecord = [](CUevent, CUstream) { return CUDA_SUCCESS; };
  (*driver)->cuEventQuery = [](CUevent) { return CUDA_SUCCESS; };
  FILE* out =
      // an executor takes over the standard outputs for the driver
      fdopen(dup(STDOUT_FILENO), "w");
  struct Variant {
    const char* name;
    bool cold, gated;
  };
  const Variant variants[] = {{"caches warm", false, false},
                              {"caches swept", true, false},
                              {"caches warm, in a turn", false, true},
                              {"caches swept, in a turn", true, true}};
  for (const Variant& variant : variants) {
    if (argc > 4 && (variant.cold || variant.gated != (std::strcmp(argv[4], "gated") == 0)))
      continue;
    (*driver)->cuLaunchKernel = variant.cold ? sweep_caches : count_launch;
    double best_ns = 1e30, best_alone_ns = 1e30;
    for (int i = 0; i < rounds; ++i) {
      g_launches = 0;
      best_ns = std::min(best_ns, round_ns(driver->get(), launches,
                                           variant.gated ? endless_turn() : worker::Turns()));
      if (g_launches != launches) {
        std::fprintf(out, "%llu launches arrived of %llu\n",
                     static_cast<unsigned long long>(g_launches),
                     static_cast<unsigned long long>(launches));
        std::fclose(out);
        return 1;
      }
      best_alone_ns = std::min(best_alone_ns, alone_ns(driver->get(), launches));
    }
    std::fprintf(out, "launch in the worker, %-23s %8.1f ns\n", variant.name,
                 best_ns - best_alone_ns);
  }
  return std::fclose(out) == 0 ? 0 : 1;
}
