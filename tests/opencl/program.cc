// SPDX-License-Identifier: Apache-2.0
// An ordinary OpenCL program. It uses what OpenCL offers and says what came back
// wrong. It knows nothing of Tendril, so it must say nothing natively, too. With an argument it
// runs only the part of that name.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <atomic>
#include <chrono>
#include <string>
#include <thread>
#include <vector>

#include "tests/opencl/program.h"

cl_platform_id g_platform = nullptr;

namespace {
constexpr char kSource[] = R"(
kernel void add(global int* values, int more) { values[get_global_id(0)] += more; }
kernel void reverse_groups(global int* values, local int* group) {
  size_t me = get_local_id(0), size = get_local_size(0);
  group[me] = values[get_global_id(0)];
  barrier(CLK_LOCAL_MEM_FENCE);
  values[get_global_id(0)] = group[size - 1 - me];
}
)";

}  // namespace

cl_mem buffer_of(std::vector<int>& values) {
  cl_int error = CL_SUCCESS;
  cl_mem buffer = cl.clCreateBuffer(g_context, CL_MEM_READ_WRITE | CL_MEM_COPY_HOST_PTR,
                                    values.size() * sizeof(int), values.data(), &error);
  EXPECT(error == CL_SUCCESS);
  return buffer;
}

namespace {

// What everything below uses: a queue, the kernel `add` and a buffer of numbers.
struct Work {
  explicit Work(cl_command_queue_properties properties = 0, size_t count = 1024)
      : queue(queue_with(properties)),
        program(built(kSource)),
        add(kernel_of(program, "add")),
        values(count) {
    for (size_t i = 0; i < count; ++i) values[i] = static_cast<int>(i);
    buffer = buffer_of(values);
    EXPECT(cl.clSetKernelArg(add, 0, sizeof buffer, &buffer) == CL_SUCCESS);
    adding(1);
  }
  ~Work() {
    EXPECT(cl.clReleaseMemObject(buffer) == CL_SUCCESS);
    EXPECT(cl.clReleaseKernel(add) == CL_SUCCESS);
    EXPECT(cl.clReleaseProgram(program) == CL_SUCCESS);
    EXPECT(cl.clReleaseCommandQueue(queue) == CL_SUCCESS);
  }
  void adding(int more) { EXPECT(cl.clSetKernelArg(add, 1, sizeof more, &more) == CL_SUCCESS); }
  void run(std::vector<cl_event> wait = {}, cl_event* event = nullptr) {
    const size_t count = values.size();
    EXPECT(cl.clEnqueueNDRangeKernel(queue, add, 1, nullptr, &count, nullptr,
                                     static_cast<cl_uint>(wait.size()),
                                     wait.empty() ? nullptr : wait.data(), event) == CL_SUCCESS);
  }
  std::vector<int> read() {
    std::vector<int> all(values.size());
    EXPECT(cl.clEnqueueReadBuffer(queue, buffer, CL_TRUE, 0, all.size() * sizeof(int), all.data(),
                                  0, nullptr, nullptr) == CL_SUCCESS);
    return all;
  }
  void expect_added(int more) {
    const std::vector<int> now = read();
    size_t wrong = 0;
    for (size_t i = 0; i < now.size(); ++i) wrong += now[i] != values[i] + more;
    EXPECT(wrong == 0);
  }
  cl_command_queue queue;
  cl_program program;
  cl_kernel add;
  std::vector<int> values;
  cl_mem buffer = nullptr;
};

void information() {
  char text[4096] = {};
  size_t bytes = 0;
  EXPECT(cl.clGetPlatformInfo(g_platform, CL_PLATFORM_NAME, sizeof text, text, &bytes) ==
         CL_SUCCESS);
  EXPECT(bytes == strlen(text) + 1 && bytes > 1);
  EXPECT(cl.clGetPlatformInfo(g_platform, CL_PLATFORM_NAME, 1, text, nullptr) == CL_INVALID_VALUE);
  EXPECT(cl.clGetPlatformInfo(g_platform, CL_PLATFORM_EXTENSIONS, sizeof text, text, nullptr) ==
         CL_SUCCESS);
  EXPECT(strstr(text, "cl_khr_icd") != nullptr);
  cl_platform_id platform = nullptr;
  EXPECT(cl.clGetDeviceInfo(g_device, CL_DEVICE_PLATFORM, sizeof platform, &platform, nullptr) ==
         CL_SUCCESS);
  EXPECT(platform == g_platform);
  cl_uint units = 0;
  EXPECT(cl.clGetDeviceInfo(g_device, CL_DEVICE_MAX_COMPUTE_UNITS, sizeof units, &units, &bytes) ==
         CL_SUCCESS);
  EXPECT(units > 0 && bytes == sizeof units);
  EXPECT(cl.clGetDeviceInfo(g_device, 0xffff, sizeof text, text, nullptr) == CL_INVALID_VALUE);
  cl_device_id device = nullptr;
  EXPECT(cl.clGetContextInfo(g_context, CL_CONTEXT_DEVICES, sizeof device, &device, nullptr) ==
         CL_SUCCESS);
  EXPECT(device == g_device);
}

void kernels() {
  Work work;
  work.run();
  work.expect_added(1);
  work.adding(41);
  work.run();
  work.expect_added(42);
  cl_uint count = 0;
  EXPECT(cl.clGetKernelInfo(work.add, CL_KERNEL_NUM_ARGS, sizeof count, &count, nullptr) ==
         CL_SUCCESS);
  EXPECT(count == 2);
  size_t most = 0;
  EXPECT(cl.clGetKernelWorkGroupInfo(work.add, g_device, CL_KERNEL_WORK_GROUP_SIZE, sizeof most,
                                     &most, nullptr) == CL_SUCCESS);
  EXPECT(most > 0);
  // Local memory, and a group's size.
  cl_kernel reverse = kernel_of(work.program, "reverse_groups");
  const size_t group = 8, all = work.values.size();
  EXPECT(cl.clSetKernelArg(reverse, 0, sizeof work.buffer, &work.buffer) == CL_SUCCESS);
  EXPECT(cl.clSetKernelArg(reverse, 1, group * sizeof(int), nullptr) == CL_SUCCESS);
  EXPECT(cl.clEnqueueNDRangeKernel(work.queue, reverse, 1, nullptr, &all, &group, 0, nullptr,
                                   nullptr) == CL_SUCCESS);
  const std::vector<int> now = work.read();
  EXPECT(now[0] == 42 + 7 && now[7] == 42 && now[8] == 42 + 15);
  EXPECT(cl.clReleaseKernel(reverse) == CL_SUCCESS);
  cl_kernel both[2] = {};
  EXPECT(cl.clCreateKernelsInProgram(work.program, 2, both, &count) == CL_SUCCESS && count == 2);
  for (cl_kernel kernel : both) EXPECT(cl.clReleaseKernel(kernel) == CL_SUCCESS);
}

void large_copies() {
  Work work(0, 5'000'000);  // 20 MB
  work.run();
  work.expect_added(1);
  std::vector<int> other(work.values.size(), 7);
  const size_t bytes = other.size() * sizeof(int);
  cl_event event = nullptr;
  EXPECT(cl.clEnqueueWriteBuffer(work.queue, work.buffer, CL_FALSE, 0, bytes, other.data(), 0,
                                 nullptr, nullptr) == CL_SUCCESS);
  std::vector<int> back(other.size());
  EXPECT(cl.clEnqueueReadBuffer(work.queue, work.buffer, CL_FALSE, 0, bytes, back.data(), 0,
                                nullptr, &event) == CL_SUCCESS);
  EXPECT(cl.clWaitForEvents(1, &event) == CL_SUCCESS);
  EXPECT(back == other);
  EXPECT(cl.clReleaseEvent(event) == CL_SUCCESS);
}

// A thread reads while another one gives the same queue work. Each read is of one moment: no kernel
// that comes later is seen in a part of it.
void large_reads_beside_work() {
  Work work(0, 2'000'000);  // 8 MB
  std::atomic<bool> over{false};
  std::thread other([&] {
    for (int i = 0; i < 200 && !over; ++i) {
      work.run();
      EXPECT(cl.clFlush(work.queue) == CL_SUCCESS);
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  });
  for (int i = 0; i < 20; ++i) {
    const std::vector<int> now = work.read();
    size_t wrong = 0;
    for (size_t j = 0; j < now.size(); ++j) wrong += now[j] - work.values[j] != now[0];
    EXPECT(wrong == 0);
  }
  over = true;
  other.join();
}

// More data than a server holds for a queue that waits. Another queue goes on meanwhile.
void copies_that_wait() {
  Work work(0, 5'000'000), other(0, 2'000'000);  // 20 MB, 8 MB
  cl_int error = CL_SUCCESS;
  cl_event gate = cl.clCreateUserEvent(g_context, &error);
  std::vector<int> values(work.values.size());
  for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<int>(3 * i);
  const size_t bytes = values.size() * sizeof(int);
  EXPECT(cl.clEnqueueWriteBuffer(work.queue, work.buffer, CL_FALSE, 0, bytes, values.data(), 1,
                                 &gate, nullptr) == CL_SUCCESS);
  std::vector<int> back(values.size());
  EXPECT(cl.clEnqueueReadBuffer(work.queue, work.buffer, CL_FALSE, 0, bytes, back.data(), 0,
                                nullptr, nullptr) == CL_SUCCESS);
  EXPECT(cl.clEnqueueWriteBuffer(other.queue, other.buffer, CL_TRUE, 0,
                                 other.values.size() * sizeof(int), other.values.data(), 0, nullptr,
                                 nullptr) == CL_SUCCESS);
  other.run();
  other.expect_added(1);
  EXPECT(cl.clSetUserEventStatus(gate, CL_COMPLETE) == CL_SUCCESS);
  EXPECT(cl.clFinish(work.queue) == CL_SUCCESS);
  EXPECT(back == values);
  EXPECT(cl.clReleaseEvent(gate) == CL_SUCCESS);
}

void copies_on_the_device() {
  Work work;
  std::vector<int> nothing(work.values.size());
  cl_mem other = buffer_of(nothing);
  const size_t bytes = work.values.size() * sizeof(int);
  const int pattern = 9;
  EXPECT(cl.clEnqueueFillBuffer(work.queue, other, &pattern, sizeof pattern, 0, bytes, 0, nullptr,
                                nullptr) == CL_SUCCESS);
  EXPECT(cl.clEnqueueCopyBuffer(work.queue, work.buffer, other, 0, bytes / 2, bytes / 2, 0, nullptr,
                                nullptr) == CL_SUCCESS);
  EXPECT(cl.clEnqueueCopyBuffer(work.queue, other, other, 0, 4, 8, 0, nullptr, nullptr) ==
         CL_MEM_COPY_OVERLAP);
  std::vector<int> now(work.values.size());
  EXPECT(cl.clEnqueueReadBuffer(work.queue, other, CL_TRUE, 0, bytes, now.data(), 0, nullptr,
                                nullptr) == CL_SUCCESS);
  EXPECT(now[0] == 9 && now[511] == 9 && now[512] == 0 && now[1023] == 511);
  EXPECT(cl.clEnqueueMigrateMemObjects(work.queue, 1, &other, 0, 0, nullptr, nullptr) ==
         CL_SUCCESS);
  EXPECT(cl.clFinish(work.queue) == CL_SUCCESS);
  EXPECT(cl.clReleaseMemObject(other) == CL_SUCCESS);
}

// The buffer is seen as rows of 32 numbers.
void rectangles() {
  Work work;
  const size_t row = 32 * sizeof(int), origin[3] = {4 * sizeof(int), 2, 0}, zero[3] = {0, 0, 0};
  const size_t region[3] = {8 * sizeof(int), 4, 1};
  for (const cl_bool blocking : {CL_TRUE, CL_FALSE}) {
    std::vector<int> wide(16 * 4, -1);
    EXPECT(cl.clEnqueueReadBufferRect(work.queue, work.buffer, blocking, origin, zero, region, row,
                                      0, 16 * sizeof(int), 0, wide.data(), 0, nullptr,
                                      nullptr) == CL_SUCCESS);
    EXPECT(cl.clFinish(work.queue) == CL_SUCCESS);
    EXPECT(wide[0] == 68 && wide[7] == 75 && wide[8] == -1 && wide[16] == 100 && wide[63] == -1);
  }
  std::vector<int> tight(8 * 4, 5);
  EXPECT(cl.clEnqueueWriteBufferRect(work.queue, work.buffer, CL_TRUE, origin, zero, region, row, 0,
                                     0, 0, tight.data(), 0, nullptr, nullptr) == CL_SUCCESS);
  const std::vector<int> now = work.read();
  EXPECT(now[67] == 67 && now[68] == 5 && now[75] == 5 && now[76] == 76 && now[100] == 5);
}

void mappings() {
  Work work;
  cl_int error = CL_SUCCESS;
  auto* mapped = static_cast<int*>(
      cl.clEnqueueMapBuffer(work.queue, work.buffer, CL_TRUE, CL_MAP_READ | CL_MAP_WRITE,
                            16 * sizeof(int), 16 * sizeof(int), 0, nullptr, nullptr, &error));
  EXPECT(error == CL_SUCCESS && mapped != nullptr && mapped[0] == 16 && mapped[15] == 31);
  mapped[3] = 1000;
  cl_uint count = 0;
  EXPECT(cl.clGetMemObjectInfo(work.buffer, CL_MEM_MAP_COUNT, sizeof count, &count, nullptr) ==
         CL_SUCCESS);
  EXPECT(count == 1);
  EXPECT(cl.clEnqueueUnmapMemObject(work.queue, work.buffer, mapped, 0, nullptr, nullptr) ==
         CL_SUCCESS);
  EXPECT(work.read()[19] == 1000);
  // The program's own memory behind a buffer.
  std::vector<int> mine(256, 3);
  cl_mem buffer = cl.clCreateBuffer(g_context, CL_MEM_READ_WRITE | CL_MEM_USE_HOST_PTR,
                                    mine.size() * sizeof(int), mine.data(), &error);
  EXPECT(error == CL_SUCCESS);
  EXPECT(cl.clSetKernelArg(work.add, 0, sizeof buffer, &buffer) == CL_SUCCESS);
  const size_t all = mine.size();
  EXPECT(cl.clEnqueueNDRangeKernel(work.queue, work.add, 1, nullptr, &all, nullptr, 0, nullptr,
                                   nullptr) == CL_SUCCESS);
  void* at = cl.clEnqueueMapBuffer(work.queue, buffer, CL_TRUE, CL_MAP_READ, 0, all * sizeof(int),
                                   0, nullptr, nullptr, &error);
  EXPECT(at == mine.data() && mine[0] == 4 && mine[255] == 4);
  EXPECT(cl.clEnqueueUnmapMemObject(work.queue, buffer, at, 0, nullptr, nullptr) == CL_SUCCESS);
  EXPECT(cl.clFinish(work.queue) == CL_SUCCESS);
  EXPECT(cl.clReleaseMemObject(buffer) == CL_SUCCESS);
}

void sub_buffers() {
  Work work;
  cl_int error = CL_SUCCESS;
  const cl_buffer_region half = {512 * sizeof(int), 512 * sizeof(int)};
  cl_mem part = cl.clCreateSubBuffer(work.buffer, 0, CL_BUFFER_CREATE_TYPE_REGION, &half, &error);
  EXPECT(error == CL_SUCCESS);
  EXPECT(cl.clSetKernelArg(work.add, 0, sizeof part, &part) == CL_SUCCESS);
  const size_t all = 512;
  EXPECT(cl.clEnqueueNDRangeKernel(work.queue, work.add, 1, nullptr, &all, nullptr, 0, nullptr,
                                   nullptr) == CL_SUCCESS);
  const std::vector<int> now = work.read();
  EXPECT(now[511] == 511 && now[512] == 513 && now[1023] == 1024);
  cl_mem whole = nullptr;
  EXPECT(cl.clGetMemObjectInfo(part, CL_MEM_ASSOCIATED_MEMOBJECT, sizeof whole, &whole, nullptr) ==
         CL_SUCCESS);
  EXPECT(whole == work.buffer);
  EXPECT(cl.clReleaseMemObject(part) == CL_SUCCESS);
  // The host may write the whole and not read it, and so it is with a part.
  cl_mem written =
      cl.clCreateBuffer(g_context, CL_MEM_HOST_WRITE_ONLY, 2 * half.size, nullptr, &error);
  EXPECT(cl.clCreateSubBuffer(written, CL_MEM_HOST_READ_ONLY, CL_BUFFER_CREATE_TYPE_REGION, &half,
                              &error) == nullptr);
  EXPECT(error == CL_INVALID_VALUE);
  part = cl.clCreateSubBuffer(written, 0, CL_BUFFER_CREATE_TYPE_REGION, &half, &error);
  for (const cl_bool blocking : {CL_TRUE, CL_FALSE}) {
    auto* at = static_cast<int*>(cl.clEnqueueMapBuffer(work.queue, part, blocking, CL_MAP_WRITE, 0,
                                                       half.size, 0, nullptr, nullptr, &error));
    EXPECT(error == CL_SUCCESS && cl.clFinish(work.queue) == CL_SUCCESS);
    if (at == nullptr) continue;
    at[7] = 70 + static_cast<int>(blocking);
    EXPECT(cl.clEnqueueUnmapMemObject(work.queue, part, at, 0, nullptr, nullptr) == CL_SUCCESS);
    EXPECT(cl.clEnqueueCopyBuffer(work.queue, part, work.buffer, 0, 0, half.size, 0, nullptr,
                                  nullptr) == CL_SUCCESS);
    EXPECT(work.read()[7] == 70 + static_cast<int>(blocking));
  }
  int value = 0;
  EXPECT(cl.clEnqueueReadBuffer(work.queue, part, CL_TRUE, 0, 4, &value, 0, nullptr, nullptr) ==
         CL_INVALID_OPERATION);
  EXPECT(cl.clReleaseMemObject(part) == CL_SUCCESS);
  EXPECT(cl.clReleaseMemObject(written) == CL_SUCCESS);
}

cl_int status_of(cl_event event) {
  cl_int status = CL_QUEUED;
  EXPECT(cl.clGetEventInfo(event, CL_EVENT_COMMAND_EXECUTION_STATUS, sizeof status, &status,
                           nullptr) == CL_SUCCESS);
  return status;
}

void events() {
  Work work(CL_QUEUE_PROFILING_ENABLE);
  cl_event first = nullptr, second = nullptr;
  work.run({}, &first);
  work.run({first}, &second);
  EXPECT(cl.clWaitForEvents(1, &second) == CL_SUCCESS);
  EXPECT(status_of(first) == CL_COMPLETE && status_of(second) == CL_COMPLETE);
  cl_command_type command = 0;
  EXPECT(cl.clGetEventInfo(first, CL_EVENT_COMMAND_TYPE, sizeof command, &command, nullptr) ==
         CL_SUCCESS);
  EXPECT(command == CL_COMMAND_NDRANGE_KERNEL);
  cl_ulong began = 0, ended = 0;
  EXPECT(cl.clGetEventProfilingInfo(first, CL_PROFILING_COMMAND_START, sizeof began, &began,
                                    nullptr) == CL_SUCCESS);
  EXPECT(cl.clGetEventProfilingInfo(first, CL_PROFILING_COMMAND_END, sizeof ended, &ended,
                                    nullptr) == CL_SUCCESS);
  EXPECT(began != 0 && began <= ended);
  work.expect_added(2);
  for (cl_event event : {first, second}) EXPECT(cl.clReleaseEvent(event) == CL_SUCCESS);
}

// A queue that waits for the program, while the program goes on.
void user_events() {
  Work work(CL_QUEUE_OUT_OF_ORDER_EXEC_MODE_ENABLE);
  cl_int error = CL_SUCCESS;
  cl_event gate = cl.clCreateUserEvent(g_context, &error), done = nullptr, read = nullptr;
  EXPECT(error == CL_SUCCESS && status_of(gate) == CL_SUBMITTED);
  work.run({gate}, &done);
  std::vector<int> now(work.values.size());
  EXPECT(cl.clEnqueueReadBuffer(work.queue, work.buffer, CL_FALSE, 0, now.size() * sizeof(int),
                                now.data(), 1, &done, &read) == CL_SUCCESS);
  EXPECT(cl.clFlush(work.queue) == CL_SUCCESS);
  EXPECT(status_of(done) > CL_COMPLETE && status_of(read) > CL_COMPLETE);
  std::thread waiter([&] { EXPECT(cl.clWaitForEvents(1, &read) == CL_SUCCESS); });
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  EXPECT(cl.clSetUserEventStatus(gate, CL_COMPLETE) == CL_SUCCESS);
  waiter.join();
  EXPECT(now[0] == 1 && now[1023] == 1024);
  EXPECT(cl.clSetUserEventStatus(gate, CL_COMPLETE) == CL_INVALID_OPERATION);
  EXPECT(cl.clFinish(work.queue) == CL_SUCCESS);
  for (cl_event event : {gate, done, read}) EXPECT(cl.clReleaseEvent(event) == CL_SUCCESS);
}

std::atomic<int> g_called{0};
void called(cl_event, cl_int status, void* data) {
  EXPECT(status == CL_COMPLETE);
  g_called += *static_cast<int*>(data);
}
void gone(cl_mem, void* data) { g_called += *static_cast<int*>(data); }

void callbacks() {
  static int by = 5;
  {
    Work work;
    cl_event event = nullptr;
    work.run({}, &event);
    EXPECT(cl.clSetEventCallback(event, CL_COMPLETE, &called, &by) == CL_SUCCESS);
    EXPECT(cl.clSetMemObjectDestructorCallback(work.buffer, &gone, &by) == CL_SUCCESS);
    EXPECT(cl.clFinish(work.queue) == CL_SUCCESS);
    EXPECT(cl.clReleaseEvent(event) == CL_SUCCESS);
  }
  for (int i = 0; i < 500 && g_called != 10; ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  EXPECT(g_called == 10);
}

void programs() {
  // The log of what does not compile.
  const char* bad = "kernel void f(global int* a) { a[0] = nonsense; }";
  cl_int error = CL_SUCCESS;
  cl_program program = cl.clCreateProgramWithSource(g_context, 1, &bad, nullptr, &error);
  EXPECT(cl.clBuildProgram(program, 1, &g_device, "", nullptr, nullptr) ==
         CL_BUILD_PROGRAM_FAILURE);
  char log[65536] = {};
  EXPECT(cl.clGetProgramBuildInfo(program, g_device, CL_PROGRAM_BUILD_LOG, sizeof log, log,
                                  nullptr) == CL_SUCCESS);
  EXPECT(strstr(log, "nonsense") != nullptr);
  EXPECT(cl.clReleaseProgram(program) == CL_SUCCESS);
  // A binary, and a program from it.
  program = built(kSource);
  size_t bytes = 0;
  EXPECT(cl.clGetProgramInfo(program, CL_PROGRAM_BINARY_SIZES, sizeof bytes, &bytes, nullptr) ==
         CL_SUCCESS);
  std::vector<unsigned char> binary(bytes);
  unsigned char* into = binary.data();
  EXPECT(cl.clGetProgramInfo(program, CL_PROGRAM_BINARIES, sizeof into, &into, nullptr) ==
         CL_SUCCESS);
  EXPECT(cl.clReleaseProgram(program) == CL_SUCCESS);
  const unsigned char* from = binary.data();
  cl_int status = CL_SUCCESS;
  program = cl.clCreateProgramWithBinary(g_context, 1, &g_device, &bytes, &from, &status, &error);
  EXPECT(error == CL_SUCCESS && status == CL_SUCCESS);
  EXPECT(cl.clBuildProgram(program, 1, &g_device, "", nullptr, nullptr) == CL_SUCCESS);
  cl_kernel kernel = kernel_of(program, "add");
  EXPECT(cl.clReleaseKernel(kernel) == CL_SUCCESS);
  EXPECT(cl.clReleaseProgram(program) == CL_SUCCESS);
  // Compiled apart, with a header, and linked.
  const char* header = "int twice(int x);\n";
  const char* one = "#include \"twice.h\"\nkernel void f(global int* a) { a[0] = twice(a[0]); }\n";
  const char* two = "int twice(int x) { return 2 * x; }\n";
  const char* name = "twice.h";
  cl_program parts[3];
  const char* texts[3] = {header, one, two};
  for (int i = 0; i < 3; ++i)
    parts[i] = cl.clCreateProgramWithSource(g_context, 1, &texts[i], nullptr, &error);
  EXPECT(cl.clCompileProgram(parts[1], 1, &g_device, "", 1, &parts[0], &name, nullptr, nullptr) ==
         CL_SUCCESS);
  EXPECT(cl.clCompileProgram(parts[2], 1, &g_device, "", 0, nullptr, nullptr, nullptr, nullptr) ==
         CL_SUCCESS);
  program = cl.clLinkProgram(g_context, 1, &g_device, "", 2, parts + 1, nullptr, nullptr, &error);
  EXPECT(error == CL_SUCCESS && program != nullptr);
  for (cl_program part : parts) EXPECT(cl.clReleaseProgram(part) == CL_SUCCESS);
  EXPECT(cl.clReleaseProgram(program) == CL_SUCCESS);
}

// A program whose kernel has run and is released can be built again.
void builds_again() {
  cl_command_queue queue = queue_with(0);
  const char* text = "kernel void set(global int* a) { a[get_global_id(0)] = VALUE; }";
  cl_int error = CL_SUCCESS;
  cl_program program = cl.clCreateProgramWithSource(g_context, 1, &text, nullptr, &error);
  std::vector<int> values(4096);
  cl_mem buffer = buffer_of(values);
  for (int i = 0; i < 40; ++i) {
    const std::string option = "-D VALUE=" + std::to_string(i % 2);
    EXPECT(cl.clBuildProgram(program, 1, &g_device, option.c_str(), nullptr, nullptr) ==
           CL_SUCCESS);
    cl_kernel kernel = kernel_of(program, "set");
    EXPECT(cl.clSetKernelArg(kernel, 0, sizeof buffer, &buffer) == CL_SUCCESS);
    const size_t count = values.size();
    EXPECT(cl.clEnqueueNDRangeKernel(queue, kernel, 1, nullptr, &count, nullptr, 0, nullptr,
                                     nullptr) == CL_SUCCESS);
    EXPECT(cl.clFinish(queue) == CL_SUCCESS);
    EXPECT(cl.clReleaseKernel(kernel) == CL_SUCCESS);
  }
  EXPECT(cl.clEnqueueReadBuffer(queue, buffer, CL_TRUE, 0, sizeof(int), values.data(), 0, nullptr,
                                nullptr) == CL_SUCCESS);
  EXPECT(values[0] == 1);
  EXPECT(cl.clReleaseMemObject(buffer) == CL_SUCCESS);
  EXPECT(cl.clReleaseProgram(program) == CL_SUCCESS);
  EXPECT(cl.clReleaseCommandQueue(queue) == CL_SUCCESS);
}

void errors() {
  Work work;
  const size_t all = work.values.size(), bytes = all * sizeof(int);
  int value = 0;
  EXPECT(cl.clSetKernelArg(work.add, 7, sizeof value, &value) == CL_INVALID_ARG_INDEX);
  cl_kernel fresh = kernel_of(work.program, "add");
  EXPECT(cl.clEnqueueNDRangeKernel(work.queue, fresh, 1, nullptr, &all, nullptr, 0, nullptr,
                                   nullptr) == CL_INVALID_KERNEL_ARGS);
  EXPECT(cl.clEnqueueNDRangeKernel(work.queue, work.add, 4, nullptr, &all, nullptr, 0, nullptr,
                                   nullptr) == CL_INVALID_WORK_DIMENSION);
  EXPECT(cl.clReleaseKernel(fresh) == CL_SUCCESS);
  // Work without items is none. Versions before 2.1 refuse it.
  const size_t none[2] = {1, 0};
  EXPECT(cl.clEnqueueNDRangeKernel(work.queue, work.add, 1, nullptr, nullptr, nullptr, 0, nullptr,
                                   nullptr) == CL_SUCCESS);
  EXPECT(cl.clEnqueueNDRangeKernel(work.queue, work.add, 2, nullptr, none, nullptr, 0, nullptr,
                                   nullptr) == CL_SUCCESS);
  // Groups that the device, or the kernel, does not have. What was refused has no event.
  const size_t uneven = 1000, eight = 8, four = 4;
  for (int i = 0; i < 2; ++i) {
    cl_event event = nullptr;
    EXPECT(cl.clEnqueueNDRangeKernel(work.queue, work.add, 1, nullptr, &all, &uneven, 0, nullptr,
                                     &event) == CL_INVALID_WORK_GROUP_SIZE);
    EXPECT(event == nullptr);
    EXPECT(cl.clEnqueueMarkerWithWaitList(work.queue, 0, nullptr, &event) == CL_SUCCESS);
    EXPECT(cl.clWaitForEvents(1, &event) == CL_SUCCESS);
    EXPECT(cl.clReleaseEvent(event) == CL_SUCCESS);
  }
  cl_program program = built(
      "kernel __attribute__((reqd_work_group_size(8, 1, 1))) void in_eights(global int* a) "
      "{ a[get_global_id(0)] += get_local_id(0); }");
  cl_kernel in_eights = kernel_of(program, "in_eights");
  EXPECT(cl.clSetKernelArg(in_eights, 0, sizeof work.buffer, &work.buffer) == CL_SUCCESS);
  for (int i = 0; i < 3; ++i) {
    EXPECT(cl.clEnqueueNDRangeKernel(work.queue, in_eights, 1, nullptr, &all, &eight, 0, nullptr,
                                     nullptr) == CL_SUCCESS);
    EXPECT(cl.clEnqueueNDRangeKernel(work.queue, in_eights, 1, nullptr, &all, &four, 0, nullptr,
                                     nullptr) == CL_INVALID_WORK_GROUP_SIZE);
  }
  EXPECT(work.read()[7] == 7 + 3 * 7);  // and what was refused has not run
  EXPECT(cl.clFinish(work.queue) == CL_SUCCESS);
  EXPECT(cl.clReleaseKernel(in_eights) == CL_SUCCESS);
  EXPECT(cl.clReleaseProgram(program) == CL_SUCCESS);
  EXPECT(cl.clEnqueueReadBuffer(work.queue, work.buffer, CL_TRUE, 4, bytes, &value, 0, nullptr,
                                nullptr) == CL_INVALID_VALUE);
  EXPECT(cl.clEnqueueReadBuffer(work.queue, nullptr, CL_TRUE, 0, 4, &value, 0, nullptr, nullptr) ==
         CL_INVALID_MEM_OBJECT);
  EXPECT(cl.clEnqueueMarkerWithWaitList(work.queue, 1, nullptr, nullptr) ==
         CL_INVALID_EVENT_WAIT_LIST);
  cl_int error = CL_SUCCESS;
  EXPECT(cl.clCreateKernel(work.program, "nobody", &error) == nullptr);
  EXPECT(error == CL_INVALID_KERNEL_NAME);
  EXPECT(cl.clCreateBuffer(g_context, CL_MEM_READ_WRITE, 0, nullptr, &error) == nullptr);
  EXPECT(error == CL_INVALID_BUFFER_SIZE);
  EXPECT(cl.clWaitForEvents(0, nullptr) == CL_INVALID_VALUE);
}

// Threads of one program, each with a queue of its own.
void threads() {
  std::vector<std::thread> all;
  cl_program program = built(kSource);
  for (int number = 0; number < 4; ++number) {
    all.emplace_back([program] {
      cl_command_queue queue = queue_with(0);
      cl_kernel kernel = kernel_of(program, "add");
      std::vector<int> values(64);
      cl_mem buffer = buffer_of(values);
      const size_t count = values.size();
      const int one = 1;
      for (int round = 0; round < 50; ++round) {
        EXPECT(cl.clSetKernelArg(kernel, 0, sizeof buffer, &buffer) == CL_SUCCESS);
        EXPECT(cl.clSetKernelArg(kernel, 1, sizeof one, &one) == CL_SUCCESS);
        EXPECT(cl.clEnqueueNDRangeKernel(queue, kernel, 1, nullptr, &count, nullptr, 0, nullptr,
                                         nullptr) == CL_SUCCESS);
      }
      EXPECT(cl.clEnqueueReadBuffer(queue, buffer, CL_TRUE, 0, count * sizeof(int), values.data(),
                                    0, nullptr, nullptr) == CL_SUCCESS);
      EXPECT(values[0] == 50 && values[63] == 50);
      EXPECT(cl.clReleaseMemObject(buffer) == CL_SUCCESS);
      EXPECT(cl.clReleaseKernel(kernel) == CL_SUCCESS);
      EXPECT(cl.clReleaseCommandQueue(queue) == CL_SUCCESS);
    });
  }
  for (std::thread& thread : all) thread.join();
  EXPECT(cl.clReleaseProgram(program) == CL_SUCCESS);
}

// Kernels of a few milliseconds for a minute. Each second it says how many.
void work() {
  cl_command_queue queue = queue_with(0);
  cl_program program = built(R"(
    kernel void turn(global uint* values, uint rounds) {
      uint value = values[get_global_id(0)];
      for (uint i = 0; i < rounds; ++i) value = value * 1664525u + 1013904223u;
      values[get_global_id(0)] = value;
    })");
  cl_kernel kernel = kernel_of(program, "turn");
  std::vector<int> values(64);
  cl_mem buffer = buffer_of(values);
  const cl_uint rounds = 100'000;
  const size_t all = values.size();
  EXPECT(cl.clSetKernelArg(kernel, 0, sizeof buffer, &buffer) == CL_SUCCESS);
  EXPECT(cl.clSetKernelArg(kernel, 1, sizeof rounds, &rounds) == CL_SUCCESS);
  using Clock = std::chrono::steady_clock;
  Clock::time_point since = Clock::now();
  for (int seconds = 0, done = 0; seconds < 60 && g_failures == 0;) {
    EXPECT(cl.clEnqueueNDRangeKernel(queue, kernel, 1, nullptr, &all, nullptr, 0, nullptr,
                                     nullptr) == CL_SUCCESS);
    EXPECT(cl.clFinish(queue) == CL_SUCCESS);
    ++done;
    if (Clock::now() - since < std::chrono::seconds(1)) continue;
    printf("%d kernels\n", done);
    fflush(stdout);
    since += std::chrono::seconds(1);
    done = 0;
    ++seconds;
  }
}

// On a slice of 64 MiB.
void memory() {
  cl_ulong bytes = 0;
  EXPECT(cl.clGetDeviceInfo(g_device, CL_DEVICE_GLOBAL_MEM_SIZE, sizeof bytes, &bytes, nullptr) ==
         CL_SUCCESS);
  printf("%llu bytes in all\n", static_cast<unsigned long long>(bytes));
  cl_int error = CL_SUCCESS;
  const size_t most = 48u << 20, more = 32u << 20;
  for (int round = 0; round < 2; ++round) {
    cl_mem buffer = cl.clCreateBuffer(g_context, CL_MEM_READ_WRITE, most, nullptr, &error);
    EXPECT(error == CL_SUCCESS);
    EXPECT(cl.clCreateBuffer(g_context, CL_MEM_READ_WRITE, more, nullptr, &error) == nullptr);
    EXPECT(error == CL_MEM_OBJECT_ALLOCATION_FAILURE);
    EXPECT(cl.clReleaseMemObject(buffer) == CL_SUCCESS);
  }
}

// Fills the slice to its last MiB and stays until it is ended.
void filled_memory() {
  constexpr size_t kPiece = 1u << 20;
  cl_int error = CL_SUCCESS;
  size_t count = 0;
  while (cl.clCreateBuffer(g_context, CL_MEM_READ_WRITE, kPiece, nullptr, &error) != nullptr)
    ++count;
  EXPECT(error == CL_MEM_OBJECT_ALLOCATION_FAILURE);
  printf("%zu pieces\n", count);
  fflush(stdout);
  while (g_failures == 0) pause();
}

// Many commands, each with arguments, and one wait. The driver does not say what the arguments are.
void many_commands() {
  Work work;
  std::vector<int> other(16, 5);
  cl_mem small = buffer_of(other);
  const int pattern = 9;
  for (int i = 0; i < 2000; ++i) {
    EXPECT(cl.clSetKernelArg(work.add, 0, sizeof work.buffer, &work.buffer) == CL_SUCCESS);
    work.adding(i % 2);
    work.run();
    EXPECT(cl.clEnqueueWriteBuffer(work.queue, small, CL_FALSE, 0, 64, other.data(), 0, nullptr,
                                   nullptr) == CL_SUCCESS);
    EXPECT(cl.clEnqueueFillBuffer(work.queue, small, &pattern, 4, 0, 32, 0, nullptr, nullptr) ==
           CL_SUCCESS);
    EXPECT(cl.clEnqueueCopyBuffer(work.queue, small, small, 0, 32, 32, 0, nullptr, nullptr) ==
           CL_SUCCESS);
  }
  EXPECT(cl.clFinish(work.queue) == CL_SUCCESS);
  work.expect_added(1000);
  EXPECT(cl.clReleaseMemObject(small) == CL_SUCCESS);
  // What was a handle is none any more.
  EXPECT(cl.clSetKernelArg(work.add, 0, sizeof small, &small) == CL_INVALID_ARG_VALUE);
}

// A function of the program cannot run on another machine, and devices say so.
void refused() {
  cl_device_exec_capabilities abilities = 0;
  EXPECT(cl.clGetDeviceInfo(g_device, CL_DEVICE_EXECUTION_CAPABILITIES, sizeof abilities,
                            &abilities, nullptr) == CL_SUCCESS);
  EXPECT(abilities == CL_EXEC_KERNEL);
  cl_command_queue queue = queue_with(0);
  const auto function = [](void*) { g_called = 1000; };
  EXPECT(cl.clEnqueueNativeKernel(queue, function, nullptr, 0, 0, nullptr, nullptr, 0, nullptr,
                                  nullptr) == CL_INVALID_OPERATION);
  EXPECT(cl.clFinish(queue) == CL_SUCCESS && g_called == 0);
  EXPECT(cl.clReleaseCommandQueue(queue) == CL_SUCCESS);
  cl_bool unified = CL_TRUE;
  EXPECT(cl.clGetDeviceInfo(g_device, CL_DEVICE_HOST_UNIFIED_MEMORY, sizeof unified, &unified,
                            nullptr) == CL_SUCCESS);
  EXPECT(unified == CL_FALSE);
}

// Devices say that they have no queues of their own, and nobody gets one.
void queues_on_the_device() {
  cl_uint most = 1;
  cl_device_device_enqueue_capabilities abilities = 1;
  EXPECT(cl.clGetDeviceInfo(g_device, CL_DEVICE_MAX_ON_DEVICE_QUEUES, sizeof most, &most,
                            nullptr) == CL_SUCCESS);
  EXPECT(cl.clGetDeviceInfo(g_device, CL_DEVICE_DEVICE_ENQUEUE_CAPABILITIES, sizeof abilities,
                            &abilities, nullptr) == CL_SUCCESS);
  EXPECT(most == 0 && abilities == 0);
  std::vector<cl_name_version> features(256);
  size_t bytes = 0;
  EXPECT(cl.clGetDeviceInfo(g_device, CL_DEVICE_OPENCL_C_FEATURES,
                            features.size() * sizeof features[0], features.data(),
                            &bytes) == CL_SUCCESS);
  features.resize(bytes / sizeof features[0]);
  for (const cl_name_version& each : features)
    EXPECT(strcmp(each.name, "__opencl_c_device_enqueue") != 0);
  const cl_queue_properties wanted[] = {
      CL_QUEUE_PROPERTIES, CL_QUEUE_ON_DEVICE | CL_QUEUE_OUT_OF_ORDER_EXEC_MODE_ENABLE, 0};
  cl_int error = CL_SUCCESS;
  EXPECT(cl.clCreateCommandQueueWithProperties(g_context, g_device, wanted, &error) == nullptr);
  EXPECT(error == CL_INVALID_QUEUE_PROPERTIES);
  cl_command_queue queue = queue_with(0);
  EXPECT(cl.clSetDefaultDeviceCommandQueue(g_context, g_device, queue) == CL_INVALID_OPERATION);
  EXPECT(cl.clReleaseCommandQueue(queue) == CL_SUCCESS);
}

// Servers with one driver are one platform. A context may have devices of one of them only.
void two_servers() {
  cl_uint count = 0;
  EXPECT(cl.clGetPlatformIDs(0, nullptr, &count) == CL_SUCCESS && count == 1);
  cl_device_id devices[2] = {};
  EXPECT(cl.clGetDeviceIDs(g_platform, CL_DEVICE_TYPE_ALL, 2, devices, &count) == CL_SUCCESS);
  EXPECT(count == 2);
  cl_int error = CL_SUCCESS;
  cl_context first = g_context;
  for (cl_device_id device : devices) {
    g_device = device;
    g_context = cl.clCreateContext(nullptr, 1, &device, nullptr, nullptr, &error);
    EXPECT(error == CL_SUCCESS);
    kernels();
    EXPECT(cl.clReleaseContext(g_context) == CL_SUCCESS);
  }
  g_context = first;
}

// A function that PoCL natively ends the program for. Here it is a barrier.
void old_wait() {
  Work work(CL_QUEUE_OUT_OF_ORDER_EXEC_MODE_ENABLE);
  cl_event ran = nullptr;
  work.run({}, &ran);
  EXPECT(cl.clEnqueueWaitForEvents(work.queue, 1, &ran) == CL_SUCCESS);
  work.expect_added(1);
  EXPECT(cl.clReleaseEvent(ran) == CL_SUCCESS);
}

// What a kernel prints is there when the program has waited for it.
void printing() {
  cl_command_queue queue = queue_with(0);
  cl_program program =
      built("kernel void say(int what) { printf(\"the kernel says %d\\n\", what); }");
  cl_kernel say = kernel_of(program, "say");
  const size_t one = 1;
  for (int number = 1; number <= 3; ++number) {
    EXPECT(cl.clSetKernelArg(say, 0, sizeof number, &number) == CL_SUCCESS);
    EXPECT(cl.clEnqueueNDRangeKernel(queue, say, 1, nullptr, &one, nullptr, 0, nullptr, nullptr) ==
           CL_SUCCESS);
    EXPECT(cl.clFinish(queue) == CL_SUCCESS);
    printf("the program has waited for %d\n", number);
    fflush(stdout);
  }
  EXPECT(cl.clReleaseKernel(say) == CL_SUCCESS);
  EXPECT(cl.clReleaseProgram(program) == CL_SUCCESS);
  EXPECT(cl.clReleaseCommandQueue(queue) == CL_SUCCESS);
}

// Old and new markers and barriers, each with what it waits for.
void markers() {
  for (const cl_command_queue_properties order :
       {cl_command_queue_properties{0},
        cl_command_queue_properties{CL_QUEUE_OUT_OF_ORDER_EXEC_MODE_ENABLE}}) {
    Work work(order);
    cl_int error = CL_SUCCESS;
    cl_event gate = cl.clCreateUserEvent(g_context, &error), ran = nullptr, all[3] = {};
    work.run({gate}, &ran);
    EXPECT(cl.clEnqueueMarkerWithWaitList(work.queue, 1, &ran, &all[0]) == CL_SUCCESS);
    EXPECT(cl.clEnqueueBarrierWithWaitList(work.queue, 0, nullptr, &all[1]) == CL_SUCCESS);
    work.adding(10);
    work.run();
    EXPECT(cl.clEnqueueMarker(work.queue, &all[2]) == CL_SUCCESS);
    EXPECT(cl.clFlush(work.queue) == CL_SUCCESS);
    EXPECT(status_of(all[0]) > CL_COMPLETE && status_of(all[1]) > CL_COMPLETE);
    EXPECT(status_of(all[2]) > CL_COMPLETE);
    EXPECT(cl.clSetUserEventStatus(gate, CL_COMPLETE) == CL_SUCCESS);
    EXPECT(cl.clWaitForEvents(3, all) == CL_SUCCESS);
    EXPECT(cl.clEnqueueBarrier(work.queue) == CL_SUCCESS);
    work.expect_added(11);
    for (cl_event each : {gate, ran, all[0], all[1], all[2]})
      EXPECT(cl.clReleaseEvent(each) == CL_SUCCESS);
  }
}

struct Part {
  const char* name;
  void (*run)();
  bool only_named = false;  // it is about Tendril, or about the slice that the test took
};
constexpr Part kParts[] = {{"information", &information},
                           {"kernels", &kernels},
                           {"large_copies", &large_copies},
                           {"large_reads_beside_work", &large_reads_beside_work},
                           {"copies_that_wait", &copies_that_wait},
                           {"copies_on_the_device", &copies_on_the_device},
                           {"rectangles", &rectangles},
                           {"mappings", &mappings},
                           {"sub_buffers", &sub_buffers},
                           {"events", &events},
                           {"user_events", &user_events},
                           {"callbacks", &callbacks},
                           {"programs", &programs},
                           {"builds_again", &builds_again},
                           {"includes", &includes},
                           {"errors", &errors},
                           {"threads", &threads},
                           {"markers", &markers},
                           {"sub_devices", &sub_devices},
                           {"shared_memory", &shared_memory},
                           {"pipes", &pipes},
                           {"images", &images},
                           {"image_information", &image_information},
                           {"image_kernels", &image_kernels},
                           {"image_copies", &image_copies},
                           {"image_mappings", &image_mappings},
                           {"image_of_a_buffer", &image_of_a_buffer},
                           {"shared_refusals", &shared_refusals, true},
                           {"old_wait", &old_wait, true},
                           {"printing", &printing, true},
                           {"work", &work, true},
                           {"memory", &memory, true},
                           {"filled_memory", &filled_memory, true},
                           {"refused", &refused, true},
                           {"many_commands", &many_commands, true},
                           {"queues_on_the_device", &queues_on_the_device, true},
                           {"two_servers", &two_servers, true}};

}  // namespace

int main(int argc, char** argv) {
  constexpr cl_uint kDevicesMax = 16;
  cl_device_id devices[kDevicesMax] = {};
  cl_uint count = 0;
  if (!cl.open() || cl.clGetPlatformIDs(1, &g_platform, &count) != CL_SUCCESS || count == 0 ||
      cl.clGetDeviceIDs(g_platform, CL_DEVICE_TYPE_ALL, kDevicesMax, devices, &count) !=
          CL_SUCCESS) {
    printf("no OpenCL device\n");
    return 2;
  }
  // One device and a context of its own, or the last of all devices in a context that has them all.
  const bool all = getenv("ALL_DEVICES") != nullptr;
  if (!all) count = 1;
  g_device = devices[count - 1];
  cl_int error = CL_SUCCESS;
  g_context = cl.clCreateContext(nullptr, count, devices, nullptr, nullptr, &error);
  EXPECT(error == CL_SUCCESS);
  for (const Part& part : kParts) {
    if (argc > 1 ? strcmp(argv[1], part.name) != 0 : part.only_named) continue;
    const int before = g_failures;
    part.run();
    if (g_failures != before) printf("in %s\n", part.name);
  }
  EXPECT(cl.clReleaseContext(g_context) == CL_SUCCESS);
  printf("%d failures\n", g_failures);
  return g_failures == 0 ? 0 : 1;
}
