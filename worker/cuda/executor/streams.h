// SPDX-License-Identifier: Apache-2.0
// What the worker knows of streams: which streams a context has used since the last wait for it,
// whether any stream captures, and whether any stream is apart. A stream apart does not wait for
// the legacy stream. Executor thread.
#pragma once

#include <vector>

#include "worker/cuda/executor/contexts.h"

namespace tendril::worker::cuda {

// How many edges a graph has, without those of graphs in it.
uint64_t edges_in(gpu::Driver& driver, CUgraph graph);
// Its nodes. So many edges more than nodes count as another one.
inline constexpr uint64_t kEdgesOfObject = 8;
uint64_t graph_size(gpu::Driver& driver, CUgraph graph);

class Streams {
 public:
  Streams(gpu::Driver* driver, Contexts* contexts) : driver_(driver), contexts_(contexts) {}

  // A call in `context` (null: it named none) may give work to `stream`.
  void touch(WorkerContext* context, CUstream stream) {
    if (context != nullptr && context->touched_last != stream) note_touched(context, stream);
  }
  // `stream` is about to be destroyed. It must not be asked any more.
  void forget(CUstream stream);

  // A stream that captures must not be asked anything. `graph`: the program's, which takes the
  // capture; null: the driver makes one. `context`: the stream ends with it.
  void capture_begins(CUstream stream, CUgraph graph, const void* context);
  // The capture is over, perhaps because the stream is.
  bool capture_ends(CUstream stream);  // false: it did not capture
  // The context is gone with its streams, also with those that had lost their ids. False: none of
  // them captured.
  bool captures_end_with(const void* context);
  // Does a capture add to this graph? Then the driver still uses it.
  bool captures_into(CUgraph graph) const;
  // Does the stream capture into a graph of the program's, and not into one of the driver's?
  bool captures_into_clients(CUstream stream) const;
  // The program's graphs that take captures now.
  std::vector<CUgraph> graphs_in_capture() const;
  bool capturing() const { return !captures_.empty(); }
  // Of all graphs that streams capture into.
  uint64_t nodes_captured();
  // Is work that is given to `stream` captured instead of run?
  bool captures(CUstream stream) { return !captures_.empty() && ask_whether_captures(stream); }

  // A copy has been given to the stream `stream_id`, with this result. Returns the call's result.
  // The program's synchronous copy may have returned already. So work on a stream apart must come
  // after the copy. Once there is such a stream, the client waits for copies.
  CUresult copy_given(uint64_t stream_id, CUresult result) {
    WorkerContext* context = contexts_->current();
    return stream_id == 0 && !some_apart_ && result == CUDA_SUCCESS && context != nullptr
               ? mark_copied(context)
               : result;
  }
  // A stream apart begins in the call's context.
  CUresult begin_apart(CUstream stream);

 private:
  void note_touched(WorkerContext* context, CUstream stream);
  CUresult mark_copied(WorkerContext* context);
  bool ask_whether_captures(CUstream stream);

  gpu::Driver* driver_;
  Contexts* contexts_;
  struct Capture {
    CUstream stream;
    CUgraph graph;
    const void* context;
  };
  std::vector<Capture> captures_;
  bool some_apart_ = false;  // there has been a stream apart
};

}  // namespace tendril::worker::cuda
