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
  struct Awaited {
    Session* session;
    Callback callback;
  };
  // A thread and what it is to run.
  struct Runner {
    Callbacks* all = nullptr;
    std::deque<Due> due;  // guarded by lock
    base::Event arrived;
    base::Thread thread;
  };
  base::Lock lock;
  std::unordered_map<uint64_t, Awaited> awaited;  // guarded by lock
  uint64_t next = 1;                              // guarded by lock
  std::atomic<size_t> count{0};                   // of `awaited`
  Runner programs, own;
  Runner& runner_of(const Callback& callback) { return callback.is_own ? own : programs; }
};

namespace {

Callbacks& callbacks() { return process()->callbacks.get(); }

void work(void* argument) {
  auto& mine = *static_cast<Callbacks::Runner*>(argument);
  session::Lane::exempt_this_thread();
  for (;;) {
    const uint32_t seen = mine.arrived.read();
    Callbacks::Due due;
    {
      const base::Locked held(mine.all->lock);
      if (!mine.due.empty()) {
        due = mine.due.front();
        mine.due.pop_front();
      }
    }
    if (due.callback.run != nullptr)
      due.callback.run(due.callback.argument, due.status);
    else
      mine.arrived.wait(seen, -1);
  }
}

// With the lock held.
void make_due(Callbacks& all, const Callback& callback, int32_t status) {
  Callbacks::Runner& runner = all.runner_of(callback);
  runner.due.push_back({callback, status});
  runner.arrived.signal();
}

}  // namespace

uint64_t await_callback(Session* session, const Callback& callback) {
  Callbacks& all = callbacks();
  uint64_t token = 0;
  {
    const base::Locked held(all.lock);
    Callbacks::Runner& runner = all.runner_of(callback);
    runner.all = &all;
    const char* const name = callback.is_own ? "opencl-moves" : "opencl-calls";
    if (!runner.thread.running() && !runner.thread.start(name, &work, &runner)) return 0;
    token = all.next++;
    all.awaited[token] = {session, callback};
    all.count.store(all.awaited.size(), std::memory_order_release);
  }
  session->lane->start_receiver();
  return token;
}

void callback_due(uint64_t token, int32_t status) {
  Callbacks& all = callbacks();
  const base::Locked held(all.lock);
  const auto found = all.awaited.find(token);
  if (found == all.awaited.end()) return;
  make_due(all, found->second.callback, status);
  all.awaited.erase(found);
  all.count.store(all.awaited.size(), std::memory_order_release);
}

bool callbacks_awaited() {
  return process() != nullptr && callbacks().count.load(std::memory_order_acquire) != 0;
}

void callbacks_lost(Session* session, int32_t status) {
  if (process() == nullptr) return;
  Callbacks& all = callbacks();
  const base::Locked held(all.lock);
  for (auto each = all.awaited.begin(); each != all.awaited.end();) {
    if (each->second.session != session) {
      ++each;
      continue;
    }
    make_due(all, each->second.callback, status);
    each = all.awaited.erase(each);
  }
  all.count.store(all.awaited.size(), std::memory_order_release);
}

}  // namespace tendril::client::opencl
