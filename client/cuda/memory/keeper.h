// SPDX-License-Identifier: Apache-2.0
// Memory that this process keeps for its next allocations, and that other processes of its lease
// want. The worker says so unasked, but a program that does nothing receives nothing. So a thread
// looks now and then, and gives back what is kept (docs/decisions/0027). It starts with the first
// memory that is kept.
//
// memory.cc and pool.cc call this after they have kept something, or when they get no memory. Any
// thread.
#pragma once

#include "base/clock.h"
#include "client/cuda/state.h"

namespace tendril::client::cuda {

// Starts the thread. False: it cannot, so nothing is to be kept. Otherwise the caller's next call
// tells the worker (arena_pay with something ahead).
bool keeps_from_now(Session* session);
void tell_kept(Session* session);
// Something is kept. The caller holds none of the locks of what keeps it.
inline void note_kept(Session* session) {
  if (__builtin_expect(!session->told_kept.load(std::memory_order_relaxed), 0)) tell_kept(session);
}
// Others want it. On the thread that receives: it is the keeper's thread that gives it back.
void kept_memory_is_wanted(Session* session);

// What other processes of the lease keep.
class Others {
 public:
  // The slice has no room for `bytes`. True: others may have made some, so try again. Sleeps a
  // moment.
  bool give_back(Session* session, const Context* context, uint64_t bytes);
  // They have been asked already, and may give something back. False: not within reasonable time.
  bool may_come();

 private:
  static constexpr int kPatienceMs = 6000;
  const base::Deadline patience_{kPatienceMs};
  bool asked_ = false;  // some were to answer when this was asked last
};

// A call that may be refused for want of memory, and then has done nothing.
template <typename Request, typename Answer>
CUresult call_for_memory(Session* session, Context* context, uint64_t bytes, const Request& request,
                         Answer& reply) {
  CUresult result = session->call(context, request, reply);
  for (Others others; result == CUDA_ERROR_OUT_OF_MEMORY &&
                      (session->give_up_kept() || others.give_back(session, context, bytes));)
    result = session->call(context, request, reply);
  return result;
}

}  // namespace tendril::client::cuda
