// SPDX-License-Identifier: Apache-2.0
// A program for an FPGA: it loads a configuration, runs its kernels and says what came back wrong.
// It knows nothing of Tendril.
//   life         everything in turn
//   work US N    N kernels of so many microseconds; says how many it had done each second
//   fault        a kernel that breaks the device
//   language V   programs in the device's language, in version V of OpenCL
//   large N      loads a configuration of about N bytes, runs it
//   held         commands that the program holds back
//   late_error   a command that the driver refuses (through Tendril only)
//   copies       copies that are large enough to be mapped instead
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <chrono>
#include <string>
#include <thread>
#include <vector>

#include "tests/opencl/opencl.h"

namespace {

cl_command_queue g_queue = nullptr;

constexpr char kBitstream[] = "TENDRIL FPGA 1\nadd\nwork\nfault\n";

cl_program loaded(const std::string& bitstream) {
  const size_t bytes = bitstream.size();
  const auto* from = reinterpret_cast<const unsigned char*>(bitstream.data());
  cl_int error = CL_SUCCESS, status = CL_SUCCESS;
  cl_program program =
      cl.clCreateProgramWithBinary(g_context, 1, &g_device, &bytes, &from, &status, &error);
  EXPECT(error == CL_SUCCESS && status == CL_SUCCESS);
  EXPECT(cl.clBuildProgram(program, 1, &g_device, "", nullptr, nullptr) == CL_SUCCESS);
  return program;
}

double now_s() {
  timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

void run(cl_kernel kernel, size_t items, cl_event* event = nullptr) {
  EXPECT(cl.clEnqueueNDRangeKernel(g_queue, kernel, 1, nullptr, &items, nullptr, 0, nullptr,
                                   event) == CL_SUCCESS);
}

// The sum of `add` on a buffer of so many numbers, which begin as 0. `constant`: the program's own.
void expect_sum(cl_program program, int more, int constant = 0) {
  std::vector<int> values(256, 0);
  cl_int error = CL_SUCCESS;
  const size_t bytes = values.size() * sizeof(int);
  cl_mem buffer = cl.clCreateBuffer(g_context, CL_MEM_READ_WRITE | CL_MEM_COPY_HOST_PTR, bytes,
                                    values.data(), &error);
  EXPECT(error == CL_SUCCESS);
  cl_kernel add = kernel_of(program, "add");
  EXPECT(cl.clSetKernelArg(add, 0, sizeof buffer, &buffer) == CL_SUCCESS);
  EXPECT(cl.clSetKernelArg(add, 1, sizeof more, &more) == CL_SUCCESS);
  more += constant;
  cl_event event = nullptr;
  run(add, values.size(), &event);
  EXPECT(cl.clWaitForEvents(1, &event) == CL_SUCCESS);  // nobody has flushed the queue
  EXPECT(cl.clEnqueueReadBuffer(g_queue, buffer, CL_TRUE, 0, bytes, values.data(), 1, &event,
                                nullptr) == CL_SUCCESS);
  EXPECT(values[0] == more && values[255] == more);
  const int pattern = 3;
  EXPECT(cl.clEnqueueFillBuffer(g_queue, buffer, &pattern, sizeof pattern, 0, bytes / 2, 0, nullptr,
                                nullptr) == CL_SUCCESS);
  EXPECT(cl.clEnqueueCopyBuffer(g_queue, buffer, buffer, 0, bytes / 2, bytes / 4, 0, nullptr,
                                nullptr) == CL_SUCCESS);
  const size_t zero[3] = {0, 0, 0}, region[3] = {16, 4, 1};
  std::vector<int> part(64, 0);
  EXPECT(cl.clEnqueueReadBufferRect(g_queue, buffer, CL_TRUE, zero, zero, region, 64, 0, 64, 0,
                                    part.data(), 0, nullptr, nullptr) == CL_SUCCESS);
  EXPECT(part[0] == 3 && part[4] == 0 && part[16] == 3);
  auto* mapped = static_cast<int*>(cl.clEnqueueMapBuffer(g_queue, buffer, CL_TRUE, CL_MAP_READ, 0,
                                                         bytes, 0, nullptr, nullptr, &error));
  EXPECT(error == CL_SUCCESS && mapped[128] == 3 && mapped[255] == more);
  EXPECT(cl.clEnqueueUnmapMemObject(g_queue, buffer, mapped, 0, nullptr, nullptr) == CL_SUCCESS);
  EXPECT(cl.clFinish(g_queue) == CL_SUCCESS);
  EXPECT(cl.clReleaseEvent(event) == CL_SUCCESS);
  EXPECT(cl.clReleaseKernel(add) == CL_SUCCESS);
  EXPECT(cl.clReleaseMemObject(buffer) == CL_SUCCESS);
}

void life() {
  cl_device_type type = 0;
  cl_bool compiles = CL_TRUE;
  EXPECT(cl.clGetDeviceInfo(g_device, CL_DEVICE_TYPE, sizeof type, &type, nullptr) == CL_SUCCESS);
  EXPECT(type == CL_DEVICE_TYPE_ACCELERATOR);
  EXPECT(cl.clGetDeviceInfo(g_device, CL_DEVICE_COMPILER_AVAILABLE, sizeof compiles, &compiles,
                            nullptr) == CL_SUCCESS);
  EXPECT(compiles == CL_FALSE);
  cl_int error = CL_SUCCESS;
  // There is no compiler.
  const char* source = "kernel void f() {}";
  cl_program program = cl.clCreateProgramWithSource(g_context, 1, &source, nullptr, &error);
  EXPECT(cl.clBuildProgram(program, 1, &g_device, "", nullptr, nullptr) ==
         CL_COMPILER_NOT_AVAILABLE);
  EXPECT(cl.clReleaseProgram(program) == CL_SUCCESS);
  // A binary that is none.
  const auto* nonsense = reinterpret_cast<const unsigned char*>("nonsense");
  const size_t bytes = 8;
  cl_int status = CL_SUCCESS;
  EXPECT(cl.clCreateProgramWithBinary(g_context, 1, &g_device, &bytes, &nonsense, &status,
                                      &error) == nullptr);
  EXPECT(error == CL_INVALID_BINARY && status == CL_INVALID_BINARY);
  program = loaded(kBitstream);
  expect_sum(program, 5);
  cl_program built_in =
      cl.clCreateProgramWithBuiltInKernels(g_context, 1, &g_device, "add", &error);
  EXPECT(error == CL_SUCCESS);
  expect_sum(built_in, 7);
  expect_sum(program, 9);  // and the first configuration again
  EXPECT(cl.clReleaseProgram(built_in) == CL_SUCCESS);
  EXPECT(cl.clReleaseProgram(program) == CL_SUCCESS);
  const cl_queue_properties wanted[] = {CL_QUEUE_PROPERTIES, CL_QUEUE_OUT_OF_ORDER_EXEC_MODE_ENABLE,
                                        0};
  (void)wanted;
  EXPECT(cl.clCreateCommandQueue(g_context, g_device, CL_QUEUE_OUT_OF_ORDER_EXEC_MODE_ENABLE,
                                 &error) == nullptr);
  EXPECT(error == CL_INVALID_QUEUE_PROPERTIES);
}

// Until it is ended from outside.
void work(int us) {
  cl_program program = loaded(kBitstream);
  cl_kernel kernel = kernel_of(program, "work");
  EXPECT(cl.clSetKernelArg(kernel, 0, sizeof us, &us) == CL_SUCCESS);
  double since = now_s();
  for (int done = 0; g_failures == 0;) {
    run(kernel, 1);
    EXPECT(cl.clFinish(g_queue) == CL_SUCCESS);
    ++done;
    if (now_s() - since < 1) continue;
    printf("%d kernels\n", done);
    fflush(stdout);
    done = 0;
    since += 1;
  }
}

void fault() {
  cl_program program = loaded(kBitstream);
  cl_kernel kernel = kernel_of(program, "fault");
  cl_event event = nullptr;
  run(kernel, 1, &event);
  EXPECT(cl.clWaitForEvents(1, &event) == CL_EXEC_STATUS_ERROR_FOR_EVENTS_IN_WAIT_LIST);
  cl_int status = CL_QUEUED;
  EXPECT(cl.clGetEventInfo(event, CL_EVENT_COMMAND_EXECUTION_STATUS, sizeof status, &status,
                           nullptr) == CL_SUCCESS);
  EXPECT(status == CL_OUT_OF_RESOURCES);
}

// They wait for events that the program sets, and it flushes and waits only then.
void held() {
  cl_program program = loaded(kBitstream);
  cl_kernel add = kernel_of(program, "add");
  std::vector<int> values(1u << 20, 1), back(values.size()), few(16);
  const size_t bytes = values.size() * sizeof(int), items = values.size();
  cl_int error = CL_SUCCESS;
  const int more = 3;
  cl_mem buffer = cl.clCreateBuffer(g_context, CL_MEM_READ_WRITE, bytes, nullptr, &error);
  EXPECT(cl.clSetKernelArg(add, 0, sizeof buffer, &buffer) == CL_SUCCESS);
  EXPECT(cl.clSetKernelArg(add, 1, sizeof more, &more) == CL_SUCCESS);
  for (int turn = 0; turn < 3; ++turn) {
    cl_event held = cl.clCreateUserEvent(g_context, &error), read[2] = {};
    EXPECT(error == CL_SUCCESS);
    EXPECT(cl.clEnqueueWriteBuffer(g_queue, buffer, CL_FALSE, 0, bytes, values.data(), 1, &held,
                                   nullptr) == CL_SUCCESS);
    EXPECT(cl.clEnqueueNDRangeKernel(g_queue, add, 1, nullptr, &items, nullptr, 0, nullptr,
                                     nullptr) == CL_SUCCESS);
    EXPECT(cl.clEnqueueReadBuffer(g_queue, buffer, CL_FALSE, 0, few.size() * sizeof(int),
                                  few.data(), 0, nullptr, &read[0]) == CL_SUCCESS);
    EXPECT(cl.clEnqueueReadBuffer(g_queue, buffer, CL_FALSE, 0, bytes, back.data(), 0, nullptr,
                                  &read[1]) == CL_SUCCESS);
    std::thread other([held] {
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
      EXPECT(cl.clSetUserEventStatus(held, CL_COMPLETE) == CL_SUCCESS);
    });
    if (turn == 0) other.join();  // else it sets the event while this thread waits
    if (turn == 1) EXPECT(cl.clFinish(g_queue) == CL_SUCCESS);
    EXPECT(cl.clWaitForEvents(2, read) == CL_SUCCESS);
    if (turn != 0) other.join();
    EXPECT(few[15] == 4 && back[0] == 4 && back.back() == 4);
    for (cl_event each : read) EXPECT(cl.clReleaseEvent(each) == CL_SUCCESS);
    EXPECT(cl.clReleaseEvent(held) == CL_SUCCESS);
  }
  EXPECT(cl.clReleaseKernel(add) == CL_SUCCESS);
  EXPECT(cl.clReleaseMemObject(buffer) == CL_SUCCESS);
  EXPECT(cl.clReleaseProgram(program) == CL_SUCCESS);
}

// The driver refuses so many items, and the program hears of it when it waits.
void late_error() {
  cl_program program = loaded(kBitstream);
  cl_kernel work = kernel_of(program, "work");
  const int us = 1;
  EXPECT(cl.clSetKernelArg(work, 0, sizeof us, &us) == CL_SUCCESS);
  const size_t many = size_t{1} << 31;
  cl_event event = nullptr;
  EXPECT(cl.clEnqueueNDRangeKernel(g_queue, work, 1, nullptr, &many, nullptr, 0, nullptr, &event) ==
         CL_SUCCESS);
  EXPECT(cl.clWaitForEvents(1, &event) == CL_EXEC_STATUS_ERROR_FOR_EVENTS_IN_WAIT_LIST);
  cl_int status = CL_QUEUED;
  EXPECT(cl.clGetEventInfo(event, CL_EVENT_COMMAND_EXECUTION_STATUS, sizeof status, &status,
                           nullptr) == CL_SUCCESS);
  EXPECT(status == CL_OUT_OF_RESOURCES);
  EXPECT(cl.clFinish(g_queue) == CL_OUT_OF_RESOURCES);
  EXPECT(cl.clFinish(g_queue) == CL_SUCCESS);
  run(work, 1);
  EXPECT(cl.clFinish(g_queue) == CL_SUCCESS);
  EXPECT(cl.clReleaseEvent(event) == CL_SUCCESS);
  EXPECT(cl.clReleaseKernel(work) == CL_SUCCESS);
  EXPECT(cl.clReleaseProgram(program) == CL_SUCCESS);
}

void language(bool is_new) {
  const char text[] = "TENDRIL LANGUAGE 1\nadd\n";
  char version[64] = {};
  EXPECT(cl.clGetDeviceInfo(g_device, CL_DEVICE_IL_VERSION, sizeof version, version, nullptr) ==
         CL_SUCCESS);
  EXPECT(strcmp(version, "TENDRIL_1.0") == 0);
  cl_platform_id platform = nullptr;
  EXPECT(cl.clGetDeviceInfo(g_device, CL_DEVICE_PLATFORM, sizeof platform, &platform, nullptr) ==
         CL_SUCCESS);
  auto* const create = reinterpret_cast<clCreateProgramWithIL_t*>(
      cl.clGetExtensionFunctionAddressForPlatform(platform, "clCreateProgramWithILKHR"));
  EXPECT(create != nullptr);
  cl_int error = CL_SUCCESS, constant = 30;
  cl_program program = create(g_context, text, sizeof text - 1, &error);
  EXPECT(error == CL_SUCCESS);
  EXPECT(cl.clBuildProgram(program, 1, &g_device, "", nullptr, nullptr) == CL_SUCCESS);
  expect_sum(program, 5);
  EXPECT(cl.clReleaseProgram(program) == CL_SUCCESS);
  EXPECT(create(g_context, "nonsense", 8, &error) == nullptr && error == CL_INVALID_VALUE);
  if (!is_new) return;
  program = cl.clCreateProgramWithIL(g_context, text, sizeof text - 1, &error);
  EXPECT(error == CL_SUCCESS);
  EXPECT(cl.clSetProgramSpecializationConstant(program, 0, sizeof constant, &constant) ==
         CL_SUCCESS);
  EXPECT(cl.clSetProgramSpecializationConstant(program, 1, sizeof constant, &constant) ==
         CL_INVALID_SPEC_ID);
  EXPECT(cl.clSetProgramSpecializationConstant(program, 0, 2, &constant) == CL_INVALID_VALUE);
  EXPECT(cl.clBuildProgram(program, 1, &g_device, "", nullptr, nullptr) == CL_SUCCESS);
  expect_sum(program, 5, constant);
  EXPECT(cl.clReleaseProgram(program) == CL_SUCCESS);
}

void large(size_t bytes) {
  std::string bitstream = kBitstream;
  while (bitstream.size() < bytes) bitstream += "add\n";
  cl_program program = loaded(bitstream);
  expect_sum(program, 5);
  EXPECT(cl.clReleaseProgram(program) == CL_SUCCESS);
}

// A kernel changes what was written, and later commands of the queue come after a read.
void copies() {
  cl_program program = loaded(kBitstream);
  cl_kernel add = kernel_of(program, "add");
  std::vector<int> values(1u << 20), back(values.size());
  const size_t bytes = values.size() * sizeof(int);
  for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<int>(i);
  cl_int error = CL_SUCCESS;
  const int more = 3;
  cl_mem buffer = cl.clCreateBuffer(g_context, CL_MEM_READ_WRITE, bytes, nullptr, &error);
  EXPECT(error == CL_SUCCESS);
  EXPECT(cl.clSetKernelArg(add, 0, sizeof buffer, &buffer) == CL_SUCCESS);
  EXPECT(cl.clSetKernelArg(add, 1, sizeof more, &more) == CL_SUCCESS);
  for (int turn = 0; turn < 3; ++turn) {
    EXPECT(cl.clEnqueueWriteBuffer(g_queue, buffer, CL_FALSE, 0, bytes, values.data(), 0, nullptr,
                                   nullptr) == CL_SUCCESS);
    run(add, values.size());
    cl_event read = nullptr;
    EXPECT(cl.clEnqueueReadBuffer(g_queue, buffer, CL_TRUE, 0, bytes, back.data(), 0, nullptr,
                                  &read) == CL_SUCCESS);
    for (int& value : values) value += more;
    EXPECT(back == values);
    run(add, values.size());
    EXPECT(cl.clWaitForEvents(1, &read) == CL_SUCCESS);
    EXPECT(cl.clReleaseEvent(read) == CL_SUCCESS);
    EXPECT(cl.clEnqueueReadBuffer(g_queue, buffer, CL_TRUE, sizeof more, bytes - sizeof more,
                                  back.data(), 0, nullptr, nullptr) == CL_SUCCESS);
    EXPECT(back[0] == values[1] + more && back[values.size() - 2] == values.back() + more);
  }
  EXPECT(cl.clFinish(g_queue) == CL_SUCCESS);
  EXPECT(cl.clReleaseKernel(add) == CL_SUCCESS);
  EXPECT(cl.clReleaseMemObject(buffer) == CL_SUCCESS);
  EXPECT(cl.clReleaseProgram(program) == CL_SUCCESS);
}

}  // namespace

int main(int argc, char** argv) {
  cl_platform_id platform = nullptr;
  cl_uint count = 0;
  if (!cl.open() || cl.clGetPlatformIDs(1, &platform, &count) != CL_SUCCESS || count == 0 ||
      cl.clGetDeviceIDs(platform, CL_DEVICE_TYPE_ACCELERATOR, 1, &g_device, nullptr) !=
          CL_SUCCESS) {
    printf("no accelerator\n");
    return 2;
  }
  cl_int error = CL_SUCCESS;
  g_context = cl.clCreateContext(nullptr, 1, &g_device, nullptr, nullptr, &error);
  EXPECT(error == CL_SUCCESS);
  g_queue = cl.clCreateCommandQueue(g_context, g_device, 0, &error);
  EXPECT(error == CL_SUCCESS);
  const char* what = argc > 1 ? argv[1] : "life";
  if (strcmp(what, "work") == 0)
    work(argc > 2 ? static_cast<int>(strtol(argv[2], nullptr, 10)) : 1000);
  else if (strcmp(what, "fault") == 0)
    fault();
  else if (strcmp(what, "language") == 0)
    language(argc > 2 && strcmp(argv[2], "2.2") == 0);
  else if (strcmp(what, "large") == 0)
    large(argc > 2 ? strtoul(argv[2], nullptr, 10) : 1u << 20);
  else if (strcmp(what, "held") == 0)
    held();
  else if (strcmp(what, "late_error") == 0)
    late_error();
  else if (strcmp(what, "copies") == 0)
    copies();
  else
    life();
  EXPECT(cl.clReleaseCommandQueue(g_queue) == CL_SUCCESS);
  EXPECT(cl.clReleaseContext(g_context) == CL_SUCCESS);
  printf("%d failures\n", g_failures);
  return g_failures == 0 ? 0 : 1;
}
