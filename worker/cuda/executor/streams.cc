// SPDX-License-Identifier: Apache-2.0
// See streams.h.
#include "worker/cuda/executor/streams.h"

#include <algorithm>

namespace tendril::worker::cuda {

uint64_t edges_in(gpu::Driver& driver, CUgraph graph) {
  size_t count = 0;
  const CUresult result = driver.cuGraphGetEdges_v2(graph, nullptr, nullptr, nullptr, &count);
  return result == CUDA_SUCCESS ? count : 0;
}

uint64_t graph_size(gpu::Driver& driver, CUgraph graph) {
  size_t nodes = 0;
  if (driver.cuGraphGetNodes(graph, nullptr, &nodes) != CUDA_SUCCESS) return 0;
  const uint64_t edges = edges_in(driver, graph);
  return nodes + (edges > nodes ? (edges - nodes) / kEdgesOfObject : 0);
}

// A stream may belong to a context other than the call's.
void Streams::note_touched(WorkerContext* current, CUstream stream) {
  current->touched_last = stream;
  const auto holds = [stream](const WorkerContext& context) {
    return std::find(context.touched.begin(), context.touched.end(), stream) !=
           context.touched.end();
  };
  if (holds(*current)) return;
  CUcontext owner = nullptr;
  if (driver_->cuStreamGetCtx(stream, &owner) != CUDA_SUCCESS) {
    current->untold = true;
    return;
  }
  contexts_->for_each([&](WorkerContext& context) {
    if (context.context != owner) return;
    if (&context != current) current->touched_last = nullptr;
    if (!holds(context)) context.touched.push_back(stream);
  });
}

void Streams::forget(CUstream stream) {
  contexts_->for_each([stream](WorkerContext& context) {
    const auto found = std::find(context.touched.begin(), context.touched.end(), stream);
    if (found == context.touched.end()) return;
    context.touched.erase(found);
    context.touched_last = nullptr;
    context.untold = true;
  });
}

void Streams::capture_begins(CUstream stream, CUgraph graph, const void* context) {
  capture_ends(stream);
  captures_.push_back({stream, graph, context});
}

bool Streams::capture_ends(CUstream stream) {
  const auto of_stream = [stream](const Capture& one) { return one.stream == stream; };
  return std::erase_if(captures_, of_stream) != 0;
}

bool Streams::captures_end_with(const void* context) {
  const auto of_context = [context](const Capture& one) { return one.context == context; };
  return std::erase_if(captures_, of_context) != 0;
}

bool Streams::captures_into(CUgraph graph) const {
  return std::any_of(captures_.begin(), captures_.end(),
                     [graph](const Capture& one) { return one.graph == graph; });
}

uint64_t Streams::nodes_captured() {
  uint64_t sum = 0;
  for (const Capture& one : captures_) {
    CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
    CUgraph graph = nullptr;
    if (driver_->cuStreamGetCaptureInfo_v3(one.stream, &status, nullptr, &graph, nullptr, nullptr,
                                           nullptr) == CUDA_SUCCESS &&
        graph != nullptr)
      sum += graph_size(*driver_, graph);
  }
  return sum;
}

bool Streams::captures_into_clients(CUstream stream) const {
  return std::any_of(captures_.begin(), captures_.end(), [stream](const Capture& one) {
    return one.stream == stream && one.graph != nullptr;
  });
}

std::vector<CUgraph> Streams::graphs_in_capture() const {
  std::vector<CUgraph> graphs;
  for (const Capture& one : captures_) {
    if (one.graph != nullptr) graphs.push_back(one.graph);
  }
  return graphs;
}

bool Streams::ask_whether_captures(CUstream stream) {
  CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
  return driver_->cuStreamIsCapturing(stream, &status) != CUDA_SUCCESS ||
         status != CU_STREAM_CAPTURE_STATUS_NONE;
}

// One event behind the last copy is enough, because each copy comes after the earlier ones. Nothing
// has been given to another stream since the copy. So the event ties no streams together that the
// copy did not tie.
CUresult Streams::mark_copied(WorkerContext* context) {
  if (context->copied == nullptr) {
    const CUresult result = driver_->cuEventCreate(&context->copied, CU_EVENT_DISABLE_TIMING);
    if (result != CUDA_SUCCESS) return result;
  }
  return driver_->cuEventRecord(context->copied, nullptr);
}

CUresult Streams::begin_apart(CUstream stream) {
  some_apart_ = true;
  const WorkerContext* context = contexts_->current();
  if (context == nullptr || context->copied == nullptr) return CUDA_SUCCESS;
  return driver_->cuStreamWaitEvent(stream, context->copied, 0);
}

}  // namespace tendril::worker::cuda
