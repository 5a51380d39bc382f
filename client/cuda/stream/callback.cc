// SPDX-License-Identifier: Apache-2.0
// cuLaunchHostFunc and cuStreamAddCallback. The function stays here; the worker's stream stops
// until a thread of ours has run it and said so. One callback thread per process runs them in the
// order of the requests, as a driver's own callback thread would.
#include "client/cuda/stream/callback.h"

#include <signal.h>
#include <time.h>

#include <algorithm>
#include <atomic>
#include <deque>
#include <unordered_map>

#include "base/clock.h"
#include "client/common/log.h"
#include "client/cuda/bodies.h"
#include "client/cuda/memory/mirror.h"
#include "client/cuda/stream/capture.h"

namespace tendril::client::cuda {
namespace {

struct HostFunction {
  CUhostFn function = nullptr;
  CUstreamCallback callback = nullptr;
  CUstream stream = nullptr;
  void* data = nullptr;
  Session* session = nullptr;
  Object* object = nullptr;  // the user object whose destructor this is
  bool persistent = false;   // part of a graph: every launch of the graph runs it again
};

struct Ready {
  Session* session;
  uint64_t token, invocation;
};

struct Callbacks {
  pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
  pthread_cond_t arrived = PTHREAD_COND_INITIALIZER;
  std::unordered_map<uint64_t, HostFunction> waiting;
  std::deque<Ready> ready;
  uint64_t next = 1;
  bool running = false;
  std::atomic<bool> awaited{false};  // `waiting` is not empty

  // With the mutex held.
  void keep(uint64_t token, const HostFunction& item) {
    waiting[token] = item;
    awaited.store(true, std::memory_order_release);
  }
  void forget(uint64_t token) {
    waiting.erase(token);
    awaited.store(!waiting.empty(), std::memory_order_release);
  }
};

// Made on first use, never destroyed; after fork the child has a Process of its own and starts with
// none of it.
Callbacks* callbacks() {
  static Callbacks* all = new Callbacks;
  return all;
}

// The worker may take this out of its turn, and the mirrors' pushes and fetches: a call ahead of it
// may be waiting for this very function. So nothing else may be sent for a host function.
void answer(Session* session, uint64_t invocation) {
  wire::cuda::host_function_done_request m;
  m.invocation = invocation;
  session->enqueue(nullptr, m);
  session->lane->flush();
}

void run_one(const HostFunction& item, uint64_t invocation) {
  if (item.persistent && g_written_mirrors.load(std::memory_order_relaxed) != 0)
    mirror_fetch_all(item.session,
                     nullptr);  // what the graph has written so far, which no wait has told of
  if (item.function != nullptr) item.function(item.data);
  if (item.callback != nullptr) item.callback(item.stream, CUDA_SUCCESS, item.data);
  if (item.object != nullptr) destroy_object(Kind::kUserObject, item.object);
  if (item.persistent)
    mirror_before_graph(item.session, nullptr);  // what the function wrote for the rest of it
  if (invocation != 0) answer(item.session, invocation);
}

void* callback_thread(void*) {
  session::Lane::exempt_this_thread();
  Callbacks* all = callbacks();
  for (;;) {
    pthread_mutex_lock(&all->mutex);
    while (all->ready.empty()) pthread_cond_wait(&all->arrived, &all->mutex);
    const auto [session, token, invocation] = all->ready.front();
    all->ready.pop_front();
    auto it = all->waiting.find(token);
    const bool known = it != all->waiting.end();
    const HostFunction item = known ? it->second : HostFunction{};
    pthread_mutex_unlock(&all->mutex);
    if (!known) {  // a token we never gave, or one already run: the stream goes on all the same
      if (invocation != 0) answer(session, invocation);
      continue;
    }
    run_one(item, invocation);
    pthread_mutex_lock(&all->mutex);
    if (!item.persistent) all->forget(token);
    pthread_mutex_unlock(&all->mutex);
  }
  return nullptr;
}

bool start_thread(Callbacks* all) {
  if (all->running) return true;
  sigset_t everything, before;
  sigfillset(&everything);
  pthread_sigmask(SIG_BLOCK, &everything, &before);
  pthread_t thread;
  all->running = pthread_create(&thread, nullptr, callback_thread, nullptr) == 0;
  if (all->running) pthread_detach(thread);
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  return all->running;
}

CUresult launch(CUstream hStream, HostFunction item) {
  Context* c = nullptr;
  Stream* s = nullptr;
  TENDRIL_TRY(require_context(&c));
  TENDRIL_TRY(require_stream(c, hStream, &s));
  if (s != nullptr) c = s->context;
  TENDRIL_TRY(check_work(c, s));
  item.session = c->session;
  item.persistent = is_capturing(s);
  Callbacks* all = callbacks();
  pthread_mutex_lock(&all->mutex);
  const bool started = start_thread(all);
  const uint64_t token = all->next++;
  if (started) all->keep(token, item);
  pthread_mutex_unlock(&all->mutex);
  if (!started) return CUDA_ERROR_OPERATING_SYSTEM;
  c->session->lane->start_receiver();
  wire::cuda::host_function_request m;
  m.stream = stream_wire_id(s);
  m.token = token;
  m.persistent = item.persistent;
  return c->session->enqueue(c, m);
}

}  // namespace

void run_callback(Session* session, uint64_t token, uint64_t invocation) {
  Callbacks* all = callbacks();
  pthread_mutex_lock(&all->mutex);
  start_thread(all);
  all->ready.push_back({session, token, invocation});
  pthread_cond_signal(&all->arrived);
  pthread_mutex_unlock(&all->mutex);
}

uint64_t add_host_function(Session* session, CUhostFn function, void* data) {
  HostFunction item;
  item.function = function;
  item.data = data;
  item.session = session;
  item.persistent = true;
  Callbacks* all = callbacks();
  pthread_mutex_lock(&all->mutex);
  const bool started = start_thread(all);
  const uint64_t token = started ? all->next++ : 0;
  if (started) all->keep(token, item);
  pthread_mutex_unlock(&all->mutex);
  if (started) session->lane->start_receiver();
  return token;
}

bool host_function_of(uint64_t token, CUhostFn* function, void** data) {
  Callbacks* all = callbacks();
  pthread_mutex_lock(&all->mutex);
  auto it = all->waiting.find(token);
  const bool known = it != all->waiting.end() && it->second.function != nullptr;
  if (known) {
    *function = it->second.function;
    *data = it->second.data;
  }
  pthread_mutex_unlock(&all->mutex);
  return known;
}

void destroy_after(uint64_t token, Object* object) {
  Callbacks* all = callbacks();
  pthread_mutex_lock(&all->mutex);
  auto it = all->waiting.find(token);
  if (it != all->waiting.end()) {
    it->second.object = object;
    it->second.persistent = false;
  }
  pthread_mutex_unlock(&all->mutex);
}

namespace {

constexpr uint64_t kPatienceNs = 2'000'000'000, kLookAgainMostNs = 5'000'000;

template <typename Answer, typename Request>
CUresult look_before(const char* call, Context* c, const Request& m) {
  const uint64_t begun_ns = base::now_ns();
  while (callbacks_pending()) {
    Answer r;
    const CUresult result = c->session->call(c, m, r);
    if (result != CUDA_ERROR_NOT_READY) return result;
    const uint64_t spent_ns = base::now_ns() - begun_ns;
    if (spent_ns > kPatienceNs) {
      log_once(LogLevel::kWarning,
               "%s waits while a host function has not ended, which without Tendril it does not. "
               "Should the "
               "thread that called it be the one to let that function end, both wait for ever: let "
               "it end first, or "
               "from another thread",
               call);
      break;
    }
    const timespec pause{0, static_cast<long>(std::min(spent_ns / 8, kLookAgainMostNs))};
    nanosleep(&pause, nullptr);
  }
  return CUDA_SUCCESS;
}

}  // namespace

CUresult look_before_wait(const char* call, Context* c, const Stream* stream) {
  wire::cuda::stream_query_request m;
  m.stream = stream_wire_id(stream);
  return look_before<wire::cuda::stream_query_reply>(call, stream != nullptr ? stream->context : c,
                                                     m);
}

CUresult look_before_wait(const char* call, const Event* event) {
  wire::cuda::event_query_request m;
  m.event = event->wire_id;
  return look_before<wire::cuda::event_query_reply>(call, event->context, m);
}

bool Session::awaits_callbacks() { return callbacks()->awaited.load(std::memory_order_acquire); }

bool callbacks_pending() {
  Callbacks* all = callbacks();
  if (!all->awaited.load(std::memory_order_acquire)) return false;
  pthread_mutex_lock(&all->mutex);
  bool pending = false;
  for (const auto& entry : all->waiting)
    pending |= !entry.second.persistent && entry.second.object == nullptr;
  pthread_mutex_unlock(&all->mutex);
  return pending;
}

CUresult cuLaunchHostFunc(CUstream hStream, CUhostFn fn, void* userData) {
  if (fn == nullptr) return CUDA_ERROR_INVALID_VALUE;
  HostFunction item;
  item.function = fn;
  item.data = userData;
  return launch(hStream, item);
}

CUresult cuStreamAddCallback(CUstream hStream, CUstreamCallback callback, void* userData,
                             unsigned int flags) {
  if (callback == nullptr || flags != 0) return CUDA_ERROR_INVALID_VALUE;
  HostFunction item;
  item.callback = callback;
  item.stream = hStream;
  item.data = userData;
  return launch(hStream, item);
}

}  // namespace tendril::client::cuda
