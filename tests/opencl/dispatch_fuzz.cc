// SPDX-License-Identifier: Apache-2.0
// libFuzzer target. It takes arbitrary bytes as a client's command lane, and runs them through the
// service, the generated decoders and dispatcher, and every handler of worker/opencl, in front of
// the tests' FPGA. That driver aborts on a handle that is none, and reads and writes exactly what
// it is asked to. A hostile client may end its own session, and nothing else.
#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

#include <cstring>
#include <memory>

#include "tests/opencl/fpga/fpga.h"
#include "transport/testing/test_channels.h"
#include "worker/core/testing/lane_mutations.h"
#include "worker/opencl/executor.h"

using namespace tendril;  // NOLINT: a program
using worker::opencl::Executor;
using worker::opencl::Kind;

extern "C" void __sanitizer_set_report_fd(void* descriptor);
extern "C" const char* __asan_default_options() {
  return "detect_leaks=0:allocator_may_return_null=1";
}

namespace {

constexpr size_t kBytesMax = 100'000;
gpu::OpenclDriver* g_driver;
int g_output, g_error, g_nowhere;

wire::Assignment assignment() {
  wire::Assignment assignment{};
  assignment.slice_count = 1;
  assignment.slices[0] = {0, 500'000, 64u << 20, 1u << 20};
  return assignment;
}

template <typename T, typename Release>
void release_each(Executor& executor, Kind kind, Release* release) {
  executor.objects().for_each(kind,
                              [&](uint64_t, void* object) { release(static_cast<T>(object)); });
}

// What the end of the process does for a real session.
void release_all(Executor& executor) {
  const gpu::OpenclDriver& d = *g_driver;
  release_each<cl_event>(executor, Kind::kEvent, d.clReleaseEvent);
  release_each<cl_kernel>(executor, Kind::kKernel, d.clReleaseKernel);
  release_each<cl_program>(executor, Kind::kProgram, d.clReleaseProgram);
  release_each<cl_mem>(executor, Kind::kMemory, d.clReleaseMemObject);
  release_each<cl_command_queue>(executor, Kind::kQueue, d.clReleaseCommandQueue);
  release_each<cl_context>(executor, Kind::kContext, d.clReleaseContext);
}

}  // namespace

extern "C" size_t LLVMFuzzerCustomMutator(uint8_t* data, size_t bytes, size_t bytes_max,
                                          unsigned seed) {
  return worker::mutate_lane(data, bytes, bytes_max, seed, wire::opencl::kOpMax);
}

extern "C" int LLVMFuzzerInitialize(int*, char***) {
  setenv("TENDRIL_TEST_FPGA_RECONFIGURE_MS", "0", 1);
  setenv("TENDRIL_TEST_FPGA_WORK_MAX_US", "100", 1);
  setenv("OCL_ICD_TEST_FPGA_LANGUAGE", "2.2", 1);
  g_nowhere = open("/dev/null", O_WRONLY | O_CLOEXEC);
  g_output = fcntl(STDOUT_FILENO, F_DUPFD_CLOEXEC, 3);
  g_error = fcntl(STDERR_FILENO, F_DUPFD_CLOEXEC, 3);
  __sanitizer_set_report_fd(reinterpret_cast<void*>(static_cast<intptr_t>(g_error)));
  auto driver = gpu::OpenclDriver::open(TENDRIL_FUZZ_DRIVER);
  if (!driver.ok() || (*driver)->devices().size() != 1) abort();
  static std::unique_ptr<gpu::OpenclDriver> kept;
  kept = driver.take();
  g_driver = kept.get();
  return 0;
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t bytes) {
  if (bytes > kBytesMax) return 0;
  static wire::AccountingPage page;
  std::memset(static_cast<void*>(&page), 0, sizeof page);
  transport::SpentClient client(data, bytes);
  auto service = session::Service::open(client.take_worker_end(), nullptr, 0, {});
  dup2(g_nowhere, STDERR_FILENO);  // for what the driver refuses
  {
    Executor executor(*g_driver, service.get(), assignment(), &page, nullptr, {});
    executor.run();
    fpga_end_all();  // what waits for the client's events waits no longer
    release_all(executor);
  }
  dup2(g_output, STDOUT_FILENO);  // the executor redirects both
  dup2(g_error, STDERR_FILENO);
  return 0;
}
