// SPDX-License-Identifier: Apache-2.0
// See passages.h. docs/decisions/0024-copies-between-servers.md has the reasons.
#include "client/cuda/copy/passages.h"

#include <string>
#include <vector>

#include "base/lock.h"
#include "client/common/log.h"
#include "client/cuda/stream/stream.h"

namespace tendril::client::cuda {

namespace {

// Between two sessions. Both halves of an operation are sent under `lock`. So any two operations
// come in the same order in both lanes, and a worker that waits for one never keeps the other back.
struct Passage {
  base::Lock lock;
  Session *first = nullptr, *second = nullptr;
  bool decided = false, open = false;
  uint32_t numbers[2] = {};  // of the passage in the two sessions
  uint64_t next_operation = 1;

  uint32_t number_in(const Session* session) const { return numbers[session == first ? 0 : 1]; }
};

// A passage is known by a number in each session. Each pair, and each way to connect it, has its
// own.
uint32_t passage_number(const Session* other, bool reversed) { return other->index * 2 + reversed; }

// `dialler`'s server connects to `other`'s. *why: it cannot.
bool connect_passage(Passage* passage, Session* dialler, Session* other, bool reversed,
                     std::string* why) {
  wire::cuda::passage_offer_request offer;
  wire::cuda::passage_offer_reply offered;
  offer.number = passage_number(dialler, reversed);
  if (other->call(static_cast<const Context*>(nullptr), offer, offered) != CUDA_SUCCESS) {
    *why = other->endpoint + " offers none";
    return false;
  }
  const std::string token(reinterpret_cast<const char*>(offered.token.data), offered.token.count);
  wire::cuda::passage_open_request open;
  wire::cuda::passage_open_reply reply;
  open.number = passage_number(other, reversed);
  open.token = {reinterpret_cast<const uint8_t*>(token.data()), token.size()};
  const CUresult asked = dialler->call(static_cast<const Context*>(nullptr), open, reply);
  *why = dialler->endpoint + ": ";
  if (asked == CUDA_SUCCESS && reply.open == 0)
    why->append(reinterpret_cast<const char*>(reply.why.data), reply.why.count);
  if (asked != CUDA_SUCCESS) *why += "connects to no other server";
  if (asked != CUDA_SUCCESS || reply.open == 0) return false;
  passage->numbers[dialler == passage->first ? 0 : 1] = open.number;
  passage->numbers[dialler == passage->first ? 1 : 0] = offer.number;
  return true;
}

void decide_passage(Passage* passage) {
  std::string one, other;
  passage->decided = true;
  if (!process()->uses_passages) return;
  passage->open = connect_passage(passage, passage->first, passage->second, false, &one) ||
                  connect_passage(passage, passage->second, passage->first, true, &other);
  if (passage->open) return;
  log_once(LogLevel::kInfo,
           "copies between GPUs of %s and %s go through this machine, because the servers have no "
           "connection for them (%s; %s)",
           passage->first->endpoint.c_str(), passage->second->endpoint.c_str(), one.c_str(),
           other.c_str());
}

}  // namespace

struct Passages {
  base::Lock lock;
  std::vector<Passage*> all;  // never removed
};

namespace {

Passage* passage_between(Session* one, Session* other) {
  Session* first = one->index < other->index ? one : other;
  Session* second = first == one ? other : one;
  Passages& passages = process()->passages.get();
  const base::Locked held(passages.lock);
  for (Passage* each : passages.all)
    if (each->first == first && each->second == second) return each;
  auto* made = new Passage;
  made->first = first;
  made->second = second;
  passages.all.push_back(made);
  return made;
}

template <typename Request>
CUresult send_half(const Passage& passage, uint64_t operation, const PassageEnd& end,
                   const PassageExtent& extent) {
  Request request;
  request.number = passage.number_in(end.context->session);
  request.operation = operation;
  request.address = end.address;
  request.stream = end.ordered ? stream_wire_id(end.stream) : 0;
  request.ordered = end.ordered ? 1 : 0;
  request.width = extent.width;
  request.height = extent.height;
  request.depth = extent.depth;
  request.pitch = end.pitch;
  request.slice = end.slice;
  return end.context->session->enqueue(end.context, request);
}

// The halves must leave at once: the other server waits for each, and this thread perhaps for it.
void flush_lanes(const Passage& passage) {
  passage.first->lane->flush();
  passage.second->lane->flush();
}

CUresult send_halves(Passage* passage, const PassageEnd& to, const PassageEnd& from,
                     const PassageExtent& extent) {
  const uint64_t operation = passage->next_operation++;
  CUresult result = send_half<wire::cuda::passage_send_request>(*passage, operation, from, extent);
  if (result == CUDA_SUCCESS)
    result = send_half<wire::cuda::passage_receive_request>(*passage, operation, to, extent);
  flush_lanes(*passage);
  return result;
}

// Gives the copy its place: an asynchronous one in its stream, a synchronous one in the legacy
// streams of both ends. False: its stream is on neither server.
bool place_ends(Context* context, PassageEnd* to, PassageEnd* from, CopyStream on) {
  Context* owner = on.stream != nullptr ? on.stream->context : context;
  PassageEnd* its = owner->session == from->context->session ? from
                    : owner->session == to->context->session ? to
                                                             : nullptr;
  if (its == nullptr) return false;
  if (!on.async) to->ordered = from->ordered = true;
  its->ordered = true;
  if (on.async || on.stream != nullptr) {
    its->context = owner;
    its->stream = on.stream;
  }
  return true;
}

}  // namespace

bool copy_over_passage(Context* context, PassageEnd to, PassageEnd from,
                       const PassageExtent& extent, CopyStream on, CUresult* result) {
  if (!place_ends(context, &to, &from, on)) return false;
  Passage* passage = passage_between(from.context->session, to.context->session);
  {
    const base::Locked held(passage->lock);
    if (!passage->decided) decide_passage(passage);
    if (!passage->open) return false;
    *result = send_halves(passage, to, from, extent);
  }
  if (on.async || *result != CUDA_SUCCESS) return true;
  *result = synchronize_stream(from.context, from.stream);
  if (*result == CUDA_SUCCESS) *result = synchronize_stream(to.context, to.stream);
  return true;
}

bool wait_over_passage(Context* context, Stream* stream, const Event* event, CUresult* result) {
  Session* here = context->session;
  Session* there = event->session;
  Passage* passage = passage_between(here, there);
  const base::Locked held(passage->lock);
  if (!passage->decided) decide_passage(passage);
  if (!passage->open) return false;
  wire::cuda::passage_tell_request tell;
  wire::cuda::passage_await_request await;
  tell.operation = await.operation = passage->next_operation++;
  tell.number = passage->number_in(there);
  tell.event = event->wire_id;
  await.number = passage->number_in(here);
  await.stream = stream_wire_id(stream);
  *result = there->enqueue(event->context, tell);
  if (*result == CUDA_SUCCESS) *result = here->enqueue(context, await);
  flush_lanes(*passage);
  return true;
}

}  // namespace tendril::client::cuda
