// SPDX-License-Identifier: Apache-2.0
// See shared_event.h.

#include "softgpu/driver/stream/shared_event.h"

#include <linux/futex.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <climits>
#include <cstdio>
#include <ctime>

namespace tendril::softgpu {
namespace {

constexpr size_t kBytes = 4096;
// how often a waiter looks whether the other process lives
constexpr timespec kLook = {0, 50'000'000};

void futex(std::atomic<uint32_t>* word, int operation, uint32_t value, const timespec* timeout) {
  syscall(SYS_futex, reinterpret_cast<uint32_t*>(word), operation, value, timeout, nullptr, 0);
}

// Numbers wrap around.
bool reached(uint32_t done, uint32_t record) { return static_cast<int32_t>(done - record) >= 0; }

bool is_alive(int32_t pid) {
  char path[64];
  snprintf(path, sizeof path, "/proc/%d/stat", pid);
  FILE* file = fopen(path, "re");
  if (file == nullptr) return false;
  char state = 0;
  const int got = fscanf(file, "%*d (%*[^)]) %c", &state);
  fclose(file);
  return got != 1 || (state != 'Z' && state != 'X');
}

}  // namespace

std::shared_ptr<SharedEvent> SharedEvent::create() {
  const int file = memfd_create("tendril-softgpu-test-event", MFD_CLOEXEC);
  if (file < 0) return nullptr;
  if (ftruncate(file, kBytes) == 0) return open(file);
  close(file);
  return nullptr;
}

std::shared_ptr<SharedEvent> SharedEvent::open(int file) {
  struct stat status = {};
  void* at = fstat(file, &status) == 0 && status.st_size == static_cast<off_t>(kBytes)
                 ? mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0)
                 : MAP_FAILED;
  if (at == MAP_FAILED) {
    close(file);
    return nullptr;
  }
  return std::shared_ptr<SharedEvent>(new SharedEvent(file, static_cast<State*>(at)));
}

SharedEvent::~SharedEvent() {
  munmap(state_, kBytes);
  close(file_);
}

uint32_t SharedEvent::begin() {
  state_->recorder.store(getpid());
  return state_->latest.fetch_add(1) + 1;
}

void SharedEvent::finish(uint32_t record) {
  uint32_t done = state_->done.load();
  while (!reached(done, record) && !state_->done.compare_exchange_weak(done, record)) {
  }
  futex(&state_->done, FUTEX_WAKE, INT_MAX, nullptr);
}

uint32_t SharedEvent::latest() const { return state_->latest.load(); }

bool SharedEvent::complete(uint32_t record) {
  if (reached(state_->done.load(), record)) return true;
  const int32_t recorder = state_->recorder.load();
  if (recorder == getpid() || is_alive(recorder)) return false;
  finish(record);
  return true;
}

void SharedEvent::wait(uint32_t record, const std::atomic<bool>* cancel) {
  while (!complete(record) && (cancel == nullptr || !*cancel)) {
    const uint32_t seen = state_->done.load();
    if (!reached(seen, record)) futex(&state_->done, FUTEX_WAIT, seen, &kLook);
  }
}

}  // namespace tendril::softgpu
