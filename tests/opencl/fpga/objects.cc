// SPDX-License-Identifier: Apache-2.0
// See objects.h.
#include "tests/opencl/fpga/objects.h"

#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <unordered_map>

namespace fpga {
namespace {

struct Living {
  std::mutex mutex;
  std::unordered_map<const void*, Kind> all;
};
std::atomic<bool> g_broken{false};

Living& living() {
  static auto* const made = new Living;  // the queues' threads use it to the end
  return *made;
}

uint64_t now_ns() {
  timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<uint64_t>(now.tv_sec) * 1'000'000'000 + static_cast<uint64_t>(now.tv_nsec);
}

uint32_t setting(const char* name, uint32_t otherwise) {
  const char* text = getenv(name);
  return text != nullptr ? static_cast<uint32_t>(strtoul(text, nullptr, 10)) : otherwise;
}

}  // namespace

Object::Object(Kind of, void (*how)(Object*)) : table(g_table), kind(of), end(how) {
  const std::lock_guard<std::mutex> hold(living().mutex);
  living().all[this] = kind;
}

Object::~Object() {
  const std::lock_guard<std::mutex> hold(living().mutex);
  living().all.erase(this);
}

void check(const void* handle, Kind kind) {
  const std::lock_guard<std::mutex> hold(living().mutex);
  const auto found = living().all.find(handle);
  if (found != living().all.end() && found->second == kind) return;
  fprintf(stderr, "the tests' FPGA was given a handle that is none\n");
  abort();
}

void retain(Object* object) { object->references.fetch_add(1); }
void release(Object* object) {
  if (object->references.fetch_sub(1) == 1) object->end(object);
}

void Event::set(cl_int to) {
  std::vector<std::function<void(cl_int)>> due;
  {
    const std::lock_guard<std::mutex> hold(mutex);
    status = to;
    if (to <= CL_SUBMITTED) times[std::clamp(CL_QUEUED - to, 0, 3)] = now_ns();
    for (auto it = calls.begin(); it != calls.end();) {
      if (to > it->first) {
        ++it;
        continue;
      }
      due.push_back(std::move(it->second));
      it = calls.erase(it);
    }
  }
  changed.notify_all();
  for (const auto& call : due) call(to);
}

bool Event::over() {
  const std::lock_guard<std::mutex> hold(mutex);
  return status <= CL_COMPLETE;
}

cl_int Event::wait() {
  std::unique_lock<std::mutex> hold(mutex);
  changed.wait(hold, [this] { return status <= CL_COMPLETE; });
  return status;
}

void Event::call_when(cl_int at, std::function<void(cl_int)> call) {
  {
    const std::lock_guard<std::mutex> hold(mutex);
    if (status > at) {
      calls.emplace_back(at, std::move(call));
      return;
    }
  }
  call(at);
}

struct Queue::Line {
  std::mutex mutex;
  std::condition_variable changed;
  std::deque<Command> commands;  // guarded by mutex
  size_t flushed = 0;            // of these
  bool busy = false, ended = false, batches = false;
};

Queue::Queue(Context* in, bool profiles, bool batches)
    : context(in), profiling(profiles), line_(std::make_shared<Line>()) {
  line_->batches = batches;
  std::thread(&Queue::work, line_).detach();
}

// Its commands run to the end without it.
Queue::~Queue() {
  const std::lock_guard<std::mutex> hold(line_->mutex);
  line_->ended = true;
  line_->flushed = line_->commands.size();
  line_->changed.notify_all();
}

void Queue::add(Command command) {
  command.event->times[0] = now_ns();
  const std::lock_guard<std::mutex> hold(line_->mutex);
  line_->commands.push_back(std::move(command));
}

void Queue::flush() {
  const std::lock_guard<std::mutex> hold(line_->mutex);
  line_->flushed = line_->commands.size();
  line_->changed.notify_all();
}

void Queue::finish() {
  flush();
  std::unique_lock<std::mutex> hold(line_->mutex);
  line_->changed.wait(hold, [this] { return line_->flushed == 0 && !line_->busy; });
}

void Queue::work(const std::shared_ptr<Line>& line) {
  std::unique_lock<std::mutex> hold(line->mutex);
  for (;;) {
    line->changed.wait(hold, [&] { return line->flushed != 0 || line->ended; });
    if (line->flushed == 0) return;
    std::vector<Command> batch;
    do {
      --line->flushed;
      batch.push_back(std::move(line->commands.front()));
      line->commands.pop_front();
    } while (line->batches && line->flushed != 0);
    line->busy = true;
    hold.unlock();
    std::vector<cl_int> results;
    for (const Command& command : batch) results.push_back(run(command, batch));
    // CL_SUCCESS is CL_COMPLETE.
    for (size_t i = 0; i < batch.size(); ++i) batch[i].event->set(results[i]);
    batch.clear();
    hold.lock();
    line->busy = false;
    line->changed.notify_all();
  }
}

// Events of the same batch are of commands that ran before.
cl_int Queue::run(const Command& command, const std::vector<Command>& batch) {
  command.event->set(CL_SUBMITTED);
  cl_int result = CL_SUCCESS;
  for (const Kept<Event>& each : command.before) {
    const bool is_of_batch = std::any_of(batch.begin(), batch.end(), [&](const Command& other) {
      return other.event.get() == each.get();
    });
    if (!is_of_batch && each->wait() < 0) result = CL_EXEC_STATUS_ERROR_FOR_EVENTS_IN_WAIT_LIST;
  }
  command.event->set(CL_RUNNING);
  return result == CL_SUCCESS ? command.run() : result;
}

void end_all() {
  std::vector<Kept<Event>> events;
  std::vector<Kept<Queue>> queues;
  std::vector<Object*> mine;
  {
    const std::lock_guard<std::mutex> hold(living().mutex);
    for (const auto& [handle, kind] : living().all) {
      auto* object = const_cast<Object*>(static_cast<const Object*>(handle));
      int count = object->references.load();
      while (count != 0 && !object->references.compare_exchange_weak(count, count + 1)) {
      }
      if (count == 0) continue;  // it is about to go
      if (kind == Kind::kEvent) events.emplace_back(static_cast<Event*>(object));
      if (kind == Kind::kQueue) queues.emplace_back(static_cast<Queue*>(object));
      mine.push_back(object);
    }
  }
  for (Object* each : mine) release(each);  // what matters is kept
  for (const Kept<Event>& each : events) {
    const bool waits = each->command == CL_COMMAND_USER && !each->over();
    if (waits) each->set(CL_OUT_OF_RESOURCES);
  }
  for (const Kept<Queue>& each : queues) each->finish();
  for (const Kept<Event>& each : events) each->wait();
  g_broken = false;
}

Memory::~Memory() {
  for (auto it = ends.rbegin(); it != ends.rend(); ++it) (*it)();
}

cl_int run_kernel(const std::string& name, const std::string& binary, Memory* memory, cl_int number,
                  size_t items) {
  static std::mutex mutex;
  static std::string loaded;
  const std::lock_guard<std::mutex> hold(mutex);
  if (name == "fault") g_broken = true;
  if (g_broken) return CL_OUT_OF_RESOURCES;
  if (loaded != binary) {
    usleep(1000 * setting("TENDRIL_TEST_FPGA_RECONFIGURE_MS", 100));
    loaded = binary;
  }
  if (name == "work") {
    const auto most = static_cast<cl_int>(setting("TENDRIL_TEST_FPGA_WORK_MAX_US", 1'000'000));
    usleep(static_cast<useconds_t>(std::clamp(number, 0, most)));
    return CL_SUCCESS;
  }
  if (memory == nullptr) return CL_OUT_OF_RESOURCES;
  for (size_t i = 0; i < items && (i + 1) * sizeof(cl_int) <= memory->bytes; ++i) {
    cl_int value;
    memcpy(&value, memory->data() + i * sizeof value, sizeof value);
    value = static_cast<cl_int>(static_cast<uint32_t>(value) + static_cast<uint32_t>(number));
    memcpy(memory->data() + i * sizeof value, &value, sizeof value);
  }
  return CL_SUCCESS;
}

}  // namespace fpga
