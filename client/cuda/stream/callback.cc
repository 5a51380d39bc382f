// SPDX-License-Identifier: Apache-2.0
// cuLaunchHostFunc and cuStreamAddCallback. The function stays here. The worker's stream stops
// until a thread of ours has run it and said so. One callback thread per process runs them in the
// order of the requests, as a driver's does.
#include "client/cuda/stream/callback.h"

#include <time.h>

#include <algorithm>
#include <atomic>
#include <deque>
#include <unordered_map>

#include "base/clock.h"
#include "base/lock.h"
#include "base/thread.h"
#include "client/common/log.h"
#include "client/cuda/bodies.h"
#include "client/cuda/memory/mirror.h"
#include "client/cuda/stream/capture.h"

namespace tendril::client::cuda {

struct HostFunction {
  CUhostFn function = nullptr;
  CUstreamCallback callback = nullptr;
  CUstream stream = nullptr;
  void* data = nullptr;
  Session* session = nullptr;
  Object* object = nullptr;  // the user object whose destructor this is
  bool persistent = false;   // part of a graph: every launch of the graph runs it again
};

struct Callbacks {
  struct Ready {
    Session* session;
    uint64_t token, invocation;
  };

  base::Lock lock;
  base::Event arrived;
  std::unordered_map<uint64_t, HostFunction> waiting;
  std::deque<Ready> ready;
  uint64_t next = 1;
  base::Thread thread;
  std::atomic<bool> awaited{false};  // `waiting` is not empty

  // These are called with the lock held.
  void keep(uint64_t token, const HostFunction& item) {
    waiting[token] = item;
    awaited.store(true, std::memory_order_release);
  }
  void forget(uint64_t token) {
    waiting.erase(token);
    awaited.store(!waiting.empty(), std::memory_order_release);
  }
  bool start_thread();
};

namespace {

Callbacks& callbacks() { return process()->callbacks.get(); }

// The worker takes this message, and the pushes and fetches of mirrors, out of turn: a call ahead
// of it may be waiting for this very function. So no other message may be sent for a host function.
void answer(Session* session, uint64_t invocation) {
  wire::cuda::host_function_done_request request;
  request.invocation = invocation;
  session->enqueue(nullptr, request);
  session->lane->flush();
}

void run_one(const HostFunction& item, uint64_t invocation) {
  if (item.persistent && process()->written_mirrors.load(std::memory_order_relaxed) != 0)
    mirror_fetch_all(item.session,
                     nullptr);  // what the graph has written so far, which no wait has told of
  if (item.function != nullptr) item.function(item.data);
  if (item.callback != nullptr) item.callback(item.stream, CUDA_SUCCESS, item.data);
  if (item.object != nullptr) destroy_object(Kind::kUserObject, item.object);
  if (item.persistent)
    mirror_before_graph(item.session, nullptr);  // what the function wrote for the rest of it
  if (invocation != 0) answer(item.session, invocation);
}

Callbacks::Ready next_request(Callbacks* all) {
  for (;;) {
    const uint32_t seen = all->arrived.read();
    {
      const base::Locked held(all->lock);
      if (!all->ready.empty()) {
        const Callbacks::Ready request = all->ready.front();
        all->ready.pop_front();
        return request;
      }
    }
    all->arrived.wait(seen, -1);
  }
}

// False: a token that we never gave, or whose function has run.
bool function_of(Callbacks* all, uint64_t token, HostFunction* item) {
  const base::Locked held(all->lock);
  const auto found = all->waiting.find(token);
  if (found == all->waiting.end()) return false;
  *item = found->second;
  return true;
}

void run_requests(void* callbacks) {
  session::Lane::exempt_this_thread();
  auto* all = static_cast<Callbacks*>(callbacks);
  for (;;) {
    const auto [session, token, invocation] = next_request(all);
    HostFunction item;
    if (!function_of(all, token, &item)) {  // the stream goes on all the same
      if (invocation != 0) answer(session, invocation);
      continue;
    }
    run_one(item, invocation);
    if (item.persistent) continue;
    const base::Locked held(all->lock);
    all->forget(token);
  }
}

// Keeps the function for a request to come. 0: no thread could be started to run it.
uint64_t keep_function(const HostFunction& item) {
  Callbacks& all = callbacks();
  const base::Locked held(all.lock);
  if (!all.start_thread()) return 0;
  const uint64_t token = all.next++;
  all.keep(token, item);
  return token;
}

CUresult launch(CUstream hStream, HostFunction item) {
  Context* context = nullptr;
  Stream* stream = nullptr;
  TENDRIL_TRY(require_context(&context));
  TENDRIL_TRY(require_stream(context, hStream, &stream));
  if (stream != nullptr) context = stream->context;
  TENDRIL_TRY(check_work(context, stream));
  item.session = context->session;
  item.persistent = is_capturing(stream);
  const uint64_t token = keep_function(item);
  if (token == 0) return CUDA_ERROR_OPERATING_SYSTEM;
  context->session->lane->start_receiver();
  wire::cuda::host_function_request request;
  request.stream = stream_wire_id(stream);
  request.token = token;
  request.persistent = item.persistent;
  return context->session->enqueue(context, request);
}

}  // namespace

bool Callbacks::start_thread() {
  return thread.running() || thread.start("tendril-callbck", run_requests, this);
}

void run_callback(Session* session, uint64_t token, uint64_t invocation) {
  if (process() == nullptr) return;
  Callbacks& all = callbacks();
  {
    const base::Locked held(all.lock);
    all.start_thread();
    all.ready.push_back({session, token, invocation});
  }
  all.arrived.signal();
}

uint64_t add_host_function(Session* session, CUhostFn function, void* data) {
  HostFunction item;
  item.function = function;
  item.data = data;
  item.session = session;
  item.persistent = true;
  const uint64_t token = keep_function(item);
  if (token != 0) session->lane->start_receiver();
  return token;
}

bool host_function_of(uint64_t token, CUhostFn* function, void** data) {
  HostFunction item;
  if (!function_of(&callbacks(), token, &item) || item.function == nullptr) return false;
  *function = item.function;
  *data = item.data;
  return true;
}

void destroy_after(uint64_t token, Object* object) {
  Callbacks& all = callbacks();
  const base::Locked held(all.lock);
  const auto found = all.waiting.find(token);
  if (found == all.waiting.end()) return;
  found->second.object = object;
  found->second.persistent = false;
}

namespace {

constexpr uint64_t kPatienceNs = 2'000'000'000, kLookAgainMostNs = 5'000'000;

template <typename Answer, typename Request>
CUresult look_before(const char* call, Context* context, const Request& request) {
  const uint64_t begun_ns = base::now_ns();
  while (callbacks_pending()) {
    Answer r;
    const CUresult result = context->session->call(context, request, r);
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

CUresult look_before_wait(const char* call, Context* context, const Stream* stream) {
  wire::cuda::stream_query_request request;
  request.stream = stream_wire_id(stream);
  return look_before<wire::cuda::stream_query_reply>(
      call, stream != nullptr ? stream->context : context, request);
}

CUresult look_before_wait(const char* call, const Event* event) {
  wire::cuda::event_query_request request;
  request.event = event->wire_id;
  return look_before<wire::cuda::event_query_reply>(call, event->context, request);
}

bool Session::awaits_callbacks() {
  return process() != nullptr && callbacks().awaited.load(std::memory_order_acquire);
}

bool callbacks_pending() {
  Callbacks& all = callbacks();
  if (!all.awaited.load(std::memory_order_acquire)) return false;
  const base::Locked held(all.lock);
  return std::any_of(all.waiting.begin(), all.waiting.end(), [](const auto& entry) {
    return !entry.second.persistent && entry.second.object == nullptr;
  });
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
