// SPDX-License-Identifier: Apache-2.0
// The driver's objects by CUDA's kinds of handles. Executor thread.
#pragma once

#include "api/cuda_kinds.gen.h"
#include "worker/core/objects.h"

namespace tendril::worker::cuda {

using api::cuda::Kind;

class Objects : public ObjectTables<Kind> {
 public:
  Objects() : ObjectTables(api::cuda::kKinds) {}
};

}  // namespace tendril::worker::cuda
