// SPDX-License-Identifier: Apache-2.0
// The objects of the tests' FPGA (fpga.cc), and its work. A handle that is no living object of the
// right kind ends the process, as it may in a real driver. So a test sees what a worker lets
// through. Any thread.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "api/opencl_abi.gen.h"

namespace fpga {

enum class Kind { kPlatform, kDevice, kContext, kQueue, kMemory, kProgram, kKernel, kEvent };

struct Object {
  const void* table = nullptr;  // where a loader looks
  Kind kind;
  void (*const end)(Object*);  // instead of a virtual function, whose table would come first
  std::atomic<int> references{1};
  Object(Kind of, void (*end)(Object*));
  ~Object();
};
template <typename T, Kind kKind>
struct Is : Object {
  Is() : Object(kKind, [](Object* object) { delete static_cast<T*>(object); }) {}
};
// Aborts unless `handle` is a living object of this kind.
void check(const void* handle, Kind kind);
void retain(Object* object);
void release(Object* object);

// What another object needs to stay.
template <typename T>
class Kept {
 public:
  explicit Kept(T* object = nullptr) : object_(object) {
    if (object_ != nullptr) retain(object_);
  }
  Kept(const Kept& other) : Kept(other.object_) {}
  Kept& operator=(Kept other) {
    std::swap(object_, other.object_);
    return *this;
  }
  ~Kept() {
    if (object_ != nullptr) release(object_);
  }
  T* operator->() const { return object_; }
  T* get() const { return object_; }

 private:
  T* object_;
};

struct Platform : Is<Platform, Kind::kPlatform> {};
struct Device : Is<Device, Kind::kDevice> {};
struct Context : Is<Context, Kind::kContext> {};

struct Queue;
struct Event : Is<Event, Kind::kEvent> {
  Event(Context* in, cl_command_type of, cl_int first) : context(in), command(of), status(first) {}
  void set(cl_int to);
  bool over();
  cl_int wait();  // until it is over
  void call_when(cl_int at, std::function<void(cl_int)> call);

  Kept<Context> context;
  std::weak_ptr<Queue*> queue;  // unless it is gone, or there was none
  cl_command_type command;
  std::mutex mutex;
  std::condition_variable changed;
  cl_int status;                                                      // guarded by mutex
  std::vector<std::pair<cl_int, std::function<void(cl_int)>>> calls;  // guarded by mutex
  uint64_t times[4] = {};  // queued, submitted, began, ended
};

// Commands in order, on a thread of its own. They begin when the queue is flushed, as in some
// drivers. `batches`: none that one flush took is over before all are, as in some others.
struct Queue : Is<Queue, Kind::kQueue> {
  Queue(Context* in, bool profiles, bool batches);
  ~Queue();
  struct Command {
    Kept<Event> event;
    std::vector<Kept<Event>> before;
    std::function<cl_int()> run;
  };
  void add(Command command);
  void flush();
  // Until all that was added is over.
  void finish();

  Kept<Context> context;
  bool profiling;
  const std::shared_ptr<Queue*> self = std::make_shared<Queue*>(this);

 private:
  struct Line;
  static void work(const std::shared_ptr<Line>& line);
  static cl_int run(const Command& command, const std::vector<Command>& batch);
  std::shared_ptr<Line> line_;
};

struct Memory : Is<Memory, Kind::kMemory> {
  Memory(Context* in, cl_mem_flags how, size_t size) : context(in), flags(how), bytes(size) {}
  ~Memory();
  uint8_t* data() { return parent.get() != nullptr ? parent->data() + origin : own.data(); }
  Kept<Context> context;
  cl_mem_flags flags;
  size_t bytes, origin = 0;
  Kept<Memory> parent;
  std::vector<uint8_t> own;
  std::vector<std::function<void()>> ends;
  // Copies that are mapped, by their addresses. One thread at a time maps and unmaps.
  struct Mapped {
    std::vector<uint8_t> bytes;
    size_t origin = 0;
    bool writes = false, is_there = false;
  };
  std::map<const void*, std::shared_ptr<Mapped>> mapped;
};

// What a configuration of the FPGA has.
struct Program : Is<Program, Kind::kProgram> {
  explicit Program(Context* in) : context(in) {}
  Kept<Context> context;
  std::string binary;
  std::vector<std::string> kernels;
  bool built = false;
  cl_int constant = 0;  // what its language leaves open
};

struct Kernel : Is<Kernel, Kind::kKernel> {
  Kernel(Program* of, std::string called) : program(of), name(std::move(called)) {}
  Kept<Program> program;
  std::string name;
  Kept<Memory> memory;
  cl_int number = 0;
};

// See fpga.h.
void end_all();

// Does a kernel's work: configures the FPGA first if another program is loaded. Only one kernel
// runs at a time. After a fault nothing runs any more in this process.
cl_int run_kernel(const std::string& name, const std::string& binary, Memory* memory, cl_int number,
                  size_t items);

extern const void* g_table[];  // fpga.cc

}  // namespace fpga
