// SPDX-License-Identifier: Apache-2.0
// Copies between host memory, device memory and arrays, all as one three-dimensional shape. They
// are checked at the call and executed on a pool thread. If the caller waits and nothing is in the
// way, they are executed at once.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "softgpu/driver/stream/work.h"

namespace tendril::softgpu {

struct Array;

struct CopyWork : Work {
  CUDA_MEMCPY3D params = {};
  std::shared_ptr<Array> source_array, target_array;
  std::shared_ptr<std::vector<uint8_t>> staged;  // snapshot of a pageable source
  CUresult execute() const;
  CUgraphNodeType type() const override { return CU_GRAPH_NODE_TYPE_MEMCPY; }
  CUresult run(Context& context) override;
  WorkPtr clone() const override { return std::make_shared<CopyWork>(*this); }
};

// Checks the shape and all that it touches. Then `out` is ready to submit.
CUresult make_copy(const CUDA_MEMCPY3D& params, std::shared_ptr<CopyWork>* out);
CUDA_MEMCPY3D flat_copy(CUmemorytype to, uint64_t target, CUmemorytype from, uint64_t source,
                        size_t bytes);
// Submits with the waiting rules of the API: pageable memory makes an asynchronous copy partly
// synchronous. In the legacy stream a copy between contexts is ordered against the legacy streams
// of all of them. The contexts are the owners of the memory and `named` (null is allowed). A
// synchronous copy with named contexts is ordered against everything in them, as cuMemcpyPeer says.
CUresult submit_copy(CUstream stream, const CUDA_MEMCPY3D& params, bool synchronous,
                     std::vector<ContextPtr> named = {});

}  // namespace tendril::softgpu
