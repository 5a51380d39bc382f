// SPDX-License-Identifier: Apache-2.0
// See callbacks.h.
#include "client/opencl/callbacks.h"

#include <atomic>
#include <deque>
#include <unordered_map>

#include "base/lock.h"
#include "base/thread.h"
#include "client/opencl/state.h"

namespace tendril::client::opencl {

struct Callbacks {
  struct Due {
    Callback callback;
    int32_t status;
  };
  base::Lock lock;
  std::unordered_map<uint64_t, Callback> awaited;  // guarded by lock
  std::deque<Due> due;                             // guarded by lock
  uint64_t next = 1;                               // guarded by lock
  std::atomic<size_t> count{0};                    // of `awaited`
  base::Event arrived;
  base::Thread thread;
};

namespace {

Callbacks& callbacks() { return process()->callbacks.get(); }

void work(void* argument) {
  auto& all = *static_cast<Callbacks*>(argument);
  session::Lane::exempt_this_thread();
  for (;;) {
    const uint32_t seen = all.arrived.read();
    Callbacks::Due due;
    {
      const base::Locked held(all.lock);
      if (!all.due.empty()) {
        due = all.due.front();
        all.due.pop_front();
      }
    }
    if (due.callback.run != nullptr)
      due.callback.run(due.callback.argument, due.status);
    else
      all.arrived.wait(seen, -1);
  }
}

// With the lock held.
void make_due(Callbacks& all, const Callback& callback, int32_t status) {
  all.due.push_back({callback, status});
}

}  // namespace

uint64_t await_callback(Session* session, const Callback& callback) {
  Callbacks& all = callbacks();
  uint64_t token = 0;
  {
    const base::Locked held(all.lock);
    if (!all.thread.running() && !all.thread.start("opencl-calls", &work, &all)) return 0;
    token = all.next++;
    all.awaited[token] = callback;
    all.count.store(all.awaited.size(), std::memory_order_release);
  }
  session->lane->start_receiver();
  return token;
}

void forget_callback(uint64_t token) {
  Callbacks& all = callbacks();
  const base::Locked held(all.lock);
  all.awaited.erase(token);
  all.count.store(all.awaited.size(), std::memory_order_release);
}

void callback_due(uint64_t token, int32_t status) {
  Callbacks& all = callbacks();
  {
    const base::Locked held(all.lock);
    const auto found = all.awaited.find(token);
    if (found == all.awaited.end()) return;
    make_due(all, found->second, status);
    all.awaited.erase(found);
    all.count.store(all.awaited.size(), std::memory_order_release);
  }
  all.arrived.signal();
}

bool callbacks_awaited() {
  return process() != nullptr && callbacks().count.load(std::memory_order_acquire) != 0;
}

void callbacks_lost(int32_t status) {
  if (process() == nullptr) return;
  Callbacks& all = callbacks();
  {
    const base::Locked held(all.lock);
    for (const auto& [token, callback] : all.awaited) make_due(all, callback, status);
    all.awaited.clear();
    all.count.store(0, std::memory_order_release);
  }
  all.arrived.signal();
}

}  // namespace tendril::client::opencl
