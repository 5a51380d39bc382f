// SPDX-License-Identifier: Apache-2.0
// Parts of a device, shared virtual memory and pipes, for the tests' OpenCL program.
#include <string.h>

#include <atomic>
#include <chrono>
#include <thread>

#include "tests/opencl/program.h"

namespace {

// A list whose links are addresses that the host and the device both follow.
constexpr char kSource[] = R"(
struct node { global struct node* next; int value; };
kernel void double_all(global struct node* first) {
  for (global struct node* at = first; at != 0; at = at->next) at->value *= 2;
}
)";
struct Node {
  Node* next;
  int value;
};

std::atomic<int> g_freed{0};
void free_them(cl_command_queue, cl_uint count, void** pointers, void*) {
  for (cl_uint i = 0; i < count; ++i) cl.clSVMFree(g_context, pointers[i]);
  g_freed += static_cast<int>(count);
}

}  // namespace

// The device as two parts, if it has two processors. Work on one of them.
void sub_devices() {
  cl_uint units = 0, count = 0;
  EXPECT(cl.clGetDeviceInfo(g_device, CL_DEVICE_MAX_COMPUTE_UNITS, sizeof units, &units, nullptr) ==
         CL_SUCCESS);
  if (units < 2) return;
  const cl_device_partition_property counts[] = {CL_DEVICE_PARTITION_BY_COUNTS, 1, 1,
                                                 CL_DEVICE_PARTITION_BY_COUNTS_LIST_END, 0};
  cl_device_id parts[2] = {};
  EXPECT(cl.clCreateSubDevices(g_device, counts, 0, nullptr, &count) == CL_SUCCESS && count == 2);
  EXPECT(cl.clCreateSubDevices(g_device, counts, 2, parts, nullptr) == CL_SUCCESS);
  cl_device_id parent = nullptr;
  EXPECT(cl.clGetDeviceInfo(parts[1], CL_DEVICE_PARENT_DEVICE, sizeof parent, &parent, nullptr) ==
         CL_SUCCESS);
  EXPECT(parent == g_device);
  EXPECT(cl.clGetDeviceInfo(parts[1], CL_DEVICE_MAX_COMPUTE_UNITS, sizeof units, &units, nullptr) ==
         CL_SUCCESS);
  EXPECT(units == 1);
  const cl_device_partition_property nonsense[] = {CL_DEVICE_PARTITION_EQUALLY, 1000, 0};
  EXPECT(cl.clCreateSubDevices(g_device, nonsense, 0, nullptr, &count) != CL_SUCCESS);
  cl_int error = CL_SUCCESS;
  cl_context whole = g_context;
  cl_device_id whole_device = g_device;
  g_context = cl.clCreateContext(nullptr, 2, parts, nullptr, nullptr, &error);
  g_device = parts[1];
  EXPECT(error == CL_SUCCESS);
  {
    cl_command_queue queue = queue_with(0);
    std::vector<int> values(16, 5);
    cl_mem buffer = buffer_of(values);
    cl_program program = built("kernel void more(global int* all) { all[get_global_id(0)] += 1; }");
    cl_kernel kernel = kernel_of(program, "more");
    const size_t all = values.size();
    EXPECT(cl.clSetKernelArg(kernel, 0, sizeof buffer, &buffer) == CL_SUCCESS);
    EXPECT(cl.clEnqueueNDRangeKernel(queue, kernel, 1, nullptr, &all, nullptr, 0, nullptr,
                                     nullptr) == CL_SUCCESS);
    EXPECT(cl.clEnqueueReadBuffer(queue, buffer, CL_TRUE, 0, all * sizeof(int), values.data(), 0,
                                  nullptr, nullptr) == CL_SUCCESS);
    EXPECT(values[0] == 6 && values[15] == 6);
    EXPECT(cl.clReleaseKernel(kernel) == CL_SUCCESS);
    EXPECT(cl.clReleaseProgram(program) == CL_SUCCESS);
    EXPECT(cl.clReleaseMemObject(buffer) == CL_SUCCESS);
    EXPECT(cl.clReleaseCommandQueue(queue) == CL_SUCCESS);
  }
  EXPECT(cl.clReleaseContext(g_context) == CL_SUCCESS);
  for (cl_device_id part : parts) EXPECT(cl.clReleaseDevice(part) == CL_SUCCESS);
  g_context = whole;
  g_device = whole_device;
}

namespace {
// A buffer in shared memory, whose 50th node has the value 100.
void expect_buffer_in(cl_command_queue queue, Node* nodes, size_t bytes) {
  cl_int error = CL_SUCCESS;
  EXPECT(cl.clCreateBuffer(g_context, CL_MEM_READ_WRITE | CL_MEM_USE_HOST_PTR, 2 * bytes, nodes,
                           &error) == nullptr);
  EXPECT(error == CL_INVALID_BUFFER_SIZE);
  cl_mem buffer =
      cl.clCreateBuffer(g_context, CL_MEM_READ_WRITE | CL_MEM_USE_HOST_PTR, bytes, nodes, &error);
  EXPECT(error == CL_SUCCESS);
  int value = 0;
  EXPECT(cl.clEnqueueReadBuffer(queue, buffer, CL_TRUE, 50 * sizeof(Node) + sizeof(Node*),
                                sizeof value, &value, 0, nullptr, nullptr) == CL_SUCCESS);
  EXPECT(value == 100);
  EXPECT(cl.clReleaseMemObject(buffer) == CL_SUCCESS);
}

}  // namespace

void shared_memory() {
  cl_device_svm_capabilities abilities = 0;
  EXPECT(cl.clGetDeviceInfo(g_device, CL_DEVICE_SVM_CAPABILITIES, sizeof abilities, &abilities,
                            nullptr) == CL_SUCCESS);
  if ((abilities & CL_DEVICE_SVM_COARSE_GRAIN_BUFFER) == 0) return;
  cl_command_queue queue = queue_with(0);
  constexpr size_t kCount = 100, kBytes = kCount * sizeof(Node);
  auto* nodes = static_cast<Node*>(cl.clSVMAlloc(g_context, CL_MEM_READ_WRITE, kBytes, 0));
  auto* more = static_cast<Node*>(cl.clSVMAlloc(g_context, CL_MEM_READ_WRITE, kBytes, 0));
  EXPECT(nodes != nullptr && more != nullptr);
  if (nodes == nullptr || more == nullptr) return;
  EXPECT(cl.clEnqueueSVMMap(queue, CL_TRUE, CL_MAP_WRITE_INVALIDATE_REGION, nodes, kBytes, 0,
                            nullptr, nullptr) == CL_SUCCESS);
  EXPECT(cl.clEnqueueSVMMap(queue, CL_TRUE, CL_MAP_WRITE, more, kBytes, 0, nullptr, nullptr) ==
         CL_SUCCESS);
  for (size_t i = 0; i < kCount; ++i) {
    nodes[i] = {&more[i], static_cast<int>(i)};
    more[i] = {i + 1 < kCount ? &nodes[i + 1] : nullptr, 1000};
  }
  EXPECT(cl.clEnqueueSVMUnmap(queue, nodes, 0, nullptr, nullptr) == CL_SUCCESS);
  EXPECT(cl.clEnqueueSVMUnmap(queue, more, 0, nullptr, nullptr) == CL_SUCCESS);
  cl_program program = built(kSource);
  cl_kernel kernel = kernel_of(program, "double_all");
  const void* others[] = {more};
  const size_t one = 1;
  EXPECT(cl.clSetKernelArgSVMPointer(kernel, 0, nodes) == CL_SUCCESS);
  EXPECT(cl.clSetKernelExecInfo(kernel, CL_KERNEL_EXEC_INFO_SVM_PTRS, sizeof others, others) ==
         CL_SUCCESS);
  EXPECT(cl.clEnqueueNDRangeKernel(queue, kernel, 1, nullptr, &one, nullptr, 0, nullptr, nullptr) ==
         CL_SUCCESS);
  EXPECT(cl.clEnqueueSVMMap(queue, CL_TRUE, CL_MAP_READ, nodes, kBytes, 0, nullptr, nullptr) ==
         CL_SUCCESS);
  EXPECT(nodes[99].value == 198 && nodes[0].next == more);
  EXPECT(cl.clEnqueueSVMUnmap(queue, nodes, 0, nullptr, nullptr) == CL_SUCCESS);
  EXPECT(cl.clSetKernelExecInfo(kernel, CL_KERNEL_EXEC_INFO_SVM_PTRS, 0, nullptr) == CL_SUCCESS);
  // Copies on the device, to the host and from it; a fill.
  std::vector<Node> host(kCount);
  const int pattern = 3;
  EXPECT(cl.clEnqueueSVMMemcpy(queue, CL_TRUE, host.data(), more, kBytes, 0, nullptr, nullptr) ==
         CL_SUCCESS);
  EXPECT(host[7].value == 2000 && host[7].next == &nodes[8]);
  EXPECT(cl.clEnqueueSVMMemcpy(queue, CL_FALSE, more, nodes, kBytes, 0, nullptr, nullptr) ==
         CL_SUCCESS);
  EXPECT(cl.clEnqueueSVMMemFill(queue, more, &pattern, sizeof pattern, 64, 0, nullptr, nullptr) ==
         CL_SUCCESS);
  EXPECT(cl.clEnqueueSVMMemcpy(queue, CL_TRUE, host.data(), more, kBytes, 0, nullptr, nullptr) ==
         CL_SUCCESS);
  EXPECT(host[0].value == 3 && host[50].value == 100);
  expect_buffer_in(queue, more, kBytes);
  void* both[] = {more};
  EXPECT(cl.clEnqueueSVMFree(queue, 1, both, &free_them, nullptr, 0, nullptr, nullptr) ==
         CL_SUCCESS);
  both[0] = nodes;
  EXPECT(cl.clEnqueueSVMFree(queue, 1, both, nullptr, nullptr, 0, nullptr, nullptr) == CL_SUCCESS);
  EXPECT(cl.clFinish(queue) == CL_SUCCESS);
  for (int i = 0; i < 500 && g_freed == 0; ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  EXPECT(g_freed == 1);
  EXPECT(cl.clReleaseKernel(kernel) == CL_SUCCESS);
  EXPECT(cl.clReleaseProgram(program) == CL_SUCCESS);
  EXPECT(cl.clReleaseCommandQueue(queue) == CL_SUCCESS);
}

// Two machines have no memory of fine grain, and devices say so.
void shared_refusals() {
  cl_device_svm_capabilities abilities = 0;
  EXPECT(cl.clGetDeviceInfo(g_device, CL_DEVICE_SVM_CAPABILITIES, sizeof abilities, &abilities,
                            nullptr) == CL_SUCCESS);
  EXPECT((abilities & ~cl_bitfield{CL_DEVICE_SVM_COARSE_GRAIN_BUFFER}) == 0);
  EXPECT(cl.clSVMAlloc(g_context, CL_MEM_READ_WRITE | CL_MEM_SVM_FINE_GRAIN_BUFFER, 64, 0) ==
         nullptr);
  cl_command_queue queue = queue_with(0);
  int mine = 0;
  EXPECT(cl.clEnqueueSVMMap(queue, CL_TRUE, CL_MAP_READ, &mine, sizeof mine, 0, nullptr, nullptr) ==
         CL_INVALID_VALUE);
  cl_program program = built(kSource);
  cl_kernel kernel = kernel_of(program, "double_all");
  EXPECT(cl.clSetKernelArgSVMPointer(kernel, 0, &mine) == CL_INVALID_ARG_VALUE);
  EXPECT(cl.clReleaseKernel(kernel) == CL_SUCCESS);
  EXPECT(cl.clReleaseProgram(program) == CL_SUCCESS);
  EXPECT(cl.clReleaseCommandQueue(queue) == CL_SUCCESS);
}

// A device that has pipes makes them, and one that has none says so.
void pipes() {
  cl_bool has = CL_FALSE;
  if (cl.clGetDeviceInfo(g_device, CL_DEVICE_PIPE_SUPPORT, sizeof has, &has, nullptr) != CL_SUCCESS)
    has = CL_FALSE;
  cl_int error = CL_SUCCESS;
  cl_mem pipe = cl.clCreatePipe(g_context, CL_MEM_READ_WRITE, 4, 64, nullptr, &error);
  EXPECT((error == CL_SUCCESS) == (has == CL_TRUE));
  EXPECT((pipe != nullptr) == (has == CL_TRUE));
  if (pipe != nullptr) EXPECT(cl.clReleaseMemObject(pipe) == CL_SUCCESS);
}
