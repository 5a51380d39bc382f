// SPDX-License-Identifier: Apache-2.0
// Streams and events, and the state of a stream under capture. Any thread; `capture_lock()` guards
// the capture fields.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "softgpu/driver/device/context.h"

namespace tendril::softgpu {

class Graph;
class SharedEvent;
struct GraphNode;
struct Work;

// One capture: begun on one stream, joined by others through events.
struct Capture {
  uint64_t id = 0;
  std::shared_ptr<Graph> graph;
  bool own_graph = true;  // false: cuStreamBeginCaptureToGraph
  CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_GLOBAL;
  uint64_t thread = 0;
  bool invalidated = false;
  bool over = false;  // events that were recorded in it still know it
  std::weak_ptr<Stream> origin;
  std::vector<std::weak_ptr<Stream>> joined;  // all streams in it, the origin too
  std::vector<std::shared_ptr<GraphNode>>
      left;  // the last nodes of streams that have been destroyed
};

class Stream {
 public:
  CUstream handle = nullptr;
  std::weak_ptr<Context> context;
  unsigned flags = CU_STREAM_DEFAULT;
  int priority = 0;
  uint64_t id = 0;
  bool is_legacy = false;
  std::shared_ptr<Queue> queue = std::make_shared<Queue>();
  std::mutex attribute_lock;
  std::map<int, CUlaunchAttributeValue> attributes;

  // Guarded by capture_lock().
  std::shared_ptr<Capture> capture;
  std::vector<std::shared_ptr<GraphNode>> frontier;
  std::vector<CUgraphNode> frontier_handles;  // what cuStreamGetCaptureInfo returned
  std::vector<CUgraphEdgeData> frontier_edges;

  bool blocking() const { return (flags & CU_STREAM_NON_BLOCKING) == 0; }
};
using StreamPtr = std::shared_ptr<Stream>;
using StreamTable = HandleTable<CUstream, Stream, HandleKind::kStream>;
StreamTable& streams();
std::recursive_mutex& capture_lock();

StreamPtr make_stream(const ContextPtr& context, unsigned flags, int priority);
// The stream behind a handle (0, legacy and per-thread included) and its context.
CUresult find_stream(CUstream handle, StreamPtr* stream, ContextPtr* context);
CUresult wait_stream(const StreamPtr& stream, const ContextPtr& context);
// Refuses calls that a capture forbids on this thread (allocation and synchronisation in global or
// thread-local mode).
CUresult refuse_during_capture();
// Refuses a call that no capturing stream allows. The capture is invalid after it.
CUresult refuse_capturing(const StreamPtr& stream);
// Number of captures in the process. Zero makes the checks cheap.
bool any_capture();
CUresult begin_capture(CUstream handle, std::shared_ptr<Graph> graph,
                       std::vector<std::shared_ptr<GraphNode>> frontier, CUstreamCaptureMode mode);

// One recording of an event.
struct Record {
  TokenPtr token;
  std::atomic<int64_t> time_ns{0};
  std::shared_ptr<Capture> capture;  // recorded while capturing; not real work
  std::vector<std::shared_ptr<GraphNode>> frontier;
};

class Event {
 public:
  CUevent handle = nullptr;
  std::weak_ptr<Context> context;
  CUcontext context_handle = nullptr;
  unsigned flags = 0;
  std::mutex lock;
  std::shared_ptr<Record> record;
  std::shared_ptr<SharedEvent> shared;  // once other processes may know it
  std::shared_ptr<Record> current() {
    std::lock_guard guard(lock);
    return record;
  }
  std::shared_ptr<SharedEvent> shared_state() {
    std::lock_guard guard(lock);
    return shared;
  }
};
using EventPtr = std::shared_ptr<Event>;
using EventTable = HandleTable<CUevent, Event, HandleKind::kEvent>;
EventTable& events();

// Makes the event one that other processes can open. False: no memory.
bool share_event(const EventPtr& event);
CUresult record_event(const EventPtr& event, const StreamPtr& stream, const ContextPtr& context,
                      unsigned flags);
CUresult wait_event(const EventPtr& event, const StreamPtr& stream, const ContextPtr& context,
                    unsigned flags);

}  // namespace tendril::softgpu
