// SPDX-License-Identifier: Apache-2.0
// Kernels that fail on purpose, and kernels that print. Only cases in a child process use them.
#include "tests/conformance/kernels/device.h"

KERNEL write_at(uint32* address, uint32 value) { *(volatile uint32*)address = value; }
KERNEL read_at(const uint32* address, uint32* out) { *out = *(const volatile uint32*)address; }
KERNEL fault_trap() { __builtin_trap(); }
KERNEL fault_assert(uint32 limit) {
  if (tid_x() >= limit) __assertfail("tid_x() < limit", "faults.cu", 11, "fault_assert", 1);
}
KERNEL healthy(uint32* out) { out[tid_x()] = tid_x() + 1; }

KERNEL print_hello(uint32 number) { printf("hello from the device, number %u\n", number); }
KERNEL print_formats(double d, long long l, const char*) {
  printf("int %d unsigned %u hex %x char %c string %s percent %%\n", -42, 42u, 0xbeefu, 'z',
         "text");
  printf("long %lld double %.3f wide [%6d] left [%-6d]\n", l, d, 17, 17);
}
KERNEL print_threads() { printf("thread %u of block %u\n", tid_x(), ctaid_x()); }
