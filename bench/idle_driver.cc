// SPDX-License-Identifier: Apache-2.0
// A driver whose GPU is always done. Launching, copying and waiting return at once and do nothing.
// All other calls go to the software GPU's library behind it. What a program waits for over this
// driver (`tendril-bench waits`) is Tendril and the line; what it waits for in addition over a real
// driver is the driver. For `tendril serve --driver`. It computes nothing, so never test with it.

// Only the names matter: callers clean up what they pass, and nothing of it is read.
#define TENDRIL_DONE(name) \
  extern "C" __attribute__((visibility("default"))) int name() { return 0; }

TENDRIL_DONE(cuLaunchKernel)
TENDRIL_DONE(cuLaunchKernelEx)
TENDRIL_DONE(cuMemcpyAsync)
TENDRIL_DONE(cuMemcpyHtoDAsync_v2)
TENDRIL_DONE(cuMemcpyDtoHAsync_v2)
TENDRIL_DONE(cuEventRecord)
TENDRIL_DONE(cuEventQuery)
TENDRIL_DONE(cuEventSynchronize)
TENDRIL_DONE(cuStreamQuery)
TENDRIL_DONE(cuStreamSynchronize)
TENDRIL_DONE(cuCtxSynchronize)
