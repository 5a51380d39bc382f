// SPDX-License-Identifier: Apache-2.0
// See keeper.h.
#include "client/cuda/memory/keeper.h"

#include <time.h>

#include "base/thread.h"

namespace tendril::client::cuda {

struct Keeper {
  base::Lock lock;  // for `thread`
  base::Thread thread;
  base::Event wake;
};

namespace {

constexpr int64_t kLookUs = 250'000;
constexpr long kAskAgainNs = 500'000;  // an answer takes a round trip of another process

// Frees that come meanwhile may be told before or after this, so the worker hears of them again.
void answer(Session* session) {
  if (process()->open_captures.load(std::memory_order_relaxed) == 0) {  // a free would disturb them
    session->send_frees();
    session->give_up_kept();
  }
  session->enqueue(nullptr, wire::cuda::memory_given_request{});
  session->told_kept.store(false, std::memory_order_relaxed);
  if (session->heap.keeps() || !session->freed.empty()) note_kept(session);
  session->lane->flush();
}

void run(void* argument) {
  session::Lane::exempt_this_thread();
  auto* const keeper = static_cast<Keeper*>(argument);
  for (;;) {
    const uint32_t seen = keeper->wake.read();
    bool keeps = false;
    for (Session* session : process()->sessions) {
      if (session->told_kept.load(std::memory_order_relaxed)) session->lane->pump();
      if (session->kept_wanted.exchange(false)) answer(session);
      keeps |= session->told_kept.load(std::memory_order_relaxed) && !session->lane->is_lost();
    }
    keeper->wake.wait(seen, keeps ? kLookUs : -1);
  }
}

}  // namespace

bool keeps_from_now(Session* session) {
  if (session->told_kept.load(std::memory_order_relaxed)) return true;
  Keeper& keeper = process()->keeper.get();
  {
    const base::Locked locked(keeper.lock);
    if (!keeper.thread.running() && !keeper.thread.start("tendril-keeper", run, &keeper))
      return false;
  }
  session->told_kept.store(true, std::memory_order_relaxed);
  keeper.wake.signal();
  return true;
}

void tell_kept(Session* session) {
  // Without the thread nobody would answer, so nobody is to ask.
  if (!keeps_from_now(session)) return;
  // Awaited: another process that this program wakes afterwards may ask at once.
  wire::cuda::memory_keeps_reply known;
  session->call_ahead_of_frees(nullptr, wire::cuda::memory_keeps_request{}, known);
}

void kept_memory_is_wanted(Session* session) {
  Process* const program = process();
  if (program == nullptr) return;
  session->kept_wanted.store(true);
  program->keeper->wake.signal();
}

bool Others::give_back(Session* session, const Context* context, uint64_t bytes) {
  wire::cuda::memory_wanted_request request;
  wire::cuda::memory_wanted_reply reply;
  request.bytes = bytes;
  if (session->call(context, request, reply) != CUDA_SUCCESS) return false;
  const bool asked_before = asked_;
  asked_ = reply.others != 0;
  return asked_ ? may_come() : asked_before;  // what came last was not tried yet
}

bool Others::may_come() {
  if (patience_.passed()) return false;
  const timespec nap{0, kAskAgainNs};
  nanosleep(&nap, nullptr);
  return true;
}

}  // namespace tendril::client::cuda
