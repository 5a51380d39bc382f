// SPDX-License-Identifier: Apache-2.0
// See content.h.
#include "client/opencl/spread/content.h"

#include <algorithm>

#include "api/opencl_bodies.gen.h"

namespace tendril::client::opencl::spread {

Arrival::~Arrival() { opencl::clReleaseEvent(gate); }

void cut(std::vector<Piece>* pieces, uint64_t at) {
  for (size_t i = 0; i < pieces->size(); ++i) {
    if (at <= (*pieces)[i].begin || (*pieces)[i].end <= at) continue;
    Piece after = (*pieces)[i];
    for (const Writer& writer : after.writers) opencl::clRetainEvent(writer.event);
    (*pieces)[i].end = after.begin = at;
    pieces->insert(pieces->begin() + static_cast<ptrdiff_t>(i) + 1, std::move(after));
    return;
  }
}

void forget_writers(Piece* piece) {
  for (const Writer& writer : piece->writers) opencl::clReleaseEvent(writer.event);
  piece->writers.clear();
}

// A queue in order ends its last command last. The last marker of another queue is over after all
// that were before it.
void add_writer(Piece* piece, uint32_t member, cl_command_queue queue, bool in_order,
                cl_event event) {
  constexpr size_t kWritersMax = 64;
  if (piece->owner != member) forget_writers(piece);
  piece->owner = member;
  piece->valid = bit(member);
  piece->is_first = false;
  auto& all = piece->writers;
  if (!all.empty() && all.back().event == event) return;  // it uses the piece twice
  opencl::clRetainEvent(event);
  cl_event marker = nullptr;
  if (!in_order && all.size() >= kWritersMax &&
      opencl::clEnqueueMarkerWithWaitList(queue, 0, nullptr, &marker) == CL_SUCCESS) {
    opencl::clReleaseEvent(event);
    event = marker;
    in_order = true;
  }
  if (in_order) {
    const auto same = [&](const Writer& each) { return each.queue == queue; };
    for (const Writer& each : all)
      if (same(each)) opencl::clReleaseEvent(each.event);
    all.erase(std::remove_if(all.begin(), all.end(), same), all.end());
  }
  all.push_back({queue, event});
}

}  // namespace tendril::client::opencl::spread
