// SPDX-License-Identifier: Apache-2.0
// See opencl.h.
#include "tests/opencl/opencl.h"

#include <dlfcn.h>
#include <stdio.h>

OpenCl cl;
cl_device_id g_device = nullptr;
cl_context g_context = nullptr;
int g_failures = 0;

void expect(bool holds, const char* what, const char* file, int line) {
  if (holds) return;
  printf("%s, line %d: not true: %s\n", file, line, what);
  ++g_failures;
}

cl_command_queue queue_with(cl_command_queue_properties wanted, cl_device_id device) {
  const cl_queue_properties properties[] = {CL_QUEUE_PROPERTIES, wanted, 0};
  cl_int error = CL_SUCCESS;
  cl_command_queue queue =
      cl.clCreateCommandQueueWithProperties(g_context, device, properties, &error);
  EXPECT(error == CL_SUCCESS);
  return queue;
}

cl_program built(const char* source, const std::vector<cl_device_id>& devices) {
  cl_int error = CL_SUCCESS;
  cl_program program = cl.clCreateProgramWithSource(g_context, 1, &source, nullptr, &error);
  EXPECT(error == CL_SUCCESS);
  EXPECT(cl.clBuildProgram(program, static_cast<cl_uint>(devices.size()), devices.data(), "",
                           nullptr, nullptr) == CL_SUCCESS);
  return program;
}

cl_kernel kernel_of(cl_program program, const char* name) {
  cl_int error = CL_SUCCESS;
  cl_kernel kernel = cl.clCreateKernel(program, name, &error);
  EXPECT(error == CL_SUCCESS);
  return kernel;
}

bool OpenCl::open() {
  void* library = dlopen("libOpenCL.so.1", RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) return false;
#define TENDRIL_BIND(symbol, result, arguments, names) \
  symbol = reinterpret_cast<symbol##_t*>(dlsym(library, #symbol));
  TENDRIL_OPENCL_FUNCTIONS(TENDRIL_BIND)
#undef TENDRIL_BIND
  return true;
}
