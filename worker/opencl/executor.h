// SPDX-License-Identifier: Apache-2.0
// Runs the calls of one OpenCL session in order against the machine's OpenCL. It never sleeps in
// the driver: what must be waited for is a job (jobs.h), and programs are built on threads of their
// own. Executor thread, unless a function says otherwise.
#pragma once

#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <unordered_map>
#include <vector>

#include "api/opencl/kind_error.h"
#include "api/opencl_messages.gen.h"
#include "gpu/opencl/driver.h"
#include "session/lane/service.h"
#include "wire/assignment.h"
#include "worker/core/charge.h"
#include "worker/core/code_store.h"
#include "worker/core/host_use.h"
#include "worker/core/loop.h"
#include "worker/core/objects.h"
#include "worker/core/output.h"
#include "worker/core/replies.h"
#include "worker/core/scratch.h"
#include "worker/core/slot_memory.h"
#include "worker/core/turns.h"
#include "worker/opencl/gate_port.h"
#include "worker/opencl/include_folder.h"
#include "worker/opencl/jobs.h"
#include "worker/opencl/rooms.h"
#include "worker/opencl/svm.h"

namespace tendril::worker {
class Exports;
}

namespace tendril::worker::opencl {

using api::opencl::Kind;

// What the driver's object alone does not say.
struct QueueState {
  cl_context context = nullptr;
  uint32_t slot = 0;
  bool in_order = true;
  cl_int owed = CL_SUCCESS;  // the error of a command that nobody awaited
  cl_event last = nullptr;   // of the last command, with a reference; null: not known
  // Events of the program's own that commands wait for, since the queue was flushed. References.
  std::vector<cl_event> holders;
  std::shared_ptr<std::atomic<int>> flushes = std::make_shared<std::atomic<int>>(0);  // that last
  bool in_place = false;      // large copies may be made in the memory of its device
  std::vector<JobRef> reads;  // whose data the client does not have yet
  // The error of a read that the program awaits. Any thread sets it.
  std::shared_ptr<std::atomic<cl_int>> failure = std::make_shared<std::atomic<cl_int>>(CL_SUCCESS);
};

class Executor {
 public:
  Executor(const gpu::OpenclDriver& driver, session::Service* service,
           const wire::Assignment& assignment, wire::AccountingPage* accounting, Exports* exports,
           Turns turns);
  // Only tests destroy one, when the driver has nothing to do any more.
  ~Executor();
  // Runs until the client leaves. Returns the exit status.
  int run();

  const gpu::OpenclDriver& driver() const { return driver_; }
  session::Service& service() { return *service_; }
  ObjectTables<Kind>& objects() { return objects_; }
  Replies& replies() { return replies_; }
  Scratch& scratch() { return scratch_; }
  Jobs& jobs() { return jobs_; }
  Charge& charge() { return charge_; }
  CodeStore& code() { return code_; }
  GatePort& gate() { return gate_; }
  HostUse& host() { return host_; }  // any thread
  Rooms& rooms() { return rooms_; }  // any thread
  const wire::Assignment& assignment() const { return assignment_; }

  // The device of each slot, and the platforms that have some of them.
  const std::vector<gpu::OpenclDriver::Device>& devices() const { return devices_; }
  const std::vector<cl_platform_id>& platforms() const { return platforms_; }
  // Parts of the session's devices.
  void part_made(cl_device_id part, cl_device_id whole) { parts_[part] = slot_of(whole); }
  bool part_ends(cl_device_id part) { return parts_.erase(part) != 0; }  // false: it is none
  // The first slot on this device or on the device that it is a part of; the number of slots: none.
  uint32_t slot_of(cl_device_id device) const;
  // Charges `bytes` of an object to each slice of its context, because each may hold a copy. False:
  // they do not fit one of them, and nothing is charged. `uncharge` gives back all of an object's.
  bool charge_all(cl_context context, uint64_t id, uint64_t bytes);
  void uncharge(uint64_t id);
  void rename_charge(uint64_t from, uint64_t to) { charges_[to] = std::move(charges_[from]); }
  SharedMemories& shared() { return shared_; }
  // What programs include, by the program, until it is built.
  using Included = std::unordered_map<uint64_t, std::shared_ptr<const IncludeFolder>>;
  Included& included() { return included_; }

  // Null: no such queue.
  QueueState* queue(uint64_t id);
  std::unordered_map<uint64_t, QueueState>& queues() { return queues_; }
  uint64_t queue_of(cl_command_queue handle) const;  // 0: it is none
  // Whether a command of the queue's waits for an event that the program has still to set, or a
  // flush goes on because of one.
  bool may_block(const QueueState& state) const;
  void let_go_of_holders(QueueState* state);
  std::unordered_map<cl_context, std::vector<uint32_t>>& context_slots() { return context_slots_; }

  // An event that is not over for the client before the job is: its data are on the way.
  void hold_event(uint64_t event, JobRef job) { held_events_[event] = std::move(job); }
  // Null: there is no such job, or it is done.
  JobRef held(uint64_t event);
  void forget_event(uint64_t event) { held_events_.erase(event); }

  // The current call's command waits for these.
  void waits_for(const cl_event* events, uint64_t count);
  // Tells the driver to begin, unless a command may block: some drivers run all of a queue's
  // commands inside of clFlush. Then the program's own flush or wait does it, as natively.
  void begin(uint64_t queue, cl_command_queue handle);
  // The program waits for the queue, or flushes it. A flush that may last runs on another thread.
  cl_int flush(uint64_t queue, cl_command_queue handle);

  // The current call is about this queue, and is to make this event. If it fails, the event says
  // so, and the queue owes the error.
  void about_queue(uint64_t queue) { call_queue_ = queue; }
  void makes_event(uint64_t event) { call_event_ = event; }
  void made_event() { call_event_ = 0; }
  // `event` is that of the last command in the current call's queue. Takes a reference. Other calls
  // about a queue may give it commands, and then the last one is not known. Exception: those that
  // say `adds_nothing`.
  void last_is(QueueState* queue, cl_event event) {
    forget_last(queue);
    queue->last = event;
    adds_nothing();
  }
  void adds_nothing() { last_stays_ = true; }
  void forget_last(QueueState* queue) {
    if (queue->last != nullptr) driver_.clReleaseEvent(queue->last);
    queue->last = nullptr;
  }

  // Keeps `memory` until `event` is over. Takes the caller's reference of the event.
  void keep(cl_event event, Room memory);
  // Whether the session may hold one more piece of a transfer. The others keep the network busy.
  bool may_hold_piece() const { return pieces_held_->load() < kPiecesHeldMax; }
  // Releases the piece when `event` is over.
  void hold_piece(cl_event event, const session::Piece& piece);

  // Runs `work` on another thread, because it takes long; too many at once run here. It answers the
  // call itself.
  void in_background(std::function<void()> work);

  // Results of calls, from the generated dispatcher.
  void finish(const session::Call& call, cl_int result);
  // A client that hears of the error at once keeps no event, and gives its id away again.
  template <typename Answer>
  void answer(const session::Call& call, cl_int result, const Answer& message) {
    replies_.answer(call, result, message);
  }
  // The call that runs now.
  const session::Call& call() const { return *call_; }

 private:
  friend class Loop<Executor>;
  bool polling() const { return jobs_.polling(); }
  void poll() { jobs_.poll(); }
  void catch_up() { let_go(); }
  bool catch_up_now() { return false; }
  transport::Wait patience(bool polling);
  void looked() {}
  void idle() {
    let_go();
    output_.send(service_);
  }
  bool ordered() const;
  void obey();
  CallOutcome serve(const session::Call& call);
  void failed(cl_int result);
  void let_go();

  struct Kept {
    cl_event event;
    Room memory;
  };
  static constexpr int kPiecesHeldMax = SlotMemory::kSlots / 2 - 2;

  const gpu::OpenclDriver driver_;  // what all of the session's platforms have
  session::Service* service_;
  const wire::Assignment assignment_;
  Exports* exports_;
  uint32_t refused_park_ = 0;
  const session::Call* call_ = nullptr;
  uint64_t call_queue_ = 0, call_event_ = 0;
  bool last_stays_ = false;
  std::vector<gpu::OpenclDriver::Device> devices_;
  std::vector<cl_platform_id> platforms_;
  const HostBounds host_bounds_;
  HostUse host_;
  Rooms rooms_;
  ObjectTables<Kind> objects_;
  Charge charge_;
  CodeStore code_;
  Replies replies_;
  Scratch scratch_;
  Output output_;
  Jobs jobs_;
  GatePort gate_;
  std::unordered_map<uint64_t, QueueState> queues_;
  std::unordered_map<cl_context, std::vector<uint32_t>> context_slots_;
  std::unordered_map<uint64_t, JobRef> held_events_;
  std::unordered_map<uint64_t, std::vector<std::pair<uint32_t, uint64_t>>> charges_;
  std::unordered_map<cl_device_id, uint32_t> parts_;
  SharedMemories shared_;
  Included included_;
  std::deque<Kept> kept_;
  std::shared_ptr<std::atomic<int>> pieces_held_ = std::make_shared<std::atomic<int>>(0);
  // One thread at a time flushes what may last: some drivers run commands there.
  std::shared_ptr<std::mutex> flushing_ = std::make_shared<std::mutex>();
  std::shared_ptr<std::atomic<int>> in_background_ = std::make_shared<std::atomic<int>>(0);
};

// False: unknown opcode or malformed body; the session must end.
bool dispatch(Executor& executor, const session::Call& call);
const char* op_name(uint16_t opcode);

}  // namespace tendril::worker::opencl
