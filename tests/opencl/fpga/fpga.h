// SPDX-License-Identifier: Apache-2.0
// What tests may ask of the tests' FPGA besides OpenCL.
#pragma once

// Ends user events that nobody has set, waits for all commands, and mends a fault.
extern "C" __attribute__((visibility("default"))) void fpga_end_all();
