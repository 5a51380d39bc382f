// SPDX-License-Identifier: Apache-2.0
// What the programs of these tests share. They find every function of OpenCL in the machine's
// loader, so they need no header and no library of the machine when they are built.
#pragma once

#include <vector>

#include "api/opencl_abi.gen.h"

struct OpenCl {
#define TENDRIL_MEMBER(symbol, result, arguments, names) symbol##_t* symbol = nullptr;
  TENDRIL_OPENCL_FUNCTIONS(TENDRIL_MEMBER)
#undef TENDRIL_MEMBER

  // False: the machine has no loader.
  bool open();
};

// What each program has, and how it says what came back wrong.
extern OpenCl cl;
extern cl_device_id g_device;
extern cl_context g_context;
extern int g_failures;

void expect(bool holds, const char* what, const char* file, int line);
#define EXPECT(condition) expect((condition), #condition, __FILE__, __LINE__)

cl_command_queue queue_with(cl_command_queue_properties wanted, cl_device_id device = g_device);
// Built for these devices.
cl_program built(const char* source, const std::vector<cl_device_id>& devices = {g_device});
cl_kernel kernel_of(cl_program program, const char* name);
