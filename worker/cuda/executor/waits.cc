// SPDX-License-Identifier: Apache-2.0
// See waits.h.
#include "worker/cuda/executor/waits.h"

#include <unistd.h>

#include <algorithm>

#include "base/clock.h"
#include "base/text.h"
#include "worker/core/output.h"
#include "worker/cuda/memory/mirror.h"

namespace tendril::worker::cuda {
namespace {

// Of a shared GPU, whose other tenants need processors.
constexpr uint32_t kPollInTurnsUs = 1'000;
constexpr uint64_t kCloseLookNs = 200'000;
constexpr size_t kDeliveriesMax = 4096;
constexpr unsigned kSoonUs = 50;  // how often a thread looks whether a delivery is there

}  // namespace

Waiters::Waiters(Executor* executor)
    : executor_(executor),
      poll_us_(base::wait_spin_us()),
      staging_(&executor->driver(), &executor->host()) {}

void Waiters::finish() {
  std::unique_lock<std::mutex> hold(mutex_);
  ending_ = true;
  handed_over_.notify_all();
  looked_at_.notify_all();
  thread_ended_.wait(hold, [this] { return threads_ == 0 && !looking_; });
  hold.unlock();
  {
    const std::lock_guard<std::mutex> deliveries(delivery_mutex_);
    deliveries_end_ = true;
    soon_.notify_one();
  }
  if (delivery_thread_runs_) pthread_join(delivery_thread_, nullptr);
  delivery_thread_runs_ = false;
}

CUresult Waiters::query(Wait* wait) {
  gpu::Driver& driver = executor_->driver();
  const bool stream = wait->kind == WaitKind::kStream, context = wait->kind == WaitKind::kContext;
  CUevent event = stream || context ? wait->own_event : static_cast<CUevent>(wait->object);
  CUresult result = CUDA_SUCCESS;
  if (event != nullptr)
    result = driver.cuEventQuery(event);
  else if (stream)
    result = driver.cuStreamQuery(static_cast<CUstream>(wait->object));
  while (result == CUDA_SUCCESS && wait->stream_count != 0) {
    result = driver.cuStreamQuery(wait->streams[wait->stream_count - 1]);
    if (result == CUDA_SUCCESS) --wait->stream_count;
  }
  if (context && result != CUDA_SUCCESS && result != CUDA_ERROR_NOT_READY)
    wait->context->untold = true;
  return result;
}

// When a query says that all is done, synchronise all the same: only then does a driver print what
// kernels have printed, take what was freed in stream order for free, and trim its pools. Nothing
// was added in between, so it returns at once, but not for nothing: an H200 takes 1.3 us more than
// the program's own synchronising would (bench/driver_bench.cc). An event does all that, too.
CUresult Waiters::synchronise(const Wait& wait) {
  gpu::Driver& driver = executor_->driver();
  if (wait.own_event != nullptr) return driver.cuEventSynchronize(wait.own_event);
  if (wait.kind == WaitKind::kEvent)
    return driver.cuEventSynchronize(static_cast<CUevent>(wait.object));
  const bool context = wait.kind == WaitKind::kContext;
  return context ? driver.cuCtxSynchronize()
                 : driver.cuStreamSynchronize(static_cast<CUstream>(wait.object));
}

// A driver lets the room for what kernels print be set until it is given one that prints
// (docs/decisions/0015-answers-before-synchronising.md).
bool Waiters::is_quiet() const {
  gpu::Driver& driver = executor_->driver();
  size_t bytes = 0;
  return driver.cuCtxGetLimit(&bytes, CU_LIMIT_PRINTF_FIFO_SIZE) == CUDA_SUCCESS &&
         driver.cuCtxSetLimit(CU_LIMIT_PRINTF_FIFO_SIZE, bytes) == CUDA_SUCCESS;
}

void Waiters::end(Wait wait, CUresult result) {
  if (result == CUDA_SUCCESS && wait.quiet) {
    synchronise_owed();
    owed_ = {wait.driver_context, wait.own_event};
    wait.own_event = nullptr;
  } else if (result == CUDA_SUCCESS) {
    result = synchronise(wait);
  }
  complete(wait, result, true);
}

// An error would be one that every later call tells, too: what was waited for had ended well.
void Waiters::synchronise_owed() {
  if (owed_.event == nullptr) return;
  const KeepsContext keeps(&executor_->contexts());
  executor_->contexts().use(owed_.context);
  executor_->driver().cuEventSynchronize(owed_.event);
  staging_.give_back_event(owed_.context, owed_.event);
  owed_.event = nullptr;
}

// Other streams would wait for an event on the legacy stream, and it for them: only when they have
// nothing. Never while there are captures, which would take the event up.
void Waiters::begin_stream_wait(Wait* wait) {
  CUstream stream = static_cast<CUstream>(wait->object);
  const WorkerContext* context = wait->context;
  if (context == nullptr || executor_->streams().capturing()) return;
  const bool others = !context->touched.empty() || context->untold || context->waits.load() != 0;
  if (stream != CU_STREAM_LEGACY || !others)
    wait->own_event = staging_.record_event(wait->driver_context, stream);
}

// There is no query for a context. True: its streams can be asked in its place. False: a thread
// must synchronise, because they do not tell all, or must not be asked.
bool Waiters::begin_context_wait(Wait* wait) {
  WorkerContext& context = *wait->context;
  const bool alone = context.waits.fetch_add(1) == 0;
  bool green = false;  // waited for with the primary context
  executor_->objects().for_each(Kind::kGreenContext, [&](uint64_t, void*) { green = true; });
  const bool ask = alone && !green && !context.untold && !executor_->streams().capturing() &&
                   context.touched.size() < Wait::kStreamsMax;
  const size_t touched = context.touched.size();
  if (ask && touched <= 1) {
    CUstream stream = touched == 0 ? CU_STREAM_LEGACY : context.touched[0];
    wait->own_event = staging_.record_event(wait->driver_context, stream);
  }
  const bool marked = wait->own_event != nullptr;
  if (ask && (!marked || touched != 0)) wait->streams[wait->stream_count++] = CU_STREAM_LEGACY;
  if (ask && !marked)
    for (CUstream stream : context.touched) wait->streams[wait->stream_count++] = stream;
  context.touched.clear();
  context.touched_last = nullptr;
  context.untold = false;
  return ask;
}

bool Waiters::too_many() const {
  return outstanding_.load(std::memory_order_relaxed) >= wire::kCallsAheadMax;
}

void Waiters::add(const Wait& wait) {
  Wait mine = wait;
  mine.begun_ns = base::now_ns();
  outstanding_.fetch_add(1, std::memory_order_relaxed);
  // Otherwise a thread sleeps, as the other client threads' calls must go on.
  if (mine.kind == WaitKind::kContext && !begin_context_wait(&mine)) {
    hand_over(mine);
    return;
  }
  if (mine.kind == WaitKind::kStream) begin_stream_wait(&mine);
  // While the GPU works.
  mine.quiet = mine.own_event != nullptr && !executor_->streams().capturing() && is_quiet();
  synchronise_owed();
  const CUresult result = query(&mine);
  if (result != CUDA_ERROR_NOT_READY) return end(mine, result);
  mine.owner = owner_of(mine);
  polled_.push_back(mine);
  poll_spin_.reset();
}

// The client's stream or event that a thread needs for the wait. Null: an event of ours is enough.
void* Waiters::used_by(const Wait& wait) {
  const bool own = wait.own_event != nullptr || wait.delivered != nullptr;
  return own || wait.object == CU_STREAM_LEGACY ? nullptr : wait.object;
}

CUcontext Waiters::owner_of(const Wait& wait) {
  void* object = used_by(wait);
  if (object == nullptr) return nullptr;
  const Objects& objects = executor_->objects();
  if (wait.kind == WaitKind::kEvent) {
    const void* owner = objects.owner(objects.known_id(Kind::kEvent, object));
    return static_cast<CUcontext>(const_cast<void*>(owner));
  }
  CUcontext owner = nullptr;
  executor_->driver().cuStreamGetCtx(static_cast<CUstream>(object), &owner);
  return owner;
}

Wait Waiters::take_polled(size_t i) {
  const Wait wait = polled_[i];
  polled_[i] = polled_.back();
  polled_.pop_back();
  return wait;
}

Wait Waiters::of_call(WaitKind kind, void* object) {
  Wait wait;
  wait.kind = kind;
  wait.object = object;
  wait.context = executor_->context();
  wait.driver_context = executor_->contexts().current_in_driver();
  wait.reply_id = executor_->call().reply_id;
  return wait;
}

CUresult Waiters::answer_after(WaitKind kind, void* object) {
  if (too_many()) return CUDA_ERROR_OUT_OF_MEMORY;
  executor_->replies().take_over();
  add(of_call(kind, object));
  return CUDA_SUCCESS;
}

CUresult Waiters::answer_after_copy(CUstream stream, const Block& block, uint64_t bytes) {
  CUevent copied = nullptr;
  const CUresult marked = mark_copy(executor_->context()->context, stream, block, &copied);
  if (marked != CUDA_SUCCESS) return marked;
  if (too_many()) {  // no client of ours lets so many threads wait
    executor_->driver().cuEventSynchronize(copied);
    staging_.give_back_event(executor_->context()->context, copied);
    staging_.give_back(block);
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  Wait wait = of_call(WaitKind::kEvent, copied);
  wait.own_event = copied;
  wait.block = block;
  wait.bytes = bytes;
  executor_->replies().take_over();
  add(wait);
  return CUDA_SUCCESS;
}

void Waiters::forget_stream(CUstream stream) {
  {
    std::lock_guard<std::mutex> hold(delivery_mutex_);
    for (Delivery& delivery : deliveries_)
      if (delivery.stream == stream)
        delivery.number = 0;  // another stream may be given its name before it is over
  }
  for (size_t i = 0; i < polled_.size();) {
    const Wait& wait = polled_[i];
    if (wait.kind != WaitKind::kContext || std::find(wait.streams, wait.streams + wait.stream_count,
                                                     stream) == wait.streams + wait.stream_count)
      ++i;
    else
      hand_over(take_polled(i));
  }
}

void Waiters::deliver_from_callback(CUstream stream, uint64_t last) {
  if (delivery_count_.load(std::memory_order_acquire) == 0) return;
  {
    std::lock_guard<std::mutex> hold(delivery_mutex_);
    for (auto it = deliveries_.begin(); it != deliveries_.end();) {
      if (it->number == 0 || it->number > last || it->stream != stream) {
        ++it;
        continue;
      }
      send_delivery(*it);
      it = deliveries_.erase(it);
    }
    delivery_count_.store(deliveries_.size(), std::memory_order_release);
    if (deliveries_.empty()) return;
  }
  // Events may have ordered them before the function, too.
  bool done = false;
  Wait job;
  job.delivered = &done;
  if (!hand_over(job)) return;
  std::unique_lock<std::mutex> hold(mutex_);
  delivered_.wait(hold, [&done] { return done; });
}

void Waiters::poll() {
  const uint64_t now = base::now_ns();
  const bool alone = executor_->gate().gate().pace() == Gate::Pace::kNever;
  // Then a thread takes over.
  const uint32_t most_us = waits_.spin_us(alone ? poll_us_ : std::min(poll_us_, kPollInTurnsUs));
  const bool wanted = !poll_spin_.again();  // others want this processor, perhaps the GPU's work
  for (size_t i = 0; i < polled_.size();) {
    // Once others have given the context more to do, synchronising it would wait for that too.
    const bool joined =
        polled_[i].kind == WaitKind::kContext && !polled_[i].context->touched.empty();
    executor_->contexts().use(polled_[i].driver_context);
    const CUresult result = joined ? CUDA_ERROR_NOT_READY : query(&polled_[i]);
    const bool late = joined || (result == CUDA_ERROR_NOT_READY &&
                                 (wanted || now - polled_[i].begun_ns > uint64_t{most_us} * 1000));
    if (result == CUDA_ERROR_NOT_READY && !late) {
      ++i;
      continue;
    }
    const Wait wait = take_polled(i);
    if (!late) {
      end(wait, result);
      ended_ = true;
      poll_spin_.reset();
      continue;
    }
    hand_over(wait);
  }
}

void Waiters::send_news(bool on_executor) {
  session::Service& service = executor_->service();
  deliver();
  executor_->output().send(&service);
  if (executor_->mirrors().any_written(on_executor))
    service.push(wire::FrameKind::kMemoryWritten, 0, nullptr, 0);
}

void Waiters::complete(const Wait& wait, CUresult result, bool on_executor) {
  session::Service& service = executor_->service();
  outstanding_.fetch_sub(1, std::memory_order_relaxed);
  if (!base::has_many_cpus()) waits_.took(base::now_ns() - wait.begun_ns);
  if (wait.kind == WaitKind::kContext) wait.context->waits.fetch_sub(1);
  // Before the reply: the client may end the context then, and what comes back later would outlive
  // it.
  staging_.give_back_event(wait.driver_context, wait.own_event);
  send_news(on_executor);
  if (result == CUDA_SUCCESS) result = Contexts::take_deferred_of(wait.context);
  if (wait.block.data == nullptr || result != CUDA_SUCCESS) {
    service.reply(wait.reply_id, result, nullptr, 0);
  } else {
    // The reply is {count, bytes}: written in two parts so that the data is not copied again.
    const uint64_t count = wait.bytes;
    service.reply2(wait.reply_id, result, &count, sizeof count, wait.block.data,
                   static_cast<uint32_t>(wire::padded(wait.bytes)));
  }
  staging_.give_back(wait.block);
}

CUresult Waiters::mark_copy(CUcontext context, CUstream stream, const Block& block,
                            CUevent* event) {
  CUresult result = CUDA_SUCCESS;
  *event = staging_.record_event(context, stream, &result);
  if (*event != nullptr) return result;
  // The GPU writes the block no more.
  const CUresult ended = executor_->driver().cuStreamSynchronize(stream);
  staging_.give_back(block);
  const bool none = result == CUDA_ERROR_OUT_OF_MEMORY;
  return none && ended != CUDA_SUCCESS ? ended
                                       : result;  // a fault on the GPU is why there is no event
}

CUresult Waiters::add_delivery(CUstream stream, Delivery delivery) {
  const CUresult result = mark_copy(delivery.context, stream, delivery.block, &delivery.event);
  if (result != CUDA_SUCCESS) return result;
  delivery.stream = stream;
  delivery.number = ++last_delivery_;
  bool many = false;
  {
    std::lock_guard<std::mutex> hold(delivery_mutex_);
    give_back_spent();
    deliveries_.push_back(delivery);
    delivery_bytes_ += delivery.block.bytes;
    delivery_count_.store(deliveries_.size(), std::memory_order_release);
    many = deliveries_.size() > kDeliveriesMax;
    if (delivery.soon) send_soon();
  }
  if (many) deliver_all();
  return CUDA_SUCCESS;
}

// delivery_mutex_ held. Without a thread the next wait sends it.
void Waiters::send_soon() {
  if (!delivery_thread_runs_)
    delivery_thread_runs_ = pthread_create(&delivery_thread_, nullptr, delivery_main, this) == 0;
  if (soon_count_++ == 0) soon_.notify_one();
}

// It never waits in the driver: a context that ends takes its deliveries along under the lock, and
// its events are not asked after that.
void* Waiters::delivery_main(void* self) {
  Waiters* waiters = static_cast<Waiters*>(self);
  std::unique_lock<std::mutex> hold(waiters->delivery_mutex_);
  while (!waiters->deliveries_end_) {
    if (waiters->soon_count_ == 0) {
      waiters->soon_.wait(hold);
      continue;
    }
    hold.unlock();
    usleep(kSoonUs);  // a wait that comes at once sends it without a change of threads
    hold.lock();
    if (!waiters->deliveries_end_) waiters->deliver_in_own_context();
  }
  return nullptr;
}

uint64_t Waiters::delivery_bytes() {
  std::lock_guard<std::mutex> hold(delivery_mutex_);
  return delivery_bytes_;
}

void Waiters::make_room(uint64_t bytes, uint64_t most, uint64_t* patience_ns) {
  uint64_t before = UINT64_MAX, begun_ns = 0;
  for (;;) {
    deliver();
    const uint64_t held = delivery_bytes();
    if (held == 0 || held + bytes <= most) return;
    const uint64_t now = base::now_ns();
    if (held != before) begun_ns = now;
    before = held;
    if (now - begun_ns >= *patience_ns) break;
    if (now - begun_ns > kCloseLookNs) usleep(kSoonUs);
  }
  *patience_ns = 0;
}

void Waiters::deliver() {
  if (delivery_count_.load(std::memory_order_acquire) == 0) return;
  std::lock_guard<std::mutex> hold(delivery_mutex_);
  deliver_locked();
}

// delivery_mutex_ held, on a thread of ours that has no context yet. (NVIDIA's driver answers about
// events without one.)
void Waiters::deliver_in_own_context() {
  if (deliveries_.empty()) return;
  executor_->driver().cuCtxSetCurrent(deliveries_.front().context);
  deliver_locked();
}

// delivery_mutex_ held; no call of the driver, which giving a block back may be. Whoever calls
// takes it out of the list.
void Waiters::send_delivery(const Delivery& delivery) {
  session::Service& service = executor_->service();
  if (delivery.transfer != 0) {
    service.send_bulk(delivery.transfer, delivery.offset, delivery.block.data, delivery.bytes);
    if (delivery.last) service.transfer_sent(delivery.transfer);
  } else {
    service.deliver(delivery.host, delivery.block.data, static_cast<uint32_t>(delivery.bytes));
  }
  spent_.push_back(delivery.block);
  staging_.give_back_event(delivery.context, delivery.event);
  delivery_bytes_ -= delivery.block.bytes;
  soon_count_ -= delivery.soon;
}

// delivery_mutex_ held, not on a driver's callback thread.
void Waiters::give_back_spent() {
  for (const Block& block : spent_) staging_.give_back(block);
  spent_.clear();
}

void Waiters::deliver_locked() {
  gpu::Driver& driver = executor_->driver();
  for (auto it = deliveries_.begin(); it != deliveries_.end();) {
    if (it->event != nullptr && driver.cuEventQuery(it->event) == CUDA_ERROR_NOT_READY) {
      ++it;
      continue;
    }
    send_delivery(*it);
    it = deliveries_.erase(it);
  }
  delivery_count_.store(deliveries_.size(), std::memory_order_release);
  give_back_spent();
}

void Waiters::deliver_all() {
  gpu::Driver& driver = executor_->driver();
  std::vector<CUevent> events;
  {
    std::lock_guard<std::mutex> hold(delivery_mutex_);
    for (const Delivery& delivery : deliveries_) events.push_back(delivery.event);
  }
  for (CUevent event : events) {
    if (event != nullptr) driver.cuEventSynchronize(event);
  }
  deliver();
  // A thread that sends the last of them may still be in the driver.
  std::lock_guard<std::mutex> hold(delivery_mutex_);
  give_back_spent();
}

void Waiters::in_flight(CUstream stream, InFlight item) {
  item.event = staging_.record_event(item.context, stream);
  // Without one the context is broken; nothing reads the memory any more once the stream is idle.
  if (item.event == nullptr) executor_->driver().cuStreamSynchronize(stream);
  if (item.is_piece) ++pieces_in_flight_;
  flights_.push_back(item);
}

void Waiters::reclaim(size_t pieces_at_most) {
  gpu::Driver& driver = executor_->driver();
  while (!flights_.empty()) {
    InFlight& oldest = flights_.front();
    if (oldest.event != nullptr) {
      if (pieces_in_flight_ > pieces_at_most)
        driver.cuEventSynchronize(oldest.event);
      else if (driver.cuEventQuery(oldest.event) == CUDA_ERROR_NOT_READY)
        break;
    }
    if (oldest.is_piece) {
      executor_->service().release(oldest.piece);
      --pieces_in_flight_;
    }
    staging_.give_back(oldest.block);
    staging_.give_back_event(oldest.context, oldest.event);
    flights_.pop_front();
  }
}

void Waiters::forget_context(CUcontext context) {
  for (auto it = flights_.begin(); it != flights_.end();) {
    if (it->context != context) {
      ++it;
      continue;
    }
    if (it->is_piece) {
      executor_->service().release(it->piece);
      --pieces_in_flight_;
    }
    staging_.give_back(it->block);
    it = flights_.erase(it);
  }
  staging_.forget_events(context);
}

}  // namespace tendril::worker::cuda
