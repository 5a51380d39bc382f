// SPDX-License-Identifier: Apache-2.0
// Handlers of the capture lines of api/cuda/stream.spec.
#include <cstring>

#include "api/cuda_handlers.gen.h"
#include "worker/cuda/executor/scope.h"
#include "worker/cuda/graphs.h"
#include "worker/cuda/memory/graph_sizes.h"

namespace tendril::worker::cuda {
namespace {

const CUgraphEdgeData* edges_of(Scope& scope, const wire::Bytes& bytes, size_t count) {
  if (bytes.count == 0) return nullptr;
  if (bytes.count != count * sizeof(CUgraphEdgeData)) scope.fail(CUDA_ERROR_INVALID_VALUE);
  return reinterpret_cast<const CUgraphEdgeData*>(bytes.data);
}

// Marks the work that streams have now. Once a stream captures, that is impossible.
void before(Executor& executor) { executor.gate().mark_everything(); }

// `id`: of the stream. A default stream has no owner, and is the current context's.
CUresult begun(Executor& executor, CUresult result, CUstream stream, uint64_t id, CUgraph graph) {
  if (result != CUDA_SUCCESS) return result;
  const void* context = executor.objects().owner(id);
  if (context == nullptr && executor.context() != nullptr) context = executor.context()->context;
  executor.streams().capture_begins(stream, graph, context);
  return CUDA_SUCCESS;
}

}  // namespace

CUresult handle(Executor& executor, const wire::cuda::capture_begin_request& request,
                wire::cuda::capture_begin_reply&) {
  Scope scope(executor);
  CUstream stream = scope.stream(request.stream);
  if (!scope.ok()) return scope.error();
  before(executor);
  return begun(executor,
               executor.driver().cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_RELAXED),
               stream, request.stream, nullptr);
}

CUresult handle(Executor& executor, const wire::cuda::capture_begin_to_graph_request& request,
                wire::cuda::capture_begin_to_graph_reply&) {
  Scope scope(executor);
  CUstream stream = scope.stream(request.stream);
  CUgraph graph = scope.get<CUgraph>(Kind::kGraph, request.graph);
  CUgraphNode* nodes = scope.handles<CUgraphNode>(Kind::kNode, request.dependencies);
  const CUgraphEdgeData* edges = edges_of(scope, request.edges, request.dependencies.count);
  if (!scope.ok()) return scope.error();
  before(executor);
  return begun(
      executor,
      executor.driver().cuStreamBeginCaptureToGraph(
          stream, graph, nodes, edges, request.dependencies.count, CU_STREAM_CAPTURE_MODE_RELAXED),
      stream, request.stream, graph);
}

CUresult handle(Executor& executor, const wire::cuda::capture_end_request& request,
                wire::cuda::capture_end_reply&) {
  Scope scope(executor);
  CUstream stream = scope.stream(request.stream);
  if (!scope.ok()) return scope.error();
  Graphs& graphs = executor.graphs();
  const bool into_clients = executor.streams().captures_into_clients(stream);
  executor.streams().capture_ends(stream);
  CUgraph graph = nullptr;
  const CUresult result = executor.driver().cuStreamEndCapture(stream, &graph);
  executor.graph_sizes().capture_ended();
  if (result != CUDA_SUCCESS || graph == nullptr) {
    if (result != CUDA_ERROR_ILLEGAL_STATE) graphs.capture_lost(executor);
    return result != CUDA_SUCCESS ? result : CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
  }
  graphs.capture_done(graph);
  const bool counted = executor.graph_sizes().take(graph, executor.graph_sizes().nodes_of(graph));
  // Captured into the program's graph, which has an id. Another one would have no place in the
  // graph that it may belong to.
  if (into_clients || executor.objects().find(Kind::kGraph, request.graph) != nullptr)
    return counted ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
  if (counted && executor.objects().bind(Kind::kGraph, request.graph, graph, graph))
    return CUDA_SUCCESS;
  executor.graph_sizes().ended(graph);
  executor.driver().cuGraphDestroy(graph);
  executor.objects().end(graph);
  return counted ? CUDA_ERROR_INVALID_HANDLE : CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult handle(Executor& executor, const wire::cuda::capture_info_request& request,
                wire::cuda::capture_info_reply& reply) {
  Scope scope(executor);
  CUstream stream = scope.stream(request.stream);
  if (!scope.ok()) return scope.error();
  CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
  cuuint64_t id = 0;
  CUgraph graph = nullptr;
  const CUgraphNode* nodes = nullptr;
  const CUgraphEdgeData* edges = nullptr;
  size_t count = 0;
  const CUresult result = executor.driver().cuStreamGetCaptureInfo_v3(stream, &status, &id, &graph,
                                                                      &nodes, &edges, &count);
  if (result != CUDA_SUCCESS) return result;
  reply.status = static_cast<uint32_t>(status);
  reply.id = id;
  if (graph != nullptr && !executor.objects().knows(Kind::kGraph, graph))
    executor.graphs().capture_seen(graph);
  reply.graph = scope.id(Kind::kGraph, graph, graph);
  reply.dependencies = scope.ids(Kind::kNode, nodes, count, graph);
  if (edges != nullptr)
    reply.edges = {reinterpret_cast<const uint8_t*>(edges), count * sizeof *edges};
  return scope.ok() ? CUDA_SUCCESS : scope.error();
}

CUresult handle(Executor& executor, const wire::cuda::capture_update_request& request,
                wire::cuda::capture_update_reply&) {
  Scope scope(executor);
  CUstream stream = scope.stream(request.stream);
  CUgraphNode* nodes = scope.handles<CUgraphNode>(Kind::kNode, request.dependencies);
  const CUgraphEdgeData* edges = edges_of(scope, request.edges, request.dependencies.count);
  if (!scope.ok()) return scope.error();
  if (edges != nullptr)
    return executor.driver().cuStreamUpdateCaptureDependencies_v2(
        stream, nodes, edges, request.dependencies.count, request.flags);
  return executor.driver().cuStreamUpdateCaptureDependencies(
      stream, nodes, request.dependencies.count, request.flags);
}

}  // namespace tendril::worker::cuda
