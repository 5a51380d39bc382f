// SPDX-License-Identifier: Apache-2.0
// See apis.h.
#include "worker/process/apis.h"

#include "worker/cuda/worker.h"
#include "worker/opencl/worker.h"

namespace tendril::worker {

std::vector<Api> served_apis() { return {cuda::api(), opencl::api()}; }

}  // namespace tendril::worker
