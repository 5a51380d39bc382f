// SPDX-License-Identifier: Apache-2.0
// Work: what a call asks the device to do, as a value. A call builds one and passes it to
// `submit_work`, which queues it or, on a stream under capture, makes it a graph node. Graphs
// replay the same values. `run` executes on a pool thread and may block.
#pragma once

#include <array>
#include <functional>
#include <memory>
#include <vector>

#include "api/cuda_abi.gen.h"
#include "softgpu/driver/device/context.h"
#include "softgpu/driver/stream/stream.h"

namespace tendril::softgpu {

struct Work {
  virtual ~Work() = default;
  virtual CUgraphNodeType type() const = 0;
  // Executes. An error becomes the sticky error of the context.
  virtual CUresult run(Context& context) = 0;
  virtual std::shared_ptr<Work> clone() const = 0;
};
using WorkPtr = std::shared_ptr<Work>;

struct SubmitOptions {
  bool wait = false;       // the caller waits for completion
  bool inline_ok = false;  // may run on the calling thread
  bool allow_capture = true;
  // Work that touches several contexts: it waits for what is pending in these, and their later work
  // waits for it. By the rule of the legacy stream, or for every stream.
  std::vector<ContextPtr> contexts;
  bool every_stream = false;
};

CUresult submit_work(CUstream stream, WorkPtr work, const SubmitOptions& options = {});
CUresult submit_work(const StreamPtr& stream, const ContextPtr& context, WorkPtr work,
                     const SubmitOptions& options = {});

// Runs work on a context unless that has failed already. Records the failure.
void run_work(Context& context, Work& work);

struct EmptyWork : Work {
  CUgraphNodeType type() const override { return CU_GRAPH_NODE_TYPE_EMPTY; }
  CUresult run(Context&) override { return CUDA_SUCCESS; }
  WorkPtr clone() const override { return std::make_shared<EmptyWork>(*this); }
};

struct HostWork : Work {
  CUDA_HOST_NODE_PARAMS params = {};
  CUgraphNodeType type() const override { return CU_GRAPH_NODE_TYPE_HOST; }
  CUresult run(Context&) override;
  WorkPtr clone() const override { return std::make_shared<HostWork>(*this); }
};

struct RecordWork : Work {
  EventPtr event;
  CUgraphNodeType type() const override { return CU_GRAPH_NODE_TYPE_EVENT_RECORD; }
  CUresult run(Context&) override;
  WorkPtr clone() const override { return std::make_shared<RecordWork>(*this); }
};

struct WaitWork : Work {
  EventPtr event;
  CUgraphNodeType type() const override { return CU_GRAPH_NODE_TYPE_WAIT_EVENT; }
  CUresult run(Context&) override;
  WorkPtr clone() const override { return std::make_shared<WaitWork>(*this); }
};

struct MemOpWork : Work {
  std::vector<CUstreamBatchMemOpParams> ops;
  unsigned flags = 0;
  CUgraphNodeType type() const override { return CU_GRAPH_NODE_TYPE_BATCH_MEM_OP; }
  CUresult run(Context& context) override;
  WorkPtr clone() const override { return std::make_shared<MemOpWork>(*this); }
};

struct MemsetWork : Work {
  CUDA_MEMSET_NODE_PARAMS params = {};
  CUgraphNodeType type() const override { return CU_GRAPH_NODE_TYPE_MEMSET; }
  CUresult run(Context& context) override;
  WorkPtr clone() const override { return std::make_shared<MemsetWork>(*this); }
};

// Any callable. Capture records it as a host node.
struct CallWork : Work {
  std::function<CUresult(Context&)> call;
  CUgraphNodeType type() const override { return CU_GRAPH_NODE_TYPE_EMPTY; }
  CUresult run(Context& context) override { return call(context); }
  WorkPtr clone() const override { return std::make_shared<CallWork>(*this); }
};

}  // namespace tendril::softgpu
