// SPDX-License-Identifier: Apache-2.0
// Handlers of the capture lines of api/cuda/stream.spec.
#include <cstring>

#include "api/cuda_handlers.gen.h"
#include "worker/cuda/executor/scope.h"

namespace tendril::worker::cuda {
namespace {

const CUgraphEdgeData* edges_of(Scope& s, const wire::Bytes& bytes, size_t count) {
  if (bytes.count == 0) return nullptr;
  if (bytes.count != count * sizeof(CUgraphEdgeData)) s.fail(CUDA_ERROR_INVALID_VALUE);
  return reinterpret_cast<const CUgraphEdgeData*>(bytes.data);
}

// What streams have been given cannot be marked once they capture.
void before(Executor& w) { w.gate().mark_everything(); }

CUresult begun(Executor& w, CUresult result) {
  if (result == CUDA_SUCCESS) w.streams().capture_begins();
  return result;
}

}  // namespace

CUresult handle(Executor& w, const wire::cuda::capture_begin_request& m,
                wire::cuda::capture_begin_reply&) {
  Scope s(w);
  CUstream stream = s.stream(m.stream);
  if (!s.ok()) return s.error();
  before(w);
  return begun(w, w.driver().cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
}

CUresult handle(Executor& w, const wire::cuda::capture_begin_to_graph_request& m,
                wire::cuda::capture_begin_to_graph_reply&) {
  Scope s(w);
  CUstream stream = s.stream(m.stream);
  CUgraph graph = s.get<CUgraph>(Kind::kGraph, m.graph);
  CUgraphNode* nodes = s.handles<CUgraphNode>(Kind::kNode, m.dependencies);
  const CUgraphEdgeData* edges = edges_of(s, m.edges, m.dependencies.count);
  if (!s.ok()) return s.error();
  before(w);
  return begun(
      w, w.driver().cuStreamBeginCaptureToGraph(stream, graph, nodes, edges, m.dependencies.count,
                                                CU_STREAM_CAPTURE_MODE_RELAXED));
}

CUresult handle(Executor& w, const wire::cuda::capture_end_request& m,
                wire::cuda::capture_end_reply&) {
  Scope s(w);
  CUstream stream = s.stream(m.stream);
  if (!s.ok()) return s.error();
  w.streams().capture_ends();
  CUgraph graph = nullptr;
  const CUresult result = w.driver().cuStreamEndCapture(stream, &graph);
  if (result != CUDA_SUCCESS || graph == nullptr)
    return result != CUDA_SUCCESS ? result : CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
  if (w.objects().find(Kind::kGraph, m.graph) != nullptr)
    return CUDA_SUCCESS;  // captured into a graph of the program's
  if (w.objects().bind(Kind::kGraph, m.graph, graph)) return CUDA_SUCCESS;
  w.driver().cuGraphDestroy(graph);
  return CUDA_ERROR_INVALID_HANDLE;
}

CUresult handle(Executor& w, const wire::cuda::capture_info_request& m,
                wire::cuda::capture_info_reply& r) {
  Scope s(w);
  CUstream stream = s.stream(m.stream);
  if (!s.ok()) return s.error();
  CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
  cuuint64_t id = 0;
  CUgraph graph = nullptr;
  const CUgraphNode* nodes = nullptr;
  const CUgraphEdgeData* edges = nullptr;
  size_t count = 0;
  const CUresult result =
      w.driver().cuStreamGetCaptureInfo_v3(stream, &status, &id, &graph, &nodes, &edges, &count);
  if (result != CUDA_SUCCESS) return result;
  r.status = static_cast<uint32_t>(status);
  r.id = id;
  r.graph = s.id(Kind::kGraph, graph);
  r.dependencies = s.ids(Kind::kNode, nodes, count);
  if (edges != nullptr) r.edges = {reinterpret_cast<const uint8_t*>(edges), count * sizeof *edges};
  return s.ok() ? CUDA_SUCCESS : s.error();
}

CUresult handle(Executor& w, const wire::cuda::capture_update_request& m,
                wire::cuda::capture_update_reply&) {
  Scope s(w);
  CUstream stream = s.stream(m.stream);
  CUgraphNode* nodes = s.handles<CUgraphNode>(Kind::kNode, m.dependencies);
  const CUgraphEdgeData* edges = edges_of(s, m.edges, m.dependencies.count);
  if (!s.ok()) return s.error();
  if (edges != nullptr)
    return w.driver().cuStreamUpdateCaptureDependencies_v2(stream, nodes, edges,
                                                           m.dependencies.count, m.flags);
  return w.driver().cuStreamUpdateCaptureDependencies(stream, nodes, m.dependencies.count, m.flags);
}

}  // namespace tendril::worker::cuda
