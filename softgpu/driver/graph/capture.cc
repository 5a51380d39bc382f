// SPDX-License-Identifier: Apache-2.0
// Stream capture. There is state per stream (which capture, which nodes come next) and per thread
// (the mode, which decides which other calls are refused meanwhile). One recursive lock guards it,
// because recording work takes the lock too.

#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>

#include "softgpu/driver/entry.h"
#include "softgpu/driver/graph/graph.h"
#include "softgpu/driver/stream/stream.h"

namespace tendril::softgpu {
namespace {

std::atomic<unsigned> g_captures{0};
std::atomic<uint64_t> g_next_id{1};

std::vector<std::weak_ptr<Capture>>& running() {
  static auto& list = *new std::vector<std::weak_ptr<Capture>>;
  return list;
}

uint64_t this_thread() {
  static thread_local uint64_t id = static_cast<uint64_t>(syscall(SYS_gettid));
  return id;
}

CUstreamCaptureMode& thread_mode() {
  static thread_local CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_GLOBAL;
  return mode;
}

// Whether a frontier node of a joined stream cannot be reached from where the origin stands now.
bool unjoined(const Capture& capture, const Stream& origin) {
  std::set<const GraphNode*> reached;
  std::vector<const GraphNode*> todo;
  for (const NodePtr& node : origin.frontier) todo.push_back(node.get());
  while (!todo.empty()) {
    const GraphNode* node = todo.back();
    todo.pop_back();
    if (!reached.insert(node).second) continue;
    for (const auto& edge : node->dependencies) todo.push_back(edge.from.get());
  }
  for (const auto& weak : capture.joined) {
    StreamPtr stream = weak.lock();
    if (!stream || stream.get() == &origin) continue;
    for (const NodePtr& node : stream->frontier)
      if (reached.count(node.get()) == 0) return true;
  }
  for (const NodePtr& node : capture.left)
    if (reached.count(node.get()) == 0) return true;
  return false;
}

void leave(Capture& capture) {
  capture.over = true;
  for (const auto& weak : capture.joined)
    if (StreamPtr stream = weak.lock()) {
      stream->capture.reset();
      stream->frontier.clear();
    }
  std::erase_if(running(),
                [&](const auto& weak) { return weak.expired() || weak.lock().get() == &capture; });
  g_captures.fetch_sub(1);
}

}  // namespace

std::recursive_mutex& capture_lock() {
  static auto& lock = *new std::recursive_mutex;
  return lock;
}

bool any_capture() { return g_captures.load(std::memory_order_acquire) != 0; }

CUresult refuse_capturing(const StreamPtr& stream) {
  if (!any_capture()) return CUDA_SUCCESS;
  std::lock_guard guard(capture_lock());
  if (!stream->capture) return CUDA_SUCCESS;
  stream->capture->invalidated = true;
  return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
}

CUresult refuse_during_capture() {
  if (!any_capture() || thread_mode() == CU_STREAM_CAPTURE_MODE_RELAXED) return CUDA_SUCCESS;
  std::lock_guard guard(capture_lock());
  for (const auto& weak : running()) {
    std::shared_ptr<Capture> capture = weak.lock();
    if (!capture || capture->mode == CU_STREAM_CAPTURE_MODE_RELAXED) continue;
    bool mine = capture->thread == this_thread();
    bool global = capture->mode == CU_STREAM_CAPTURE_MODE_GLOBAL &&
                  thread_mode() == CU_STREAM_CAPTURE_MODE_GLOBAL;
    if (!mine && !global) continue;
    capture->invalidated = true;
    return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  }
  return CUDA_SUCCESS;
}

CUresult begin_capture(CUstream handle, GraphPtr graph, std::vector<NodePtr> frontier,
                       CUstreamCaptureMode mode) {
  if (static_cast<unsigned>(mode) > CU_STREAM_CAPTURE_MODE_RELAXED) return CUDA_ERROR_INVALID_VALUE;
  StreamPtr stream;
  ContextPtr context;
  if (CUresult bad = find_stream(handle, &stream, &context)) return bad;
  if (stream->is_legacy) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  std::lock_guard guard(capture_lock());
  if (stream->capture) return CUDA_ERROR_ILLEGAL_STATE;
  auto capture = std::make_shared<Capture>();
  capture->id = g_next_id.fetch_add(1);
  capture->own_graph = graph == nullptr;
  capture->graph = graph ? std::move(graph) : make_graph();
  capture->mode = mode;
  capture->thread = this_thread();
  capture->origin = stream;
  capture->joined.push_back(stream);
  stream->capture = capture;
  stream->frontier = std::move(frontier);
  running().push_back(capture);
  g_captures.fetch_add(1);
  return CUDA_SUCCESS;
}

SOFT(cuStreamBeginCapture_v2)(CUstream hStream, CUstreamCaptureMode mode) {
  return begin_capture(hStream, nullptr, {}, mode);
}

SOFT(cuStreamBeginCapture)(CUstream hStream) {
  return begin_capture(hStream, nullptr, {}, CU_STREAM_CAPTURE_MODE_GLOBAL);
}

SOFT(cuStreamBeginCaptureToGraph)
(CUstream hStream, CUgraph hGraph, const CUgraphNode* dependencies,
 const CUgraphEdgeData* dependencyData, size_t numDependencies, CUstreamCaptureMode mode) {
  GraphPtr graph = graphs().get(hGraph);
  if (!graph) return CUDA_ERROR_INVALID_VALUE;
  std::lock_guard guard(capture_lock());
  std::vector<NodePtr> frontier;
  if (CUresult bad = find_nodes(dependencies, numDependencies, graph.get(), &frontier)) return bad;
  return begin_capture(hStream, graph, std::move(frontier), mode);
}

SOFT(cuStreamEndCapture)(CUstream hStream, CUgraph* phGraph) {
  StreamPtr stream;
  ContextPtr context;
  if (CUresult bad = find_stream(hStream, &stream, &context)) return bad;
  std::lock_guard guard(capture_lock());
  std::shared_ptr<Capture> capture = stream->capture;
  // A caller that captures into its own graph need not learn which graph it is.
  if (phGraph == nullptr && (!capture || capture->own_graph)) return CUDA_ERROR_INVALID_VALUE;
  if (phGraph != nullptr) *phGraph = nullptr;
  if (!capture) return CUDA_ERROR_ILLEGAL_STATE;
  if (capture->origin.lock() != stream) {
    capture->invalidated = true;
    return CUDA_ERROR_STREAM_CAPTURE_UNMATCHED;
  }
  CUresult result = CUDA_SUCCESS;
  // The wrong thread ends the capture nevertheless.
  if (capture->mode != CU_STREAM_CAPTURE_MODE_RELAXED && capture->thread != this_thread()) {
    result = CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD;
  } else if (capture->invalidated) {
    result = CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
  } else if (unjoined(*capture, *stream)) {
    result = CUDA_ERROR_STREAM_CAPTURE_UNJOINED;
  }
  leave(*capture);
  if (result == CUDA_SUCCESS) {
    if (phGraph != nullptr) *phGraph = capture->graph->handle;
  } else if (capture->own_graph) {
    graphs().remove(capture->graph->handle);
  }
  return result;
}

SOFT(cuStreamIsCapturing)(CUstream hStream, CUstreamCaptureStatus* captureStatus) {
  StreamPtr stream;
  ContextPtr context;
  if (captureStatus == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (CUresult bad = find_stream(hStream, &stream, &context)) return bad;
  *captureStatus = CU_STREAM_CAPTURE_STATUS_NONE;
  if (!any_capture()) return CUDA_SUCCESS;
  std::lock_guard guard(capture_lock());
  if (stream->capture)
    *captureStatus = stream->capture->invalidated ? CU_STREAM_CAPTURE_STATUS_INVALIDATED
                                                  : CU_STREAM_CAPTURE_STATUS_ACTIVE;
  return CUDA_SUCCESS;
}

SOFT(cuStreamGetCaptureInfo_v3)
(CUstream hStream, CUstreamCaptureStatus* status, cuuint64_t* id, CUgraph* graph,
 const CUgraphNode** dependencies, const CUgraphEdgeData** edges, size_t* count) {
  StreamPtr stream;
  ContextPtr context;
  if (CUresult bad = soft_cuStreamIsCapturing(hStream, status)) return bad;
  if (CUresult bad = find_stream(hStream, &stream, &context)) return bad;
  if (*status != CU_STREAM_CAPTURE_STATUS_ACTIVE) return CUDA_SUCCESS;
  std::lock_guard guard(capture_lock());
  if (!stream->capture) return CUDA_SUCCESS;
  if (id != nullptr) *id = stream->capture->id;
  if (graph != nullptr) *graph = stream->capture->graph->handle;
  stream->frontier_handles.clear();
  for (const NodePtr& node : stream->frontier) stream->frontier_handles.push_back(node->handle);
  stream->frontier_edges.assign(stream->frontier_handles.size(), CUgraphEdgeData{});
  if (dependencies != nullptr) *dependencies = stream->frontier_handles.data();
  if (edges != nullptr) *edges = stream->frontier_edges.data();
  if (count != nullptr) *count = stream->frontier_handles.size();
  return CUDA_SUCCESS;
}

SOFT(cuStreamGetCaptureInfo_v2)
(CUstream hStream, CUstreamCaptureStatus* status, cuuint64_t* id, CUgraph* graph,
 const CUgraphNode** dependencies, size_t* count) {
  return soft_cuStreamGetCaptureInfo_v3(hStream, status, id, graph, dependencies, nullptr, count);
}

SOFT(cuStreamGetCaptureInfo)(CUstream hStream, CUstreamCaptureStatus* status, cuuint64_t* id) {
  return soft_cuStreamGetCaptureInfo_v3(hStream, status, id, nullptr, nullptr, nullptr, nullptr);
}

SOFT(cuStreamUpdateCaptureDependencies_v2)
(CUstream hStream, CUgraphNode* dependencies, const CUgraphEdgeData* data, size_t numDependencies,
 unsigned int flags) {
  StreamPtr stream;
  ContextPtr context;
  if (flags > CU_STREAM_SET_CAPTURE_DEPENDENCIES) return CUDA_ERROR_INVALID_VALUE;
  if (CUresult bad = find_stream(hStream, &stream, &context)) return bad;
  std::lock_guard guard(capture_lock());
  if (!stream->capture) return CUDA_ERROR_ILLEGAL_STATE;
  std::vector<NodePtr> nodes;
  if (CUresult bad =
          find_nodes(dependencies, numDependencies, stream->capture->graph.get(), &nodes))
    return bad;
  if (flags == CU_STREAM_SET_CAPTURE_DEPENDENCIES) stream->frontier.clear();
  for (NodePtr& node : nodes)
    if (std::find(stream->frontier.begin(), stream->frontier.end(), node) == stream->frontier.end())
      stream->frontier.push_back(std::move(node));
  return CUDA_SUCCESS;
}

SOFT(cuStreamUpdateCaptureDependencies)
(CUstream hStream, CUgraphNode* dependencies, size_t count, unsigned int flags) {
  return soft_cuStreamUpdateCaptureDependencies_v2(hStream, dependencies, nullptr, count, flags);
}

SOFT(cuThreadExchangeStreamCaptureMode)(CUstreamCaptureMode* mode) {
  if (mode == nullptr || static_cast<unsigned>(*mode) > CU_STREAM_CAPTURE_MODE_RELAXED)
    return CUDA_ERROR_INVALID_VALUE;
  std::swap(*mode, thread_mode());
  return CUDA_SUCCESS;
}

}  // namespace tendril::softgpu
