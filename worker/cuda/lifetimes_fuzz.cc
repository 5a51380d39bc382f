// SPDX-License-Identifier: Apache-2.0
// libFuzzer target. The input decides which well-formed calls a client makes
// (testing/random_calls.h). They run through the dispatcher, all handlers and the software GPU,
// which ends the process when it gets a stale handle, or when a call ends what another thread uses.
#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

#include "worker/cuda/testing/random_calls.h"
#include "worker/cuda/testing/session.h"

using namespace tendril;  // NOLINT: a program

extern "C" void __sanitizer_set_report_fd(void* descriptor);
extern "C" const char* __asan_default_options() {
  return "detect_leaks=0:allocator_may_return_null=1:handle_abort=1";
}

namespace {

std::unique_ptr<gpu::Driver> g_driver;
int g_error;

}  // namespace

extern "C" int LLVMFuzzerInitialize(int*, char***) {
  setenv("TENDRIL_SOFTGPU_HANDLES", "checked", 0);
  setenv("TENDRIL_SOFTGPU_DEVICES", "2", 1);
  setenv("TENDRIL_SOFTGPU_MEMORY_MB", "128", 1);
  setenv("TENDRIL_SOFTGPU_STEPS", "20000", 1);
  setenv("TENDRIL_SOFTGPU_THREADS", "1", 1);
  setenv("TENDRIL_HOST_COPIES_MB", "256", 1);
  setenv("TENDRIL_WAIT_SPIN_US", "0", 1);
  g_error = dup(STDERR_FILENO);
  __sanitizer_set_report_fd(reinterpret_cast<void*>(static_cast<intptr_t>(g_error)));
  auto driver = gpu::Driver::open(TENDRIL_FUZZ_DRIVER);
  if (!driver.ok() || (*driver)->cuInit(0) != CUDA_SUCCESS) abort();
  g_driver = driver.take();
  worker::cuda::leave_objects_untold(g_driver.get());
  return 0;
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t bytes) {
  worker::cuda::Choices choices(data, bytes, 1);
  worker::cuda::RandomCalls calls(&choices);
  while (!choices.spent() && calls.lane().size() < 90'000) calls.add_one();
  worker::cuda::run_lane(g_driver.get(), calls.lane().data(), calls.lane().size());
  return 0;
}
