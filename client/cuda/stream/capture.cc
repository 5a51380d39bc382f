// SPDX-License-Identifier: Apache-2.0
// Stream capture. The worker captures in relaxed mode on its executor thread. Here we decide which
// thread may end a capture, and which calls are forbidden while one is open. See capture.h.
#include "client/cuda/stream/capture.h"

#include <algorithm>

#include "client/cuda/bodies.h"

namespace tendril::client::cuda {

struct Capture {
  uint64_t id = 0;
  Stream* origin = nullptr;
  CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_GLOBAL;
  uint64_t thread = 0;
  bool into_graph = false;  // cuStreamBeginCaptureToGraph: the graph is the program's
  CUgraph graph = nullptr;
  std::atomic<Object*> shown{
      nullptr};  // the graph under construction, once the program has seen it
  std::atomic<bool> invalid{false};
};

struct Captures {
  base::Lock lock;
  std::atomic<uint64_t> next_id{1};
  std::vector<Capture*> open;
  // Records of captures that have ended. They are used again, never freed: another thread may still
  // read a stream's pointer to one.
  std::vector<Capture*> spare;
};

namespace {

CUresult stream_of(CUstream handle, Context** context, Stream** stream) {
  TENDRIL_TRY(require_context(context));
  TENDRIL_TRY(require_stream(*context, handle, stream));
  if (*stream != nullptr) *context = (*stream)->context;
  return CUDA_SUCCESS;
}

Capture* new_capture(Stream* stream, CUstreamCaptureMode mode, CUgraph graph) {
  Captures& captures = process()->captures.get();
  const base::Locked held(captures.lock);
  std::vector<Capture*>& spare = captures.spare;
  Capture* capture = spare.empty() ? new Capture : spare.back();
  if (!spare.empty()) spare.pop_back();
  capture->id = captures.next_id.fetch_add(1);
  capture->origin = stream;
  capture->mode = mode;
  capture->thread = thread_serial();
  capture->graph = graph;
  capture->into_graph = graph != nullptr;
  capture->shown.store(nullptr);
  capture->invalid.store(false);
  captures.open.push_back(capture);
  return capture;
}

// The capture is counted before the worker begins it. From then on no freed block waits here
// (pool.cc), and those that do are sent first.
template <typename Request, typename Answer>
CUresult begin_at(Context* context, Stream* stream, const Request& request, Answer& reply,
                  CUstreamCaptureMode mode, CUgraph graph) {
  process()->open_captures.fetch_add(1);
  context->session->send_frees();
  const CUresult result = context->session->call(context, request, reply);
  if (result == CUDA_SUCCESS)
    stream->capture.store(new_capture(stream, mode, graph));
  else
    process()->open_captures.fetch_sub(1);
  return result;
}

// Takes a capture off the list of open ones. False: it had ended before.
bool take_from_open(Capture* capture) {
  Captures& captures = process()->captures.get();
  const base::Locked held(captures.lock);
  const auto found = std::find(captures.open.begin(), captures.open.end(), capture);
  if (found == captures.open.end()) return false;
  captures.open.erase(found);
  return true;
}

// Ends a capture: no stream joins it any more, and all of its streams leave.
void close(Capture* capture) {
  if (!take_from_open(capture)) return;
  process()->open_captures.fetch_sub(1);
  process()->streams.for_each([&](Stream* stream) {
    if (stream->capture.load() == capture) stream->capture.store(nullptr);
  });
  const base::Locked held(process()->captures->lock);
  process()->captures->spare.push_back(capture);
}

// The open capture of that id. Null: it has ended.
Capture* open_capture(uint64_t id) {
  Captures& captures = process()->captures.get();
  const base::Locked held(captures.lock);
  const auto found = std::find_if(captures.open.begin(), captures.open.end(),
                                  [id](const Capture* capture) { return capture->id == id; });
  return found != captures.open.end() ? *found : nullptr;
}

CUresult begin(CUstream hStream, CUstreamCaptureMode mode) {
  Context* context = nullptr;
  Stream* stream = nullptr;
  TENDRIL_TRY(stream_of(hStream, &context, &stream));
  if (mode < CU_STREAM_CAPTURE_MODE_GLOBAL || mode > CU_STREAM_CAPTURE_MODE_RELAXED)
    return CUDA_ERROR_INVALID_VALUE;
  if (stream == nullptr)
    return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;  // the legacy stream cannot be captured
  if (stream->capture.load() != nullptr) return CUDA_ERROR_ILLEGAL_STATE;
  wire::cuda::capture_begin_request request;
  wire::cuda::capture_begin_reply reply;
  request.stream = stream->wire_id;
  request.mode = CU_STREAM_CAPTURE_MODE_RELAXED;
  return begin_at(context, stream, request, reply, mode, nullptr);
}

// Arrays that the program was given. They stay valid until the same thread asks again.
struct InfoStorage {
  std::vector<CUgraphNode> nodes;
  std::vector<CUgraphEdgeData> edges;
};
InfoStorage* storage() {
  static thread_local InfoStorage* mine = nullptr;
  if (mine == nullptr) mine = new InfoStorage;
  return mine;
}

CUresult info(CUstream hStream, CUstreamCaptureStatus* status, cuuint64_t* id, CUgraph* graph,
              const CUgraphNode** dependencies, const CUgraphEdgeData** edges, size_t* count) {
  Context* context = nullptr;
  Stream* stream = nullptr;
  TENDRIL_TRY(stream_of(hStream, &context, &stream));
  if (status == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (stream == nullptr && process()->open_captures.load() != 0 && context->active.load() != 0) {
    // The legacy stream must not be used while a blocking stream of its context is being captured.
    bool blocked = false;
    process()->streams.for_each([&](Stream* other) {
      blocked |= other->context == context && other->capture.load() != nullptr &&
                 (other->flags & CU_STREAM_NON_BLOCKING) == 0;
    });
    if (blocked) return CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
  }
  Capture* capture = stream != nullptr ? stream->capture.load() : nullptr;
  *status = capture == nullptr ? CU_STREAM_CAPTURE_STATUS_NONE
                               : (capture->invalid.load() ? CU_STREAM_CAPTURE_STATUS_INVALIDATED
                                                          : CU_STREAM_CAPTURE_STATUS_ACTIVE);
  if (id != nullptr) *id = capture != nullptr ? capture->id : 0;
  if (count != nullptr) *count = 0;
  if (capture == nullptr ||
      (graph == nullptr && dependencies == nullptr && count == nullptr && edges == nullptr))
    return CUDA_SUCCESS;
  wire::cuda::capture_info_request request;
  wire::cuda::capture_info_reply reply;
  request.stream = stream->wire_id;
  TENDRIL_TRY(context->session->call(context, request, reply));
  *status = static_cast<CUstreamCaptureStatus>(reply.status);
  InfoStorage* mine = storage();
  mine->nodes.clear();
  for (uint64_t wire_id : reply.dependencies) {
    Object* node = known_object(Kind::kNode, context->session, nullptr, wire_id);
    mine->nodes.push_back(node != nullptr ? handle_cast<CUgraphNode>(node) : nullptr);
  }
  const auto* data = reinterpret_cast<const CUgraphEdgeData*>(reply.edges.data);
  mine->edges.assign(data, data + reply.edges.count / sizeof(CUgraphEdgeData));
  if (graph != nullptr) {
    Object* object = reply.graph != 0
                         ? known_object(Kind::kGraph, context->session, nullptr, reply.graph)
                         : nullptr;
    *graph = object != nullptr ? handle_cast<CUgraph>(object) : nullptr;
    if (object != nullptr) capture->shown.store(object);
  }
  if (dependencies != nullptr) *dependencies = mine->nodes.data();
  if (edges != nullptr) *edges = mine->edges.empty() ? nullptr : mine->edges.data();
  if (count != nullptr) *count = mine->nodes.size();
  return CUDA_SUCCESS;
}

bool node_ids(const CUgraphNode* nodes, size_t count, std::vector<uint64_t>* ids) {
  for (size_t i = 0; i < count; ++i) {
    Object* node = find_object(Kind::kNode, handle_value(nodes[i]));
    if (node == nullptr) return false;
    ids->push_back(node->wire_id);
  }
  return true;
}

}  // namespace

CUresult join_capture(Stream* stream, Event* event, unsigned flags) {
  if (__builtin_expect(process()->open_captures.load(std::memory_order_relaxed) == 0, 1))
    return CUDA_SUCCESS;
  const uint64_t recorded_in = event->capture.load(std::memory_order_relaxed);
  Capture* mine = stream != nullptr ? stream->capture.load(std::memory_order_relaxed) : nullptr;
  if (mine != nullptr && mine->invalid.load()) return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
  if ((flags & CU_EVENT_WAIT_EXTERNAL) != 0)
    return CUDA_SUCCESS;  // a node that waits, or a plain wait
  Capture* capture = recorded_in != 0 ? open_capture(recorded_in) : nullptr;
  if (capture != nullptr) {
    if (capture->invalid.load()) return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
    if (stream == nullptr) {
      capture->invalid.store(true);
      return CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
    }
    const bool of_other_server = stream->session != event->session;
    if ((mine != nullptr && mine != capture) || of_other_server) {
      if (mine != nullptr) mine->invalid.store(true);
      capture->invalid.store(true);
      return CUDA_ERROR_STREAM_CAPTURE_MERGE;
    }
    stream->capture.store(capture);
    return CUDA_SUCCESS;
  }
  if (mine == nullptr) return CUDA_SUCCESS;
  mine->invalid.store(true);  // a graph cannot be ordered after work that is not in it
  return CUDA_ERROR_STREAM_CAPTURE_ISOLATION;
}

void event_recorded(Event* event, Stream* stream, unsigned flags) {
  Capture* capture = stream != nullptr ? stream->capture.load(std::memory_order_relaxed) : nullptr;
  const bool node = capture != nullptr && (flags & CU_EVENT_RECORD_EXTERNAL) != 0;
  if (node)
    event->external.store(true,
                          std::memory_order_relaxed);  // every launch of the graph will record it
  event->capture.store(node || capture == nullptr ? 0 : capture->id, std::memory_order_relaxed);
}

void stream_leaves(Stream* stream) {
  Capture* capture = stream->capture.load(std::memory_order_relaxed);
  if (capture == nullptr) return;
  if (capture->origin == stream) {
    capture->invalid.store(true);
    close(capture);
  }
  stream->capture.store(nullptr);  // the end of the capture reports whether its work was joined
}

CUresult check_work_slow(Context* context, Stream* stream, bool synchronous) {
  if (stream != nullptr) {
    Capture* capture = stream->capture.load(std::memory_order_relaxed);
    if (capture == nullptr) return CUDA_SUCCESS;
    if (capture->invalid.load() && !synchronous) return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
    if (!synchronous) return CUDA_SUCCESS;
    capture->invalid.store(true);
    return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  }
  bool implicit = false;
  process()->streams.for_each([&](Stream* other) {
    Capture* capture = other->capture.load(std::memory_order_relaxed);
    if (capture == nullptr || other->context != context ||
        (other->flags & CU_STREAM_NON_BLOCKING) != 0)
      return;
    if (capture->mode == CU_STREAM_CAPTURE_MODE_RELAXED) return;
    capture->invalid.store(true);
    implicit = true;
  });
  return implicit ? CUDA_ERROR_STREAM_CAPTURE_IMPLICIT : CUDA_SUCCESS;
}

CUresult refuse_captured(const Event* event) {
  const uint64_t recorded_in = event->capture.load();
  if (recorded_in == 0) return CUDA_SUCCESS;
  Capture* capture = open_capture(recorded_in);
  if (capture == nullptr) return CUDA_ERROR_CAPTURED_EVENT;
  return capture->invalid.exchange(true) ? CUDA_ERROR_INVALID_VALUE : CUDA_ERROR_CAPTURED_EVENT;
}

bool is_capturing(const Stream* stream) {
  return stream != nullptr && stream->capture.load(std::memory_order_relaxed) != nullptr;
}

CUresult check_unsafe_call() {
  Process* program = process();
  if (__builtin_expect(program->open_captures.load(std::memory_order_relaxed) == 0, 1))
    return CUDA_SUCCESS;
  const CUstreamCaptureMode mine = thread_state().capture_mode;
  if (mine == CU_STREAM_CAPTURE_MODE_RELAXED) return CUDA_SUCCESS;
  const uint64_t thread = thread_serial();
  bool forbidden = false;
  const base::Locked held(program->captures->lock);
  for (Capture* capture : program->captures->open) {
    const bool own = capture->thread == thread && capture->mode != CU_STREAM_CAPTURE_MODE_RELAXED;
    const bool other =
        capture->mode == CU_STREAM_CAPTURE_MODE_GLOBAL && mine == CU_STREAM_CAPTURE_MODE_GLOBAL;
    if (!own && !other) continue;
    forbidden = true;
    capture->invalid.store(true);
  }
  return forbidden ? CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED : CUDA_SUCCESS;
}

CUresult cuThreadExchangeStreamCaptureMode(CUstreamCaptureMode* mode) {
  if (mode == nullptr || *mode < CU_STREAM_CAPTURE_MODE_GLOBAL ||
      *mode > CU_STREAM_CAPTURE_MODE_RELAXED)
    return CUDA_ERROR_INVALID_VALUE;
  ThreadState& thread = thread_state();
  const CUstreamCaptureMode before = thread.capture_mode;
  thread.capture_mode = *mode;
  *mode = before;
  return CUDA_SUCCESS;
}

CUresult cuStreamIsCapturing(CUstream hStream, CUstreamCaptureStatus* captureStatus) {
  return info(hStream, captureStatus, nullptr, nullptr, nullptr, nullptr, nullptr);
}

CUresult cuStreamBeginCapture(CUstream hStream) {
  return begin(hStream, CU_STREAM_CAPTURE_MODE_GLOBAL);
}
CUresult cuStreamBeginCapture_v2(CUstream hStream, CUstreamCaptureMode mode) {
  return begin(hStream, mode);
}

CUresult cuStreamBeginCaptureToGraph(CUstream hStream, CUgraph hGraph,
                                     const CUgraphNode* dependencies, const CUgraphEdgeData* edges,
                                     size_t numDependencies, CUstreamCaptureMode mode) {
  Context* context = nullptr;
  Stream* stream = nullptr;
  TENDRIL_TRY(stream_of(hStream, &context, &stream));
  Object* graph = find_object(Kind::kGraph, handle_value(hGraph));
  if (graph == nullptr) return no_object(Kind::kGraph);
  if (stream == nullptr) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  if (stream->capture.load() != nullptr) return CUDA_ERROR_ILLEGAL_STATE;
  std::vector<uint64_t> ids;
  if (numDependencies != 0 &&
      (dependencies == nullptr || !node_ids(dependencies, numDependencies, &ids)))
    return CUDA_ERROR_INVALID_VALUE;
  wire::cuda::capture_begin_to_graph_request request;
  wire::cuda::capture_begin_to_graph_reply reply;
  request.stream = stream->wire_id;
  request.graph = graph->wire_id;
  request.mode = CU_STREAM_CAPTURE_MODE_RELAXED;
  request.dependencies = {ids.data(), ids.size()};
  if (edges != nullptr)
    request.edges = {reinterpret_cast<const uint8_t*>(edges),
                     numDependencies * sizeof(CUgraphEdgeData)};
  return begin_at(context, stream, request, reply, mode, hGraph);
}

CUresult cuStreamEndCapture(CUstream hStream, CUgraph* phGraph) {
  Context* context = nullptr;
  Stream* stream = nullptr;
  TENDRIL_TRY(stream_of(hStream, &context, &stream));
  Capture* capture = stream != nullptr ? stream->capture.load() : nullptr;
  if (capture == nullptr)
    return phGraph == nullptr ? CUDA_ERROR_INVALID_VALUE : CUDA_ERROR_ILLEGAL_STATE;
  // A program that captures into its own graph need not ask for it.
  if (phGraph == nullptr && !capture->into_graph) return CUDA_ERROR_INVALID_VALUE;
  if (capture->origin != stream) {
    capture->invalid.store(true);
    return CUDA_ERROR_STREAM_CAPTURE_UNMATCHED;
  }
  // The wrong thread ends the capture nevertheless.
  const bool wrong_thread =
      capture->mode != CU_STREAM_CAPTURE_MODE_RELAXED && capture->thread != thread_serial();
  if (wrong_thread) capture->invalid.store(true);
  if (phGraph != nullptr) *phGraph = nullptr;
  Object* graph = capture->into_graph ? find_object(Kind::kGraph, handle_value(capture->graph))
                                      : capture->shown.load();
  if (graph == nullptr) graph = create_object(Kind::kGraph, context->session, nullptr);
  if (graph == nullptr) return CUDA_ERROR_OUT_OF_MEMORY;
  wire::cuda::capture_end_request request;
  wire::cuda::capture_end_reply reply;
  request.stream = stream->wire_id;
  request.graph = graph->wire_id;
  CUresult result = context->session->call(context, request, reply);
  const bool invalid = capture->invalid.load();
  const bool into_graph = capture->into_graph;
  close(capture);
  if (result == CUDA_SUCCESS && invalid && !into_graph) {
    wire::cuda::cuGraphDestroy_request destroy;  // the worker knew nothing of the error
    wire::cuda::cuGraphDestroy_reply destroyed;
    destroy.hGraph = graph->wire_id;
    (void)context->session->call(static_cast<const Context*>(nullptr), destroy, destroyed);
  }
  if (invalid) result = CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
  if (wrong_thread) result = CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD;
  if (result != CUDA_SUCCESS) {
    if (!into_graph) destroy_object(Kind::kGraph, graph);
    return result;
  }
  if (phGraph != nullptr) *phGraph = handle_cast<CUgraph>(graph);
  return CUDA_SUCCESS;
}

CUresult cuStreamGetCaptureInfo(CUstream hStream, CUstreamCaptureStatus* status, cuuint64_t* id) {
  return info(hStream, status, id, nullptr, nullptr, nullptr, nullptr);
}

CUresult cuStreamGetCaptureInfo_v2(CUstream hStream, CUstreamCaptureStatus* status, cuuint64_t* id,
                                   CUgraph* graph, const CUgraphNode** dependencies,
                                   size_t* count) {
  return info(hStream, status, id, graph, dependencies, nullptr, count);
}

CUresult cuStreamGetCaptureInfo_v3(CUstream hStream, CUstreamCaptureStatus* status, cuuint64_t* id,
                                   CUgraph* graph, const CUgraphNode** dependencies,
                                   const CUgraphEdgeData** edges, size_t* count) {
  return info(hStream, status, id, graph, dependencies, edges, count);
}

CUresult cuStreamUpdateCaptureDependencies_v2(CUstream hStream, CUgraphNode* dependencies,
                                              const CUgraphEdgeData* edges, size_t count,
                                              unsigned int flags) {
  Context* context = nullptr;
  Stream* stream = nullptr;
  TENDRIL_TRY(stream_of(hStream, &context, &stream));
  if (!is_capturing(stream)) return CUDA_ERROR_ILLEGAL_STATE;
  std::vector<uint64_t> ids;
  if (count != 0 && (dependencies == nullptr || !node_ids(dependencies, count, &ids)))
    return CUDA_ERROR_INVALID_VALUE;
  wire::cuda::capture_update_request request;
  wire::cuda::capture_update_reply reply;
  request.stream = stream->wire_id;
  request.flags = flags;
  request.dependencies = {ids.data(), ids.size()};
  if (edges != nullptr)
    request.edges = {reinterpret_cast<const uint8_t*>(edges), count * sizeof(CUgraphEdgeData)};
  return context->session->call(context, request, reply);
}

CUresult cuStreamUpdateCaptureDependencies(CUstream hStream, CUgraphNode* dependencies,
                                           size_t count, unsigned int flags) {
  return cuStreamUpdateCaptureDependencies_v2(hStream, dependencies, nullptr, count, flags);
}

}  // namespace tendril::client::cuda
