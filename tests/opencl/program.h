// SPDX-License-Identifier: Apache-2.0
// What the parts of the tests' OpenCL program have in common (program.cc): what they make on the
// device. A part says what came back wrong, with its line.
#pragma once

#include <vector>

#include "tests/opencl/opencl.h"

extern cl_platform_id g_platform;

cl_mem buffer_of(std::vector<int>& values);

// devices.cc
void sub_devices();
void shared_memory();
void shared_refusals();
void pipes();

// images.cc
void includes();
void images();
void image_information();
void image_kernels();
void image_copies();
void image_mappings();
void image_of_a_buffer();
