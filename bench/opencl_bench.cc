// SPDX-License-Identifier: Apache-2.0
// An OpenCL program that measures what a program waits for: a kernel, queued kernels, reads and
// copies. bench/opencl.py runs it natively and through Tendril. It knows nothing of Tendril. Of
// many rounds it tells the tenth part from below, because other programs only make a round longer;
// of waits the median, too, because threads that wake each other take turns of processors
// differently from round to round.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <algorithm>
#include <string>
#include <vector>

#include "base/clock.h"
#include "tests/opencl/opencl.h"

namespace {

constexpr size_t kLargeBytes = 64u << 20;
constexpr int kQueued = 5000;

cl_command_queue g_queue = nullptr;
bool g_first = true;

void add(const char* name, double value) {
  printf("%s\"%s\": %.6g", g_first ? "tendril-bench {" : ", ", name, value);
  g_first = false;
}

struct Times {
  double undisturbed_us, median_us;
};
template <typename Call>
Times time_rounds(int rounds, Call call) {
  std::vector<double> times;
  for (int i = 0; i < rounds; ++i) {
    const uint64_t begin_ns = tendril::base::now_ns();
    call();
    times.push_back(static_cast<double>(tendril::base::now_ns() - begin_ns) / 1000);
  }
  std::sort(times.begin(), times.end());
  return {times[times.size() / 10], times[times.size() / 2]};
}
template <typename Call>
double undisturbed_us(int rounds, Call call) {
  return time_rounds(rounds, call).undisturbed_us;
}
template <typename Call>
void add_wait(const std::string& name, Call call) {
  const Times times = time_rounds(3000, call);
  add((name + "_us").c_str(), times.undisturbed_us);
  add((name + "_median_us").c_str(), times.median_us);
}

void must(cl_int result, const char* what) {
  if (result == CL_SUCCESS) return;
  fprintf(stderr, "%s: %d\n", what, result);
  exit(1);
}

void measure_kernels() {
  const char* source = "kernel void nothing(int number) {}";
  cl_int error = CL_SUCCESS;
  cl_program program = cl.clCreateProgramWithSource(g_context, 1, &source, nullptr, &error);
  must(cl.clBuildProgram(program, 1, &g_device, "", nullptr, nullptr), "clBuildProgram");
  cl_kernel kernel = kernel_of(program, "nothing");
  const size_t one = 1;
  int number = 0;
  const auto enqueue = [&] {
    must(cl.clSetKernelArg(kernel, 0, sizeof number, &number), "clSetKernelArg");
    must(cl.clEnqueueNDRangeKernel(g_queue, kernel, 1, nullptr, &one, &one, 0, nullptr, nullptr),
         "clEnqueueNDRangeKernel");
    ++number;
  };
  const auto finish = [] { must(cl.clFinish(g_queue), "clFinish"); };
  enqueue();
  finish();
  add_wait("kernel_and_finish", [&] {
    enqueue();
    finish();
  });
  add("queued_kernel_us", undisturbed_us(10, [&] {
                            for (int i = 0; i < kQueued; ++i) enqueue();
                            finish();
                          }) / kQueued);
}

void measure_copies() {
  cl_int error = CL_SUCCESS;
  cl_mem buffer = cl.clCreateBuffer(g_context, CL_MEM_READ_WRITE, kLargeBytes, nullptr, &error);
  must(error, "clCreateBuffer");
  std::vector<uint8_t> here(kLargeBytes, 1), there(kLargeBytes, 2);
  const auto read = [&](size_t bytes) {
    must(cl.clEnqueueReadBuffer(g_queue, buffer, CL_TRUE, 0, bytes, here.data(), 0, nullptr,
                                nullptr),
         "clEnqueueReadBuffer");
  };
  const auto write = [&](size_t bytes) {
    must(cl.clEnqueueWriteBuffer(g_queue, buffer, CL_TRUE, 0, bytes, here.data(), 0, nullptr,
                                 nullptr),
         "clEnqueueWriteBuffer");
  };
  const auto gb_per_s = [](double us) { return static_cast<double>(kLargeBytes) / us / 1000; };
  write(kLargeBytes);
  add_wait("read_4k", [&] { read(4096); });
  add_wait("write_4k", [&] { write(4096); });
  add("read_64m_gb_per_s", gb_per_s(undisturbed_us(20, [&] { read(kLargeBytes); })));
  add("write_64m_gb_per_s", gb_per_s(undisturbed_us(20, [&] { write(kLargeBytes); })));
  add("memcpy_64m_gb_per_s",
      gb_per_s(undisturbed_us(20, [&] { memcpy(there.data(), here.data(), kLargeBytes); })));
}

}  // namespace

int main() {
  cl_platform_id platform = nullptr;
  if (!cl.open() || cl.clGetPlatformIDs(1, &platform, nullptr) != CL_SUCCESS ||
      cl.clGetDeviceIDs(platform, CL_DEVICE_TYPE_ALL, 1, &g_device, nullptr) != CL_SUCCESS) {
    fprintf(stderr, "there is no OpenCL device\n");
    return 1;
  }
  cl_int error = CL_SUCCESS;
  g_context = cl.clCreateContext(nullptr, 1, &g_device, nullptr, nullptr, &error);
  must(error, "clCreateContext");
  g_queue = cl.clCreateCommandQueue(g_context, g_device, 0, &error);
  must(error, "clCreateCommandQueue");
  measure_kernels();
  measure_copies();
  printf("}\n");
  return g_failures == 0 ? 0 : 1;
}
