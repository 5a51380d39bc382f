// SPDX-License-Identifier: Apache-2.0
// A driver whose GPU is always done, for `tendril serve --driver`. Launching, copying and waiting
// return at once and do nothing. All other calls go to the software GPU's library behind it. So the
// waiting time over this driver (`tendril-bench waits`) is due to Tendril and the line. The
// additional time over a real driver is due to that driver. It computes nothing, so never test with
// it.

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
