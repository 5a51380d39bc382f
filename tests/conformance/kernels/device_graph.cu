// SPDX-License-Identifier: Apache-2.0
// Kernels that launch graphs. As in conditional.cu, the function comes from the device runtime. On
// a real driver this module does not load, and its tests are skipped.
#include "tests/conformance/kernels/device.h"

extern "C" __device__ int cudaGraphLaunch(uint64 graph, uint64 stream);

KERNEL launch_graph(uint64 graph, uint64 stream, uint32* result) {
  *result = (uint32)cudaGraphLaunch(graph, stream);
}
