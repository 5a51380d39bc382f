// SPDX-License-Identifier: Apache-2.0
// See turn.h.
#include "worker/cuda/turn.h"

#include <pthread.h>
#include <sched.h>
#include <unistd.h>

namespace tendril::worker::cuda {
namespace {

constexpr useconds_t kPatienceUs = 100;  // a thread switch costs some 10 us: shorter absences are waited for
constexpr int kQuietLooksMax = 50;       // then the stand-in sleeps until the reader leaves again
// A client has one call of each of its threads under way; one that pretends to have more gets no more threads of ours.
constexpr uint32_t kThreadsMax = 256;

thread_local char t_self;  // its address names the thread

}  // namespace

void Turn::begin() { reader_.store(&t_self, std::memory_order_relaxed); }

void Turn::end() {
  ending_.store(true, std::memory_order_seq_cst);
  left_.signal();
  for (bool over = false; !over;) {
    const uint32_t seen = ended_.read();
    take_back();
    over = threads_ == 0;
    give();
    if (!over) ended_.wait(seen, 10'000);
  }
}

bool Turn::is_reader() const { return reader_.load(std::memory_order_relaxed) == &t_self; }

void Turn::take() {
  while (returning_.load(std::memory_order_acquire) != 0) sched_yield();
  lock_.lock();
}

void Turn::take_back() {
  returning_.fetch_add(1, std::memory_order_acq_rel);
  lock_.lock();
  returning_.fetch_sub(1, std::memory_order_acq_rel);
}

void Turn::leave() {
  if (is_reader()) {
    if (!watched_) start_watch();
    away_.fetch_add(1, std::memory_order_seq_cst);
    left_.signal();
  }
  give();
}

void Turn::come_back() {
  take_back();
  if (is_reader()) away_.fetch_add(1, std::memory_order_seq_cst);
}

void Turn::start_watch() {
  if (threads_ == kThreadsMax || ending_.load(std::memory_order_relaxed)) return;
  pthread_t thread;
  if (pthread_create(&thread, nullptr, watch_main, this) != 0) return;
  pthread_detach(thread);
  watched_ = true;
  ++threads_;
}

// Takes the reader's place if it is still away since `seen`. True: this thread was the reader, and is not any more.
bool Turn::stand_in(uint32_t seen) {
  take_back();
  if (away_.load(std::memory_order_relaxed) != seen) {
    give();
    return false;
  }
  reader_.store(&t_self, std::memory_order_relaxed);
  away_.fetch_add(1, std::memory_order_seq_cst);
  watched_ = false;
  give();
  read_(executor_);
  return true;
}

void* Turn::watch_main(void* self) {
  Turn* turn = static_cast<Turn*>(self);
  bool spare = false;
  for (int quiet = 0; !spare && !turn->ending_.load(std::memory_order_seq_cst);) {
    const uint32_t wake = turn->left_.read();
    if (turn->ending_.load(std::memory_order_seq_cst)) break;
    const uint32_t seen = turn->away_.load(std::memory_order_seq_cst);
    const bool away = (seen & 1) != 0;
    quiet = away ? 0 : quiet + 1;
    if (quiet > kQuietLooksMax) {
      turn->left_.wait(wake, -1);
      continue;
    }
    usleep(kPatienceUs);
    if (!away || turn->away_.load(std::memory_order_seq_cst) != seen || !turn->stand_in(seen)) continue;
    turn->take_back();
    spare = turn->watched_;
    turn->watched_ = true;
    turn->give();
  }
  turn->take_back();
  --turn->threads_;
  if (!spare) turn->watched_ = false;
  turn->ended_.signal();
  turn->give();
  return nullptr;
}

}  // namespace tendril::worker::cuda
