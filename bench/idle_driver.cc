// SPDX-License-Identifier: Apache-2.0
// A driver whose GPU is always done: launching, copying and waiting return at once and do nothing;
// all else is the software GPU's, whose library this one is put in front of. What a program waits
// for over it (`tendril-bench waits`) is what Tendril and the line take, and what it takes longer
// over a real driver is the driver's. For `tendril serve --driver`; it computes nothing, so never
// for a test.

// The names alone matter: callers clean up what they pass, and nothing of it is looked at.
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
