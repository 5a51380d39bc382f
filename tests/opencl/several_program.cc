// SPDX-License-Identifier: Apache-2.0
// A program with one context over all devices of the first platform, however many there are and
// wherever they lie. It runs the part that its first argument names, and prints what came out. So
// the results on one device and on several can be compared. It knows nothing of Tendril.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <string>
#include <thread>
#include <vector>

#include "tests/opencl/opencl.h"

namespace {

std::vector<cl_device_id> g_devices;

constexpr char kSource[] = R"(
kernel void add(global int* values, int more) { values[get_global_id(0)] += more; }
kernel void blend(global const int* a, global const int* restrict b, constant int* c,
                global int* into, int k) {
  size_t i = get_global_id(0);
  into[i] = into[i] * 5 + (a[i] * 3 ^ b[i]) + c[i] + k;
}
constant sampler_t kNearest = CLK_NORMALIZED_COORDS_FALSE | CLK_ADDRESS_CLAMP | CLK_FILTER_NEAREST;
kernel void from_image(read_only image2d_t from, global int* into) {
  size_t i = get_global_id(0);
  uint4 pixel = read_imageui(from, kNearest, (int2)(i % 32, i / 32 % 32));
  into[i] += (int)(pixel.x + 3 * pixel.y + 7 * pixel.z + 11 * pixel.w);
}
kernel void to_image(write_only image2d_t into, global const int* from, int k) {
  size_t i = get_global_id(0);
  if (i < 1024 && i % 3 != 0)
    write_imageui(into, (int2)(i % 32, i / 32), (uint4)(from[i] & 255, k & 255, i & 255, 9));
}
)";

cl_command_queue queue_on(size_t device, cl_command_queue_properties wanted) {
  return queue_with(wanted, g_devices[device % g_devices.size()]);
}

cl_mem buffer_of(cl_mem_flags flags, size_t bytes, void* content) {
  cl_int error = CL_SUCCESS;
  if (content != nullptr && (flags & CL_MEM_USE_HOST_PTR) == 0) flags |= CL_MEM_COPY_HOST_PTR;
  cl_mem buffer = cl.clCreateBuffer(g_context, flags, bytes, content, &error);
  EXPECT(error == CL_SUCCESS);
  return buffer;
}

uint64_t fold(uint64_t hash, const void* data, size_t bytes) {
  for (size_t i = 0; i < bytes; ++i)
    hash = (hash ^ static_cast<const uint8_t*>(data)[i]) * 0x100000001b3u;
  return hash;
}
constexpr uint64_t kFirstHash = 0xcbf29ce484222325u;

// What the program is about: a kernel that adds, on a queue of each device.
struct Work {
  explicit Work(cl_command_queue_properties properties = 0) : program(built(kSource, g_devices)) {
    for (size_t i = 0; i < std::max<size_t>(2, g_devices.size()); ++i)
      queues.push_back(queue_on(i, properties));
    add = kernel_of(program, "add");
  }
  ~Work() {
    for (cl_command_queue each : queues) EXPECT(cl.clReleaseCommandQueue(each) == CL_SUCCESS);
    EXPECT(cl.clReleaseKernel(add) == CL_SUCCESS);
    EXPECT(cl.clReleaseProgram(program) == CL_SUCCESS);
  }
  cl_int run(size_t queue, cl_mem buffer, size_t count, int more, std::vector<cl_event> wait = {},
             cl_event* event = nullptr) {
    EXPECT(cl.clSetKernelArg(add, 0, sizeof buffer, &buffer) == CL_SUCCESS);
    EXPECT(cl.clSetKernelArg(add, 1, sizeof more, &more) == CL_SUCCESS);
    return cl.clEnqueueNDRangeKernel(queues[queue % queues.size()], add, 1, nullptr, &count,
                                     nullptr, static_cast<cl_uint>(wait.size()),
                                     wait.empty() ? nullptr : wait.data(), event);
  }
  std::vector<int> read(size_t queue, cl_mem buffer, size_t count) {
    std::vector<int> all(count, -1);
    EXPECT(cl.clEnqueueReadBuffer(queues[queue % queues.size()], buffer, CL_TRUE, 0,
                                  count * sizeof(int), all.data(), 0, nullptr,
                                  nullptr) == CL_SUCCESS);
    return all;
  }
  cl_program program;
  cl_kernel add;
  std::vector<cl_command_queue> queues;
};

// Kernels that take turns on the devices, each after the one before.
void chain_of(size_t numbers, int rounds) {
  Work work;
  std::vector<int> values(numbers);
  for (size_t i = 0; i < numbers; ++i) values[i] = static_cast<int>(i * 2654435761u);
  cl_mem buffer = buffer_of(CL_MEM_READ_WRITE, numbers * sizeof(int), values.data());
  cl_event before = nullptr;
  for (int i = 0; i < rounds; ++i) {
    cl_event ran = nullptr;
    std::vector<cl_event> wait;
    if (before != nullptr) wait.push_back(before);
    EXPECT(work.run(static_cast<size_t>(i), buffer, numbers, i, wait, &ran) == CL_SUCCESS);
    if (before != nullptr) EXPECT(cl.clReleaseEvent(before) == CL_SUCCESS);
    before = ran;
  }
  EXPECT(cl.clWaitForEvents(1, &before) == CL_SUCCESS);
  EXPECT(cl.clReleaseEvent(before) == CL_SUCCESS);
  const std::vector<int> now = work.read(1, buffer, numbers);
  size_t wrong = 0;
  for (size_t i = 0; i < numbers; ++i) wrong += now[i] != values[i] + rounds * (rounds - 1) / 2;
  EXPECT(wrong == 0);
  EXPECT(cl.clReleaseMemObject(buffer) == CL_SUCCESS);
}
void chain() { chain_of(1 << 16, 20); }
void large_chain() { chain_of((9 << 18) + 12, 6); }  // more than travels at once

void information() {
  cl_uint count = 0;
  EXPECT(cl.clGetContextInfo(g_context, CL_CONTEXT_NUM_DEVICES, sizeof count, &count, nullptr) ==
         CL_SUCCESS);
  EXPECT(count == g_devices.size());
  std::vector<cl_device_id> devices(count);
  EXPECT(cl.clGetContextInfo(g_context, CL_CONTEXT_DEVICES, count * sizeof(cl_device_id),
                             devices.data(), nullptr) == CL_SUCCESS);
  EXPECT(devices == g_devices);
  cl_platform_id first = nullptr;
  for (cl_device_id each : devices) {
    cl_platform_id its = nullptr;
    EXPECT(cl.clGetDeviceInfo(each, CL_DEVICE_PLATFORM, sizeof its, &its, nullptr) == CL_SUCCESS);
    if (first == nullptr) first = its;
    EXPECT(its == first);
  }
  Work work;
  std::vector<size_t> sizes(count);
  EXPECT(cl.clGetProgramInfo(work.program, CL_PROGRAM_BINARY_SIZES, count * sizeof(size_t),
                             sizes.data(), nullptr) == CL_SUCCESS);
  std::vector<std::vector<unsigned char>> binaries(count);
  std::vector<unsigned char*> into(count);
  for (cl_uint i = 0; i < count; ++i) {
    EXPECT(sizes[i] != 0);
    binaries[i].resize(sizes[i]);
    into[i] = binaries[i].data();
  }
  EXPECT(cl.clGetProgramInfo(work.program, CL_PROGRAM_BINARIES, count * sizeof(into[0]),
                             into.data(), nullptr) == CL_SUCCESS);
  cl_int error = CL_SUCCESS;
  std::vector<cl_int> status(count, -1);
  std::vector<const unsigned char*> from(into.begin(), into.end());
  cl_program again = cl.clCreateProgramWithBinary(g_context, count, devices.data(), sizes.data(),
                                                  from.data(), status.data(), &error);
  EXPECT(error == CL_SUCCESS);
  EXPECT(std::count(status.begin(), status.end(), CL_SUCCESS) == static_cast<long>(count));
  EXPECT(cl.clBuildProgram(again, 0, nullptr, "", nullptr, nullptr) == CL_SUCCESS);
  EXPECT(cl.clReleaseKernel(kernel_of(again, "add")) == CL_SUCCESS);
  EXPECT(cl.clReleaseProgram(again) == CL_SUCCESS);
  for (cl_device_id each : devices) {
    size_t most = 0;
    EXPECT(cl.clGetKernelWorkGroupInfo(work.add, each, CL_KERNEL_WORK_GROUP_SIZE, sizeof most,
                                       &most, nullptr) == CL_SUCCESS);
    EXPECT(most != 0);
  }
  cl_context context = nullptr;
  EXPECT(cl.clGetCommandQueueInfo(work.queues[1], CL_QUEUE_CONTEXT, sizeof context, &context,
                                  nullptr) == CL_SUCCESS);
  EXPECT(context == g_context);
}

cl_int status_of(cl_event event) {
  cl_int status = 1;
  EXPECT(cl.clGetEventInfo(event, CL_EVENT_COMMAND_EXECUTION_STATUS, sizeof status, &status,
                           nullptr) == CL_SUCCESS);
  return status;
}

// A failed command fails what waits for it, also elsewhere.
void failed_events() {
  Work work;
  constexpr size_t kCount = 1024;
  std::vector<int> values(kCount, 5);
  cl_mem one = buffer_of(CL_MEM_READ_WRITE, kCount * sizeof(int), values.data());
  cl_mem other = buffer_of(CL_MEM_READ_WRITE, kCount * sizeof(int), values.data());
  cl_int error = CL_SUCCESS;
  cl_event gate = cl.clCreateUserEvent(g_context, &error), first = nullptr, second = nullptr;
  EXPECT(work.run(0, one, kCount, 1, {gate}, &first) == CL_SUCCESS);
  EXPECT(work.run(1, other, kCount, 1, {first}, &second) == CL_SUCCESS);
  EXPECT(status_of(second) > CL_COMPLETE);
  EXPECT(cl.clSetUserEventStatus(gate, -5) == CL_SUCCESS);
  EXPECT(cl.clWaitForEvents(1, &second) == CL_EXEC_STATUS_ERROR_FOR_EVENTS_IN_WAIT_LIST);
  EXPECT(status_of(first) < 0 && status_of(second) < 0);
  for (cl_event each : {gate, first, second}) EXPECT(cl.clReleaseEvent(each) == CL_SUCCESS);
  for (cl_mem each : {one, other}) EXPECT(cl.clReleaseMemObject(each) == CL_SUCCESS);
}

void builds() {
  const char* wrong = "kernel void k(global int* a) { a[0] = missing; }";
  cl_int error = CL_SUCCESS;
  cl_program program = cl.clCreateProgramWithSource(g_context, 1, &wrong, nullptr, &error);
  EXPECT(error == CL_SUCCESS);
  EXPECT(cl.clBuildProgram(program, 0, nullptr, "", nullptr, nullptr) == CL_BUILD_PROGRAM_FAILURE);
  for (cl_device_id each : g_devices) {
    cl_build_status status = CL_BUILD_NONE;
    EXPECT(cl.clGetProgramBuildInfo(program, each, CL_PROGRAM_BUILD_STATUS, sizeof status, &status,
                                    nullptr) == CL_SUCCESS);
    EXPECT(status == CL_BUILD_ERROR);
  }
  EXPECT(cl.clCreateKernel(program, "k", &error) == nullptr && error != CL_SUCCESS);
  EXPECT(cl.clReleaseProgram(program) == CL_SUCCESS);
  // Built for one device only.
  const char* source = kSource;
  program = cl.clCreateProgramWithSource(g_context, 1, &source, nullptr, &error);
  EXPECT(cl.clBuildProgram(program, 1, &g_devices.back(), "", nullptr, nullptr) == CL_SUCCESS);
  char log[4096] = "?";  // clpeak asks for those of all devices
  for (auto each = g_devices.rbegin(); each != g_devices.rend(); ++each)
    EXPECT(cl.clGetProgramBuildInfo(program, *each, CL_PROGRAM_BUILD_LOG, sizeof log, log,
                                    nullptr) == CL_SUCCESS);
  EXPECT(log[0] == 0);
  cl_kernel add = kernel_of(program, "add");
  EXPECT(cl.clBuildProgram(program, 0, nullptr, "", nullptr, nullptr) == CL_INVALID_OPERATION);
  cl_command_queue queue = queue_on(0, 0);
  std::vector<int> values(64);
  cl_mem buffer = buffer_of(CL_MEM_READ_WRITE, 64 * sizeof(int), values.data());
  const int more = 1;
  const size_t count = 64;
  EXPECT(cl.clEnqueueNDRangeKernel(queue, add, 1, nullptr, &count, nullptr, 0, nullptr, nullptr) ==
         (g_devices.size() > 1 ? CL_INVALID_PROGRAM_EXECUTABLE : CL_INVALID_KERNEL_ARGS));
  EXPECT(cl.clSetKernelArg(add, 0, sizeof buffer, &buffer) == CL_SUCCESS);
  EXPECT(cl.clSetKernelArg(add, 1, sizeof more + 1, &more) == CL_INVALID_ARG_SIZE);
  EXPECT(cl.clSetKernelArg(add, 2, sizeof more, &more) == CL_INVALID_ARG_INDEX);
  EXPECT(cl.clReleaseMemObject(buffer) == CL_SUCCESS);
  EXPECT(cl.clReleaseCommandQueue(queue) == CL_SUCCESS);
  EXPECT(cl.clReleaseKernel(add) == CL_SUCCESS);
  EXPECT(cl.clReleaseProgram(program) == CL_SUCCESS);
}

// Compiled, linked and cloned.
void libraries() {
  const char* one =
      "int triple(int x); kernel void k(global int* a, int b) "
      "{ a[get_global_id(0)] = triple(a[get_global_id(0)]) + b; }";
  const char* other = "int triple(int x) { return 3 * x; }";
  cl_int error = CL_SUCCESS;
  cl_program parts[2] = {cl.clCreateProgramWithSource(g_context, 1, &one, nullptr, &error),
                         cl.clCreateProgramWithSource(g_context, 1, &other, nullptr, &error)};
  for (cl_program each : parts)
    EXPECT(cl.clCompileProgram(each, 0, nullptr, "", 0, nullptr, nullptr, nullptr, nullptr) ==
           CL_SUCCESS);
  cl_program program =
      cl.clLinkProgram(g_context, 0, nullptr, "", 2, parts, nullptr, nullptr, &error);
  EXPECT(error == CL_SUCCESS);
  cl_kernel kernel = kernel_of(program, "k");
  std::vector<int> values = {1, 2, 3, 4};
  cl_mem buffer = buffer_of(CL_MEM_READ_WRITE, sizeof(int) * 4, values.data());
  const int more = 10;
  const size_t count = 4;
  EXPECT(cl.clSetKernelArg(kernel, 0, sizeof buffer, &buffer) == CL_SUCCESS);
  EXPECT(cl.clSetKernelArg(kernel, 1, sizeof more, &more) == CL_SUCCESS);
  cl_kernel clone = cl.clCloneKernel(kernel, &error);
  cl_command_queue first = queue_on(0, 0), last = queue_on(1, 0);
  cl_event ran = nullptr;
  EXPECT(cl.clEnqueueNDRangeKernel(first, kernel, 1, nullptr, &count, nullptr, 0, nullptr, &ran) ==
         CL_SUCCESS);
  if (error == CL_SUCCESS) {
    EXPECT(cl.clEnqueueNDRangeKernel(last, clone, 1, nullptr, &count, nullptr, 1, &ran, nullptr) ==
           CL_SUCCESS);
    EXPECT(cl.clReleaseKernel(clone) == CL_SUCCESS);
  } else {  // a driver of an older version
    EXPECT(cl.clEnqueueNDRangeKernel(last, kernel, 1, nullptr, &count, nullptr, 1, &ran, nullptr) ==
           CL_SUCCESS);
  }
  EXPECT(cl.clEnqueueReadBuffer(last, buffer, CL_TRUE, 0, sizeof(int) * 4, values.data(), 0,
                                nullptr, nullptr) == CL_SUCCESS);
  EXPECT((values == std::vector<int>{49, 58, 67, 76}));
  EXPECT(cl.clReleaseEvent(ran) == CL_SUCCESS);
  EXPECT(cl.clReleaseMemObject(buffer) == CL_SUCCESS);
  for (cl_command_queue each : {first, last}) EXPECT(cl.clReleaseCommandQueue(each) == CL_SUCCESS);
  EXPECT(cl.clReleaseKernel(kernel) == CL_SUCCESS);
  for (cl_program each : {program, parts[0], parts[1]})
    EXPECT(cl.clReleaseProgram(each) == CL_SUCCESS);
}

// Parts of one buffer on two devices at once: neither waits for the other.
void halves() {
  Work work;
  constexpr size_t kCount = 4096;
  std::vector<int> values(kCount);
  for (size_t i = 0; i < kCount; ++i) values[i] = static_cast<int>(i);
  cl_mem whole = buffer_of(CL_MEM_READ_WRITE, kCount * sizeof(int), values.data()), half[2] = {};
  EXPECT(work.run(0, whole, kCount, 1) == CL_SUCCESS);
  EXPECT(cl.clFinish(work.queues[0]) == CL_SUCCESS);
  cl_int error = CL_SUCCESS;
  for (size_t i = 0; i < 2; ++i) {
    const cl_buffer_region region = {i * kCount * sizeof(int) / 2, kCount * sizeof(int) / 2};
    half[i] = cl.clCreateSubBuffer(whole, 0, CL_BUFFER_CREATE_TYPE_REGION, &region, &error);
    EXPECT(error == CL_SUCCESS);
  }
  cl_event gate = cl.clCreateUserEvent(g_context, &error);
  EXPECT(work.run(0, half[0], kCount / 2, 100, {gate}) == CL_SUCCESS);
  EXPECT(work.run(1, half[1], kCount / 2, 200) == CL_SUCCESS);
  EXPECT(cl.clFinish(work.queues[1]) == CL_SUCCESS);
  EXPECT(cl.clSetUserEventStatus(gate, CL_COMPLETE) == CL_SUCCESS);
  EXPECT(cl.clFinish(work.queues[0]) == CL_SUCCESS);
  for (size_t queue = 0; queue < 2; ++queue) {
    const std::vector<int> now = work.read(queue, whole, kCount);
    size_t wrong = 0;
    for (size_t i = 0; i < kCount; ++i)
      wrong += now[i] != values[i] + 1 + (i < kCount / 2 ? 100 : 200);
    EXPECT(wrong == 0);
  }
  cl_mem misaligned = nullptr;
  const cl_buffer_region region = {4, 64};
  misaligned = cl.clCreateSubBuffer(whole, 0, CL_BUFFER_CREATE_TYPE_REGION, &region, &error);
  EXPECT(misaligned == nullptr && error == CL_MISALIGNED_SUB_BUFFER_OFFSET);
  EXPECT(cl.clReleaseEvent(gate) == CL_SUCCESS);
  for (cl_mem each : {half[0], half[1], whole}) EXPECT(cl.clReleaseMemObject(each) == CL_SUCCESS);
}

std::atomic<int> g_called{0};
void set_it(cl_event, cl_int status, void* gate) {
  ++g_called;
  cl.clSetUserEventStatus(static_cast<cl_event>(gate), status < 0 ? status : CL_COMPLETE);
}
void has_ended(cl_mem, void*) { ++g_called; }
void context_ended(cl_context, void*) { ++g_called; }

// The end of a command on one device lets one on the other begin, by the program's own function.
void callbacks() {
  Work work(CL_QUEUE_PROFILING_ENABLE);
  constexpr size_t kCount = 1024;
  std::vector<int> values(kCount, 1);
  cl_mem buffer = buffer_of(CL_MEM_READ_WRITE, kCount * sizeof(int), values.data());
  EXPECT(cl.clSetMemObjectDestructorCallback(buffer, &has_ended, nullptr) == CL_SUCCESS);
  cl_int error = CL_SUCCESS;
  cl_event gate = cl.clCreateUserEvent(g_context, &error), first = nullptr, second = nullptr;
  EXPECT(work.run(0, buffer, kCount, 1, {}, &first) == CL_SUCCESS);
  EXPECT(cl.clSetEventCallback(first, CL_COMPLETE, &set_it, gate) == CL_SUCCESS);
  EXPECT(work.run(1, buffer, kCount, 1, {gate}, &second) == CL_SUCCESS);
  EXPECT(cl.clWaitForEvents(1, &second) == CL_SUCCESS);
  EXPECT(g_called == 1);
  const cl_event all[3] = {second, first, gate};
  EXPECT(cl.clWaitForEvents(3, all) == CL_SUCCESS);
  EXPECT(work.read(0, buffer, kCount)[7] == 3);
  for (cl_event each : {first, second}) {
    cl_ulong began = 0, ended = 0;
    EXPECT(cl.clGetEventProfilingInfo(each, CL_PROFILING_COMMAND_START, sizeof began, &began,
                                      nullptr) == CL_SUCCESS);
    EXPECT(cl.clGetEventProfilingInfo(each, CL_PROFILING_COMMAND_END, sizeof ended, &ended,
                                      nullptr) == CL_SUCCESS);
    EXPECT(began <= ended && ended != 0);
  }
  for (cl_event each : {gate, first, second}) EXPECT(cl.clReleaseEvent(each) == CL_SUCCESS);
  EXPECT(cl.clReleaseMemObject(buffer) == CL_SUCCESS);
  for (int i = 0; i < 1000 && g_called != 2; ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  EXPECT(g_called == 2);
  cl_context context = cl.clCreateContext(nullptr, static_cast<cl_uint>(g_devices.size()),
                                          g_devices.data(), nullptr, nullptr, &error);
  EXPECT(cl.clSetContextDestructorCallback(context, &context_ended, nullptr) == CL_SUCCESS);
  EXPECT(cl.clReleaseContext(context) == CL_SUCCESS);
  EXPECT(g_called == 3);
}

// Memory that the program keeps itself: mappings lie in it.
void host_pointers() {
  Work work;
  constexpr size_t kCount = 1024;
  std::vector<int> mine(kCount, 7);
  cl_mem buffer =
      buffer_of(CL_MEM_READ_WRITE | CL_MEM_USE_HOST_PTR, kCount * sizeof(int), mine.data());
  EXPECT(work.run(1, buffer, kCount, 1) == CL_SUCCESS);
  EXPECT(cl.clFinish(work.queues[1]) == CL_SUCCESS);
  cl_int error = CL_SUCCESS;
  void* at = cl.clEnqueueMapBuffer(work.queues[0], buffer, CL_TRUE, CL_MAP_READ | CL_MAP_WRITE, 64,
                                   128, 0, nullptr, nullptr, &error);
  EXPECT(error == CL_SUCCESS && at == &mine[16]);
  EXPECT(mine[16] == 8 && mine[47] == 8);
  mine[16] = 1000;
  EXPECT(cl.clEnqueueUnmapMemObject(work.queues[1], buffer, at, 0, nullptr, nullptr) == CL_SUCCESS);
  EXPECT(work.run(1, buffer, kCount, 1) == CL_SUCCESS);
  EXPECT(cl.clFinish(work.queues[1]) == CL_SUCCESS);
  const std::vector<int> now = work.read(0, buffer, kCount);
  EXPECT(now[15] == 9 && now[16] == 1001 && now[17] == 9 && now[1023] == 9);
  EXPECT(cl.clReleaseMemObject(buffer) == CL_SUCCESS);
  // What the host may not read, devices may.
  buffer = buffer_of(CL_MEM_READ_WRITE | CL_MEM_HOST_NO_ACCESS, kCount * sizeof(int), mine.data());
  EXPECT(cl.clEnqueueReadBuffer(work.queues[0], buffer, CL_TRUE, 0, 4, mine.data(), 0, nullptr,
                                nullptr) == CL_INVALID_OPERATION);
  cl_mem other = buffer_of(CL_MEM_READ_WRITE, kCount * sizeof(int), nullptr);
  cl_event ran = nullptr;
  const int before = mine[3];
  EXPECT(work.run(0, buffer, kCount, 1, {}, &ran) == CL_SUCCESS);
  EXPECT(cl.clEnqueueCopyBuffer(work.queues[1], buffer, other, 0, 0, kCount * sizeof(int), 1, &ran,
                                nullptr) == CL_SUCCESS);
  EXPECT(work.read(1, other, kCount)[3] == before + 1);
  EXPECT(cl.clReleaseEvent(ran) == CL_SUCCESS);
  for (cl_mem each : {buffer, other}) EXPECT(cl.clReleaseMemObject(each) == CL_SUCCESS);
}

// Each thread has a buffer that goes to and fro.
void threads() {
  std::vector<std::thread> all;
  std::atomic<int> wrong{0};
  for (int thread = 0; thread < 4; ++thread)
    all.emplace_back([thread, &wrong] {
      Work work;
      constexpr size_t kCount = 4096;
      std::vector<int> values(kCount, thread);
      cl_mem buffer = buffer_of(CL_MEM_READ_WRITE, kCount * sizeof(int), values.data());
      for (size_t i = 0; i < 40; ++i) {
        EXPECT(work.run(i, buffer, kCount, 1) == CL_SUCCESS);
        EXPECT(cl.clFinish(work.queues[i % work.queues.size()]) == CL_SUCCESS);
      }
      for (const int each : work.read(1, buffer, kCount)) wrong += each != thread + 40;
      EXPECT(cl.clReleaseMemObject(buffer) == CL_SUCCESS);
    });
  for (std::thread& each : all) each.join();
  EXPECT(wrong == 0);
}

void say_and_wait(const char* what) {
  printf("%s\n", what);
  fflush(stdout);
  char line[16];
  if (fgets(line, sizeof line, stdin) == nullptr) exit(3);
}

// Everything made is released again, many times. Then nothing is left at any server.
void again() {
  for (int i = 0; i < 40; ++i) {
    chain();
    halves();
    host_pointers();
  }
  say_and_wait("released");
}

// The first device's server dies. What is on the other goes on. What was on it is an error.
void survive() {
  Work work;
  constexpr size_t kCount = 1024;
  std::vector<int> values(kCount, 1);
  cl_mem lost = buffer_of(CL_MEM_READ_WRITE, kCount * sizeof(int), values.data());
  cl_mem kept = buffer_of(CL_MEM_READ_WRITE, kCount * sizeof(int), values.data());
  EXPECT(work.run(0, lost, kCount, 1) == CL_SUCCESS);
  EXPECT(work.run(1, kept, kCount, 1) == CL_SUCCESS);
  for (cl_command_queue each : work.queues) EXPECT(cl.clFinish(each) == CL_SUCCESS);
  cl_int error = CL_SUCCESS;
  cl_event gate = cl.clCreateUserEvent(g_context, &error), never = nullptr, after = nullptr;
  EXPECT(work.run(0, lost, kCount, 1, {gate}, &never) == CL_SUCCESS);
  EXPECT(work.run(1, kept, kCount, 1, {never}, &after) == CL_SUCCESS);
  EXPECT(cl.clFlush(work.queues[0]) == CL_SUCCESS && cl.clFlush(work.queues[1]) == CL_SUCCESS);
  say_and_wait("ready");
  EXPECT(cl.clWaitForEvents(1, &after) == CL_EXEC_STATUS_ERROR_FOR_EVENTS_IN_WAIT_LIST);
  EXPECT(cl.clFinish(work.queues[0]) == CL_DEVICE_NOT_AVAILABLE);
  cl_command_queue other = queue_on(1, 0);
  cl_event ran = nullptr;
  EXPECT(cl.clEnqueueReadBuffer(other, lost, CL_TRUE, 0, kCount * sizeof(int), values.data(), 0,
                                nullptr, nullptr) != CL_SUCCESS);
  EXPECT(cl.clEnqueueWriteBuffer(other, lost, CL_TRUE, 0, kCount * sizeof(int), values.data(), 0,
                                 nullptr, nullptr) == CL_SUCCESS);
  EXPECT(cl.clEnqueueReadBuffer(other, lost, CL_TRUE, 0, kCount * sizeof(int), values.data(), 0,
                                nullptr, &ran) == CL_SUCCESS);
  EXPECT(values[5] == 1);
  EXPECT(cl.clEnqueueCopyBuffer(other, kept, lost, 0, 0, kCount * sizeof(int), 0, nullptr,
                                nullptr) == CL_SUCCESS);
  EXPECT(cl.clEnqueueReadBuffer(other, lost, CL_TRUE, 0, kCount * sizeof(int), values.data(), 0,
                                nullptr, nullptr) == CL_SUCCESS);
  EXPECT(values[5] == 2);
  for (cl_event each : {gate, never, after, ran}) EXPECT(cl.clReleaseEvent(each) == CL_SUCCESS);
  for (cl_mem each : {lost, kept}) EXPECT(cl.clReleaseMemObject(each) == CL_SUCCESS);
  EXPECT(cl.clReleaseCommandQueue(other) == CL_SUCCESS);
}

// What such a context does not have is refused.
void refusals() {
  EXPECT(cl.clSVMAlloc(g_context, CL_MEM_READ_WRITE, 4096, 0) == nullptr);
  cl_int error = CL_SUCCESS;
  EXPECT(cl.clCreatePipe(g_context, CL_MEM_READ_WRITE, 4, 16, nullptr, &error) == nullptr);
  EXPECT(error == CL_INVALID_OPERATION);
  Work work;
  int here = 0;
  EXPECT(cl.clEnqueueSVMMemcpy(work.queues[0], CL_TRUE, &here, &here, sizeof here, 0, nullptr,
                               nullptr) == CL_INVALID_OPERATION);
  EXPECT(cl.clSetKernelArgSVMPointer(work.add, 0, &here) == CL_INVALID_OPERATION);
  EXPECT(cl.clEnqueueNativeKernel(work.queues[0], nullptr, nullptr, 0, 0, nullptr, nullptr, 0,
                                  nullptr, nullptr) == CL_INVALID_OPERATION);
}

// Random commands on random queues, with the events that make the result one and the same.
class Graph {
 public:
  explicit Graph(uint64_t seed) : state_(seed * 2 + 1), program_(built(kSource, g_devices)) {
    for (size_t i = 0; i < kQueues; ++i) {
      const cl_command_queue_properties order =
          i % 4 >= 2 ? CL_QUEUE_OUT_OF_ORDER_EXEC_MODE_ENABLE : 0;
      queues_.push_back({queue_on(i, order), order == 0});
    }
    blend_ = kernel_of(program_, "blend");
    from_image_ = kernel_of(program_, "from_image");
    to_image_ = kernel_of(program_, "to_image");
    make_things();
  }
  ~Graph() {
    for (Thing& each : things_) EXPECT(cl.clReleaseMemObject(each.memory) == CL_SUCCESS);
    for (Part& each : parts_) forget(&each);
    for (cl_event each : opened_) EXPECT(cl.clReleaseEvent(each) == CL_SUCCESS);
    for (Line& each : queues_) EXPECT(cl.clReleaseCommandQueue(each.queue) == CL_SUCCESS);
    for (cl_kernel each : {blend_, from_image_, to_image_})
      EXPECT(cl.clReleaseKernel(each) == CL_SUCCESS);
    EXPECT(cl.clReleaseProgram(program_) == CL_SUCCESS);
  }

  void run(int commands) {
    for (int i = 0; i < commands; ++i) {
      one_command();
      if (random(8) == 0) open_gates();
    }
    open_gates();
    for (Line& each : queues_) EXPECT(cl.clFinish(each.queue) == CL_SUCCESS);
    for (size_t i = 0; i < things_.size(); ++i) read_all(i);
  }
  uint64_t hash() const { return hash_; }

 private:
  static constexpr size_t kQueues = 6, kCount = 2048, kBytes = kCount * sizeof(int), kSide = 32;
  struct Line {
    cl_command_queue queue;
    bool in_order;
  };
  struct Stamp {
    cl_event event;
    size_t queue;
  };
  // What commands may meet in.
  struct Part {
    std::vector<Stamp> writers, readers;
  };
  struct Thing {
    cl_mem memory;
    std::vector<size_t> parts;
    size_t count;  // of numbers; 0: an image
  };

  uint64_t random(uint64_t below) {
    state_ = state_ * 6364136223846793005u + 1442695040888963407u;
    return (state_ >> 33) % below;
  }
  void forget(Part* part) {
    for (auto* list : {&part->writers, &part->readers}) {
      for (const Stamp& each : *list) EXPECT(cl.clReleaseEvent(each.event) == CL_SUCCESS);
      list->clear();
    }
  }

  void make_things() {
    std::vector<int> first(kCount);
    for (size_t i = 0; i < 5; ++i) {
      for (int& each : first) each = static_cast<int>(random(1u << 31));
      const cl_mem_flags flags = i == 4 ? CL_MEM_READ_ONLY : CL_MEM_READ_WRITE;
      cl_mem buffer = buffer_of(flags, kBytes, first.data());
      if (i != 3) {
        things_.push_back({buffer, {parts_.size()}, kCount});
        parts_.emplace_back();
        continue;
      }
      // A whole and its two halves.
      things_.push_back({buffer, {parts_.size(), parts_.size() + 1}, kCount});
      for (size_t half = 0; half < 2; ++half) {
        const cl_buffer_region region = {half * kBytes / 2, kBytes / 2};
        cl_int error = CL_SUCCESS;
        cl_mem part = cl.clCreateSubBuffer(buffer, CL_MEM_READ_WRITE, CL_BUFFER_CREATE_TYPE_REGION,
                                           &region, &error);
        EXPECT(error == CL_SUCCESS);
        things_.push_back({part, {parts_.size()}, kCount / 2});
        parts_.emplace_back();
      }
    }
    const cl_image_format format = {CL_RGBA, CL_UNSIGNED_INT8};
    cl_image_desc description = {};
    description.image_type = CL_MEM_OBJECT_IMAGE2D;
    description.image_width = description.image_height = kSide;
    for (int i = 0; i < 2; ++i) {
      cl_int error = CL_SUCCESS;
      cl_mem image = cl.clCreateImage(g_context, CL_MEM_READ_WRITE | CL_MEM_COPY_HOST_PTR, &format,
                                      &description, first.data(), &error);
      EXPECT(error == CL_SUCCESS);
      things_.push_back({image, {parts_.size()}, 0});
      parts_.emplace_back();
    }
  }

  // Chooses a queue and what the command must wait for.
  struct Command {
    size_t queue = 0;
    std::vector<cl_event> wait;
    std::vector<size_t> reads, writes;
    cl_event made = nullptr;
    cl_uint waits() const { return static_cast<cl_uint>(wait.size()); }
    const cl_event* list() const { return wait.empty() ? nullptr : wait.data(); }
  };
  Command command(const std::vector<size_t>& reads, const std::vector<size_t>& writes) {
    Command c;
    c.queue = random(queues_.size());
    c.reads = reads;
    c.writes = writes;
    const auto after = [&](const std::vector<Stamp>& stamps) {
      for (const Stamp& each : stamps)
        if (each.queue != c.queue || !queues_[c.queue].in_order || random(2) == 0)
          c.wait.push_back(each.event);
    };
    for (size_t thing : reads)
      for (size_t part : things_[thing].parts) after(parts_[part].writers);
    for (size_t thing : writes)
      for (size_t part : things_[thing].parts) {
        after(parts_[part].writers);
        after(parts_[part].readers);
      }
    std::sort(c.wait.begin(), c.wait.end());  // a driver may want each event once
    c.wait.erase(std::unique(c.wait.begin(), c.wait.end()), c.wait.end());
    if (random(10) == 0) {
      cl_int error = CL_SUCCESS;
      gates_.push_back(cl.clCreateUserEvent(g_context, &error));
      EXPECT(error == CL_SUCCESS);
      c.wait.push_back(gates_.back());
    }
    return c;
  }
  void done(Command& c, cl_int result) {
    EXPECT(result == CL_SUCCESS);
    if (result != CL_SUCCESS) {
      printf("a command failed: %d\n", result);
      return;
    }
    for (size_t thing : c.reads)
      for (size_t part : things_[thing].parts) {
        EXPECT(cl.clRetainEvent(c.made) == CL_SUCCESS);
        parts_[part].readers.push_back({c.made, c.queue});
      }
    for (size_t thing : c.writes)
      for (size_t part : things_[thing].parts) {
        forget(&parts_[part]);
        EXPECT(cl.clRetainEvent(c.made) == CL_SUCCESS);
        parts_[part].writers.push_back({c.made, c.queue});
      }
    EXPECT(cl.clReleaseEvent(c.made) == CL_SUCCESS);
  }
  void open_gates() {
    for (cl_event each : gates_) {
      EXPECT(cl.clSetUserEventStatus(each, CL_COMPLETE) == CL_SUCCESS);
      opened_.push_back(each);
    }
    gates_.clear();
  }

  size_t any_buffer() { return random(6); }  // not the one that is only read
  size_t any_image() { return 7 + random(2); }
  size_t whole_buffer() { return random(4); }
  cl_command_queue at(const Command& c) { return queues_[c.queue].queue; }

  void one_command() {
    switch (random(10)) {
      case 0:
      case 1:
      case 2:
        return run_blend();
      case 3:
        return fill_or_copy();
      case 4:
        return write();
      case 5:
        return random(3) == 0 ? read_all(any_buffer()) : map();
      case 6:
        return with_image();
      case 7:
        return copy_with_image();
      case 8:
        return migrate();
      default:
        return rectangle();
    }
  }

  void run_blend() {
    const size_t a = whole_buffer(), b = whole_buffer(), into = any_buffer();
    const bool meets =
        std::any_of(things_[into].parts.begin(), things_[into].parts.end(), [&](size_t part) {
          const auto& other = things_[b].parts;
          return std::find(other.begin(), other.end(), part) != other.end();
        });
    if (meets) return;  // the kernel's text promises that they do not
    Command c = command({a, b, 6}, {into});
    const int k = static_cast<int>(random(1000));
    cl_uint index = 0;
    for (size_t thing : {a, b, size_t{6}, into})
      EXPECT(cl.clSetKernelArg(blend_, index++, sizeof(cl_mem), &things_[thing].memory) ==
             CL_SUCCESS);
    EXPECT(cl.clSetKernelArg(blend_, index, sizeof k, &k) == CL_SUCCESS);
    done(c, cl.clEnqueueNDRangeKernel(at(c), blend_, 1, nullptr, &things_[into].count, nullptr,
                                      c.waits(), c.list(), &c.made));
  }
  void fill_or_copy() {
    const size_t into = any_buffer(), from = whole_buffer();
    const size_t count = 16 * (1 + random(things_[into].count / 16 - 1));
    const size_t offset = (things_[into].count - count) * sizeof(int);
    const bool same = std::find(things_[from].parts.begin(), things_[from].parts.end(),
                                things_[into].parts[0]) != things_[from].parts.end();
    if (same || random(2) == 0) {
      Command c = command({}, {into});
      const int pattern = static_cast<int>(random(1u << 31));
      return done(
          c, cl.clEnqueueFillBuffer(at(c), things_[into].memory, &pattern, sizeof pattern, offset,
                                    count * sizeof(int), c.waits(), c.list(), &c.made));
    }
    Command c = command({from}, {into});
    done(c, cl.clEnqueueCopyBuffer(at(c), things_[from].memory, things_[into].memory, 0, offset,
                                   count * sizeof(int), c.waits(), c.list(), &c.made));
  }
  void write() {
    const size_t into = any_buffer();
    Command c = command({}, {into});
    const size_t first = random(things_[into].count / 2);
    std::vector<int> values(things_[into].count - first);
    for (int& each : values) each = static_cast<int>(random(1u << 31));
    if (random(4) == 0) open_gates();
    done(c, cl.clEnqueueWriteBuffer(at(c), things_[into].memory, CL_FALSE, first * sizeof(int),
                                    values.size() * sizeof(int), values.data(), c.waits(), c.list(),
                                    &c.made));
    written_.push_back(std::move(values));  // until it has been written, at the end
  }
  void map() {
    const size_t thing = any_buffer();
    open_gates();
    Command c = command({}, {thing});
    open_gates();
    cl_int error = CL_SUCCESS;
    const size_t offset = 64 * random(8), bytes = 256 + 4 * random(200);
    auto* const at_host = static_cast<int*>(
        cl.clEnqueueMapBuffer(at(c), things_[thing].memory, CL_TRUE, CL_MAP_READ | CL_MAP_WRITE,
                              offset, bytes, c.waits(), c.list(), &c.made, &error));
    done(c, error);
    if (at_host == nullptr) return;
    for (size_t i = 0; i < bytes / sizeof(int); ++i) at_host[i] = at_host[i] * 3 + 1;
    Command back = command({}, {thing});
    done(back, cl.clEnqueueUnmapMemObject(at(back), things_[thing].memory, at_host, back.waits(),
                                          back.list(), &back.made));
  }
  void with_image() {
    const size_t image = any_image(), buffer = whole_buffer();
    const bool reads = random(2) == 0;
    const int k = static_cast<int>(random(1000));
    Command c = reads ? command({image}, {buffer}) : command({buffer}, {image});
    cl_kernel kernel = reads ? from_image_ : to_image_;
    EXPECT(cl.clSetKernelArg(kernel, 0, sizeof(cl_mem), &things_[image].memory) == CL_SUCCESS);
    EXPECT(cl.clSetKernelArg(kernel, 1, sizeof(cl_mem), &things_[buffer].memory) == CL_SUCCESS);
    if (!reads) EXPECT(cl.clSetKernelArg(kernel, 2, sizeof k, &k) == CL_SUCCESS);
    done(c, cl.clEnqueueNDRangeKernel(at(c), kernel, 1, nullptr, &things_[buffer].count, nullptr,
                                      c.waits(), c.list(), &c.made));
  }
  void copy_with_image() {
    const size_t image = any_image(), buffer = whole_buffer();
    const size_t origin[3] = {random(16), random(16), 0}, region[3] = {8, 4, 1};
    if (random(2) == 0) {
      Command c = command({image}, {buffer});
      return done(
          c, cl.clEnqueueCopyImageToBuffer(at(c), things_[image].memory, things_[buffer].memory,
                                           origin, region, 128, c.waits(), c.list(), &c.made));
    }
    Command c = command({buffer}, {image});
    done(c, cl.clEnqueueCopyBufferToImage(at(c), things_[buffer].memory, things_[image].memory, 64,
                                          origin, region, c.waits(), c.list(), &c.made));
  }
  void migrate() {
    const size_t one = any_buffer(), other = any_image();
    Command c = command({one, other}, {});
    const cl_mem both[2] = {things_[one].memory, things_[other].memory};
    done(c, cl.clEnqueueMigrateMemObjects(at(c), 2, both,
                                          random(3) == 0 ? CL_MIGRATE_MEM_OBJECT_HOST : 0,
                                          c.waits(), c.list(), &c.made));
  }
  void rectangle() {
    const size_t from = random(3), into = (from + 1) % 3;
    Command c = command({from}, {into});
    const size_t origin[3] = {4 * random(8), random(8), 0}, region[3] = {64, 4, 1};
    done(c,
         cl.clEnqueueCopyBufferRect(at(c), things_[from].memory, things_[into].memory, origin,
                                    origin, region, 256, 0, 128, 0, c.waits(), c.list(), &c.made));
  }
  void read_all(size_t thing) {
    open_gates();
    Command c = command({thing}, {});
    open_gates();
    std::vector<int> all(things_[thing].count != 0 ? things_[thing].count : kSide * kSide);
    const size_t origin[3] = {}, region[3] = {kSide, kSide, 1};
    done(c, things_[thing].count != 0
                ? cl.clEnqueueReadBuffer(at(c), things_[thing].memory, CL_TRUE, 0,
                                         all.size() * sizeof(int), all.data(), c.waits(), c.list(),
                                         &c.made)
                : cl.clEnqueueReadImage(at(c), things_[thing].memory, CL_TRUE, origin, region, 0, 0,
                                        all.data(), c.waits(), c.list(), &c.made));
    hash_ = fold(hash_, all.data(), all.size() * sizeof(int));
  }

  uint64_t state_, hash_ = kFirstHash;
  cl_program program_;
  cl_kernel blend_, from_image_, to_image_;
  std::vector<Line> queues_;
  std::vector<Thing> things_;
  std::vector<Part> parts_;
  std::vector<cl_event> gates_, opened_;
  std::vector<std::vector<int>> written_;
};

void graphs(int first, int last, int commands) {
  for (int seed = first; seed < last; ++seed) {
    Graph graph(static_cast<uint64_t>(seed));
    graph.run(commands);
    printf("graph %d: %016llx\n", seed, static_cast<unsigned long long>(graph.hash()));
  }
}

int number(const char* text) { return static_cast<int>(strtol(text, nullptr, 10)); }

struct Part {
  const char* name;
  void (*run)();
  bool only_named = false;  // it is about Tendril, or about what the test does meanwhile
};
constexpr Part kParts[] = {{"chain", &chain},
                           {"large_chain", &large_chain},
                           {"information", &information},
                           {"failed_events", &failed_events},
                           {"builds", &builds},
                           {"libraries", &libraries},
                           {"halves", &halves},
                           {"callbacks", &callbacks},
                           {"host_pointers", &host_pointers},
                           {"threads", &threads},
                           {"again", &again, true},
                           {"survive", &survive, true},
                           {"refusals", &refusals, true}};

}  // namespace

int main(int argc, char** argv) {
  constexpr cl_uint kDevicesMax = 16;
  cl_platform_id platform = nullptr;
  cl_uint count = 0;
  g_devices.resize(kDevicesMax);
  if (argc < 2 || !cl.open() || cl.clGetPlatformIDs(1, &platform, nullptr) != CL_SUCCESS ||
      cl.clGetDeviceIDs(platform, CL_DEVICE_TYPE_ALL, kDevicesMax, g_devices.data(), &count) !=
          CL_SUCCESS) {
    printf("no part is named, or there is no OpenCL device\n");
    return 2;
  }
  g_devices.resize(count);
  cl_int error = CL_SUCCESS;
  g_context = cl.clCreateContext(nullptr, count, g_devices.data(), nullptr, nullptr, &error);
  EXPECT(error == CL_SUCCESS);
  const std::string part = argv[1];
  bool known = part == "all" || (part == "graphs" && argc == 5);
  for (const Part& each : kParts)
    if (part == each.name) {
      each.run();
      known = true;
    }
  EXPECT(known);
  if (part == "graphs" && argc == 5) graphs(number(argv[2]), number(argv[3]), number(argv[4]));
  // Each of the short ones.
  for (const Part& each : kParts)
    if (part == "all" && !each.only_named) {
      const int before = g_failures;
      each.run();
      if (g_failures != before) printf("in %s\n", each.name);
    }
  EXPECT(cl.clReleaseContext(g_context) == CL_SUCCESS);
  printf("%d failures\n", g_failures);
  return g_failures == 0 ? 0 : 1;
}
