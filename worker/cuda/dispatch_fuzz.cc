// SPDX-License-Identifier: Apache-2.0
// libFuzzer target. It takes arbitrary bytes as a client's command lane, and runs them through the
// service, the generated decoders and dispatcher, every handler and the software GPU in this
// process. A hostile client may end its own session. It must not crash its worker, make it hang, or
// make it pass things to the driver that do not exist.
#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstddef>
#include <cstring>
#include <memory>

#include "api/cuda_kinds.gen.h"
#include "gpu/cuda/driver.h"
#include "session/lane/service.h"
#include "transport/testing/test_channels.h"
#include "worker/core/testing/lane_mutations.h"
#include "worker/cuda/memory/mirror.h"
#include "worker/cuda/testing/session.h"

using namespace tendril;  // NOLINT: a program
using worker::cuda::Executor;

extern "C" void __sanitizer_set_report_fd(void* descriptor);
// The driver keeps memory between inputs: that is no leak. An allocation of a size that a client
// made up may fail.
extern "C" const char* __asan_default_options() {
  return "detect_leaks=0:allocator_may_return_null=1";
}

namespace {

using worker::cuda::kTestSlots;
constexpr size_t kBytesMax = 100'000;

gpu::Driver* g_driver;
Executor* g_executor;
cuMemcpyAsync_t* g_copy;
int g_output, g_error, g_nowhere, g_memory_file;

// The worker may let through memory that the driver knows, or addresses that the driver has only
// reserved. A real driver refuses the latter; the software GPU takes them for host memory. If such
// an address is readable, it is the worker's own memory: that must never happen.
CUresult checked_copy(CUdeviceptr destination, CUdeviceptr source, size_t bytes, CUstream stream) {
  for (const CUdeviceptr address : {destination, source}) {
    uint32_t type = 0;
    if (g_executor->mirrors().address_of(address) != address)
      continue;  // the copy of a client's pageable memory
    if (g_driver->cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, address) ==
        CUDA_SUCCESS)
      continue;
    if (syscall(SYS_pwrite64, g_memory_file, address, 1, 0) == 1) abort();
    return CUDA_ERROR_INVALID_VALUE;
  }
  return g_copy(destination, source, bytes, stream);
}

// A turn that never ends, on both GPUs.
worker::Turns endless_turns() {
  static wire::TurnPage page;
  for (uint32_t slot = 0; slot < kTestSlots; ++slot) {
    wire::TurnPart& part = page.slices[slot];
    part.regime = wire::TurnRegime::kTurns;
    part.until_ns = wire::kTurnWithoutEnd;
    part.window_ns = 1'000'000;
    part.linger_ns = UINT64_MAX;
    part.turn = 1;
  }
  return {&page, -1};
}

void run_session(std::unique_ptr<transport::Channel> command, worker::Turns turns) {
  static wire::AccountingPage page;
  std::memset(static_cast<void*>(&page), 0, sizeof page);
  dup2(g_nowhere, STDERR_FILENO);  // for the trace of every call
  auto service = session::Service::open(std::move(command), nullptr, 0, {});
  Executor executor(g_driver, service.get(), worker::cuda::test_assignment(), &page, {}, nullptr,
                    turns);  // without exports
  g_executor = &executor;
  executor.callbacks()
      .end();  // nobody answers host functions here; the daemon kills a worker that hangs in one
  executor.run();
  dup2(g_output, STDOUT_FILENO);  // the executor redirects both
  dup2(g_error, STDERR_FILENO);
  worker::cuda::clear_driver(executor, *g_driver);
}

}  // namespace

extern "C" size_t LLVMFuzzerCustomMutator(uint8_t* data, size_t bytes, size_t bytes_max,
                                          unsigned seed) {
  return worker::mutate_lane(data, bytes, bytes_max, seed, wire::cuda::kOpMax);
}

extern "C" int LLVMFuzzerInitialize(int*, char***) {
  setenv("TENDRIL_SOFTGPU_DEVICES", "2", 1);
  setenv("TENDRIL_SOFTGPU_MEMORY_MB", "128", 1);
  setenv("TENDRIL_SOFTGPU_STEPS", "20000", 1);
  setenv("TENDRIL_SOFTGPU_HANDLES", "checked", 1);
  setenv("TENDRIL_SOFTGPU_THREADS", "1", 1);
  setenv("TENDRIL_HOST_COPIES_MB", "256", 1);  // comparing touches all of them
  g_nowhere = open("/dev/null", O_WRONLY | O_CLOEXEC);
  g_output = dup(STDOUT_FILENO);
  g_error = dup(STDERR_FILENO);
  __sanitizer_set_report_fd(reinterpret_cast<void*>(static_cast<intptr_t>(g_error)));
  auto driver = gpu::Driver::open(TENDRIL_FUZZ_DRIVER);
  if (!driver.ok() || (*driver)->cuInit(0) != CUDA_SUCCESS) abort();
  static std::unique_ptr<gpu::Driver> kept;
  kept = driver.take();
  g_driver = kept.get();
  g_memory_file = memfd_create("checked_copy", MFD_CLOEXEC);
  g_copy = g_driver->cuMemcpyAsync;
  g_driver->cuMemcpyAsync = checked_copy;
  worker::cuda::leave_objects_untold(g_driver);
  return 0;
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t bytes) {
  if (bytes > kBytesMax) return 0;
  setenv("TENDRIL_WORKER_TRACE", bytes / 8 % 2 == 0 ? "1" : "0",
         1);  // without, launches are looked ahead for
  transport::SpentClient client(data, bytes);
  run_session(client.take_worker_end(), bytes / 16 % 2 == 0 ? worker::Turns() : endless_turns());
  return 0;
}
