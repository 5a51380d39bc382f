// SPDX-License-Identifier: Apache-2.0
// CUDA as one of the APIs that a worker serves. The only name of worker/cuda that worker/process
// knows (process/apis.cc).
#pragma once

#include "worker/core/api.h"

namespace tendril::worker::cuda {

Api api();

}  // namespace tendril::worker::cuda
