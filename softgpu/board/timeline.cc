// SPDX-License-Identifier: Apache-2.0
// See timeline.h. Everything here happens under the board's lock. The process that takes the last
// hold away moves the clock for all.

#include "softgpu/board/timeline.h"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <climits>
#include <vector>

#include "base/check.h"
#include "softgpu/board/busy.h"

namespace tendril::softgpu {
namespace {

// Work that would end later than this from now never ends.
constexpr int64_t kHorizonNs = kForEverNs / 2;
// Work that is executed may be silent for so many times as long as a program.
constexpr int64_t kTaskPatience = 5;
// How often a waiting process looks for dead and silent ones. If nobody holds the clock, the
// doorbell is enough.
constexpr int64_t kStuckNs = 20'000'000;
constexpr int64_t kIdleNs = 500'000'000;

void ring_doorbell(ProcessRecord& process) {
  process.doorbell.fetch_add(1, std::memory_order_release);
  syscall(SYS_futex, reinterpret_cast<uint32_t*>(&process.doorbell), FUTEX_WAKE, INT_MAX, nullptr,
          nullptr, 0);
}

void wait_for_doorbell(ProcessRecord& process, uint32_t seen, int64_t timeout_ns) {
  timespec timeout = {timeout_ns / 1'000'000'000, timeout_ns % 1'000'000'000};
  syscall(SYS_futex, reinterpret_cast<uint32_t*>(&process.doorbell), FUTEX_WAIT, seen, &timeout,
          nullptr, 0);
}

bool is_simulated(const BoardData& data) { return data.settings.mode >= TimeMode::kVirtual; }

int64_t clock_now(const BoardData& data) {
  return is_simulated(data) ? data.now_ns : host_now_ns() - data.epoch_ns;
}

// While one of these exists, rings do not agree with jobs. If the process dies meanwhile,
// repair_jobs mends them. If a process dies with the lock but without this, it has changed nobody's
// times. Any program may do that: it ends while one of its threads only looks.
class Change {
 public:
  explicit Change(BoardData& data) : data_(data) { data_.changing.fetch_add(1); }
  ~Change() { data_.changing.fetch_sub(1); }
  Change(const Change&) = delete;

 private:
  BoardData& data_;
};

uint32_t job_index(const BoardData& data, const Job& job) {
  return static_cast<uint32_t>(&job - data.jobs);
}

// Adds what the ring has done since the last call to the accounts.
void account(BoardData& data, DeviceRecord& device, int index, int64_t from_ns) {
  int64_t sum = 0;
  for (uint32_t i = 0; i < device.ring.count; ++i) {
    Share& share = device.ring.shares[i];
    data.processes[share.process].usage[index].busy_ns += share.ran_ns;
    sum += share.ran_ns;
    share.ran_ns = 0;
  }
  device.busy_ns += sum;
  add_busy(device.window, from_ns, device.ring.at_ns, sum);
}

// Runs a device's ring up to `to_ns`, which is at most its next end. Returns the share whose job
// ended, or kMaxShares.
uint32_t run_device(BoardData& data, int index, int64_t to_ns) {
  DeviceRecord& device = data.devices[index];
  const int64_t from = device.ring.at_ns;
  const uint32_t ended = run_until(device.ring, to_ns);
  account(data, device, index, from);
  return ended;
}

void place_on_ring(BoardData& data, Job& job) {
  DeviceRecord& device = data.devices[job.device];
  const uint32_t index = job_index(data, job);
  job.state = JobState::kQueued;
  job.next = kNoJob;
  uint32_t at = find_share(device.ring, job.context);
  if (at != kMaxShares) {
    data.jobs[device.ring.shares[at].last].next = index;
    device.ring.shares[at].last = index;
    return;
  }
  Share share;
  share.context = job.context;
  share.process = job.process;
  share.first = share.last = index;
  share.left_ns = std::max<int64_t>(job.cost_ns, 1);
  share.slice_ns = data.settings.device[job.device].slice_ns;
  if (!add_share(device.ring, share)) {
    job.state =
        JobState::kTimed;  // more contexts than the ring has room for: as if the device were free
    job.end_ns = clock_now(data) + job.cost_ns;
  }
  device.next_end_ns = next_end_ns(device.ring);
}

void place(BoardData& data, Job& job) {
  const int64_t now = clock_now(data);
  switch (job.engine) {
    case Engine::kCompute:
      settle(data, job.device);
      place_on_ring(data, job);
      return;
    case Engine::kCopyIn:
    case Engine::kCopyOut: {
      int64_t& free = data.devices[job.device].copy_free_ns[job.engine == Engine::kCopyIn ? 0 : 1];
      free = std::max(free, now) + job.cost_ns;
      job.end_ns = free;
      break;
    }
    case Engine::kTimer:
      job.end_ns = now + job.cost_ns;
      break;
  }
  job.state = JobState::kTimed;
}

bool earlier(const BoardData& data, const Job& a, const Job& b) {
  const uint32_t seat_a = data.processes[a.process].seat, seat_b = data.processes[b.process].seat;
  return seat_a != seat_b ? seat_a < seat_b : a.order < b.order;
}

// Work that was submitted since the clock last moved gets its place in an order that does not
// depend on the host's scheduling.
void place_arrived(BoardData& data) {
  if (data.arrived == 0) return;
  const Change change(data);
  std::vector<Job*> arrived;
  for (uint32_t i = 0; i < data.jobs_high; ++i)
    if (data.jobs[i].state == JobState::kArrived) arrived.push_back(&data.jobs[i]);
  std::sort(arrived.begin(), arrived.end(),
            [&](const Job* a, const Job* b) { return earlier(data, *a, *b); });
  for (Job* job : arrived) place(data, *job);
  data.arrived = 0;
}

void deliver(BoardData& data, Job& job) {
  ProcessRecord& process = data.processes[job.process];
  job.state = JobState::kDone;
  job.done_order = ++data.done_count;
  ++process.unseen;
  ++data.holds;
  process.quiet = 0;
  if (process.polling != 0) {
    process.polling = 0;
    ++process.host_holds;
    ++data.holds;
  }
  process.active_ms = host_now_ns() / 1'000'000;
  ring_doorbell(process);
}

void end_oldest(BoardData& data, int index) {
  DeviceRecord& device = data.devices[index];
  const uint32_t at = run_device(data, index, device.next_end_ns);
  if (at == kMaxShares) return;
  Share& share = device.ring.shares[at];
  Job& job = data.jobs[share.first];
  share.first = job.next;
  if (share.first != kNoJob) {
    share.left_ns = std::max<int64_t>(data.jobs[share.first].cost_ns, 1);
  } else {
    remove_share(device.ring, at);
  }
  device.next_end_ns = next_end_ns(device.ring);
  deliver(data, job);
}

struct NextEnd {
  int64_t at_ns = kNever;
  Job* timed = nullptr;
  int device = -1;
};

NextEnd find_next(BoardData& data) {
  NextEnd next;
  for (uint32_t i = 0; i < data.jobs_high; ++i) {
    Job& job = data.jobs[i];
    if (job.state != JobState::kTimed || job.end_ns > next.at_ns) continue;
    if (job.end_ns == next.at_ns && !earlier(data, job, *next.timed)) continue;
    next.at_ns = job.end_ns;
    next.timed = &job;
  }
  for (unsigned i = 0; i < data.settings.devices; ++i) {
    if (data.devices[i].next_end_ns >= next.at_ns) continue;
    next.at_ns = data.devices[i].next_end_ns;
    next.timed = nullptr;
    next.device = static_cast<int>(i);
  }
  return next;
}

// Ends the work that ends next, if it does so by `limit_ns`.
bool end_next(BoardData& data, int64_t limit_ns) {
  const NextEnd next = find_next(data);
  if (next.at_ns > limit_ns) return false;
  const Change change(data);
  if (is_simulated(data)) data.now_ns = std::max(data.now_ns, next.at_ns);
  if (next.timed != nullptr) {
    deliver(data, *next.timed);
  } else {
    end_oldest(data, next.device);
  }
  return true;
}

void advance_locked(BoardData& data) {
  if (!is_simulated(data)) {
    place_arrived(data);
    while (end_next(data, clock_now(data))) {
    }
    return;
  }
  if (data.holds != 0 || data.on_clock < data.settings.quorum) return;
  place_arrived(data);
  end_next(data, data.now_ns + kHorizonNs);
}

// A program that computes or is stopped must not hold others up for ever. Neither must a kernel
// that spins until another program does something.
void drop_silent(BoardData& data) {
  const int64_t now_ms = host_now_ns() / 1'000'000;
  for (uint32_t i = 0; i < data.processes_high; ++i) {
    ProcessRecord& process = data.processes[i];
    const int64_t silent_ms = now_ms - process.active_ms;
    if (process.used == 0 || process.unseen != 0 || silent_ms <= data.settings.patience_ms)
      continue;
    const uint32_t running = process.task_holds - process.lapsed;
    if (running != 0 && silent_ms <= kTaskPatience * data.settings.patience_ms) continue;
    data.holds -= process.host_holds + running;
    process.host_holds = 0;
    process.lapsed = process.task_holds;
  }
}

// Takes the jobs of a context, or of a whole process, off a ring.
template <typename Match>
void clear_shares(BoardData& data, Match match) {
  const Change change(data);
  for (unsigned d = 0; d < data.settings.devices; ++d) {
    SliceRing& ring = data.devices[d].ring;
    const uint32_t before = ring.count;
    if (before != 0) settle(data, static_cast<int>(d));
    for (uint32_t i = 0; i < ring.count;) {
      if (match(ring.shares[i])) {
        remove_share(ring, i);
      } else {
        ++i;
      }
    }
    if (ring.count != before) data.devices[d].next_end_ns = next_end_ns(ring);
  }
}

}  // namespace

int64_t settle(BoardData& data, int device) {
  const Change change(data);
  const int64_t now = clock_now(data);
  DeviceRecord& record = data.devices[device];
  run_device(data, device,
             std::min(now, record.next_end_ns == kNever ? now : record.next_end_ns - 1));
  return now;
}

void drop_jobs(BoardData& data, uint32_t process) {
  clear_shares(data, [&](const Share& share) { return share.process == process; });
  for (uint32_t i = 0; i < data.jobs_high; ++i) {
    Job& job = data.jobs[i];
    if (job.state == JobState::kFree || job.process != process) continue;
    if (job.state == JobState::kArrived) --data.arrived;
    job.state = JobState::kFree;
  }
}

void repair_jobs(BoardData& data) {
  data.arrived = 0;
  for (uint32_t i = 0; i < data.jobs_high; ++i)
    if (data.jobs[i].state == JobState::kArrived) ++data.arrived;
  if (data.changing == 0) return;
  data.changing = 0;
  const Change change(data);
  const int64_t now = clock_now(data);
  for (unsigned d = 0; d < data.settings.devices; ++d) {
    SliceRing& ring = data.devices[d].ring;
    ring.count = ring.current = 0;
    ring.at_ns = now;
    data.devices[d].next_end_ns = kNever;
  }
  for (uint32_t i = 0; i < data.jobs_high; ++i)
    if (data.jobs[i].state == JobState::kQueued) place_on_ring(data, data.jobs[i]);
}

bool Timeline::simulated() const { return is_simulated(board_.data()); }

int64_t Timeline::now_ns() {
  if (!simulated()) return clock_now(board_.data());
  BoardLock hold(board_);
  return board_.data().now_ns;
}

void Timeline::join_clock() {
  ProcessRecord& me = board_.data().processes[board_.slot()];
  me.active_ms = host_now_ns() / 1'000'000;
  if (me.on_clock != 0) return;
  me.on_clock = 1;
  ++board_.data().on_clock;
}

void Timeline::host_runs() {
  BoardLock hold(board_);
  join_clock();
  ProcessRecord& me = board_.data().processes[board_.slot()];
  me.polling = 0;
  if (me.host_holds != 0) return;
  me.host_holds = 1;
  ++board_.data().holds;
}

void Timeline::host_blocks() {
  BoardLock hold(board_);
  ProcessRecord& me = board_.data().processes[board_.slot()];
  me.active_ms = host_now_ns() / 1'000'000;
  if (me.polling != 0) {
    me.polling = 0;
  } else if (me.host_holds != 0) {
    --me.host_holds;
    --board_.data().holds;
  }
  advance();
}

void Timeline::host_resumes(uint32_t threads) {
  BoardLock hold(board_);
  join_clock();
  board_.data().processes[board_.slot()].host_holds += threads;
  board_.data().holds += threads;
}

void Timeline::host_polls() {
  BoardLock hold(board_);
  ProcessRecord& me = board_.data().processes[board_.slot()];
  if (me.polling != 0 || me.task_holds != me.lapsed || me.unseen != 0) return;
  if (me.quiet == 0) {
    me.quiet = 1;
    return;
  }
  if (me.host_holds != 0) {
    --me.host_holds;
    --board_.data().holds;
  }
  me.polling = 1;
  advance();
}

void Timeline::task_begins() {
  BoardLock hold(board_);
  join_clock();
  ProcessRecord& me = board_.data().processes[board_.slot()];
  ++me.task_holds;
  ++board_.data().holds;
  me.quiet = 0;
}

// A program that asks in a loop keeps its count: it may look again and again for what only the
// clock brings.
void Timeline::tasks_resume(uint32_t threads) {
  BoardLock hold(board_);
  join_clock();
  board_.data().processes[board_.slot()].task_holds += threads;
  board_.data().holds += threads;
}

void Timeline::task_ends() {
  BoardLock hold(board_);
  ProcessRecord& me = board_.data().processes[board_.slot()];
  --me.task_holds;
  if (me.lapsed != 0) {
    --me.lapsed;
  } else {
    --board_.data().holds;
  }
  advance();
}

void Timeline::submit(const JobRequest& request) {
  BoardLock hold(board_);
  BoardData& data = board_.data();
  join_clock();
  uint32_t index = 0;
  while (index < kMaxJobs && data.jobs[index].state != JobState::kFree) ++index;
  TENDRIL_CHECK(index < kMaxJobs);
  data.jobs_high = std::max(data.jobs_high, index + 1);
  Job& job = data.jobs[index];
  job = {JobState::kArrived,
         request.engine,
         board_.slot(),
         request.device,
         kNoJob,
         request.context,
         request.order,
         request.cookie,
         request.cost_ns,
         0,
         0};
  ++data.arrived;
  if (simulated()) return;
  advance();
  ring_doorbell(data.processes[board_.slot()]);  // it may end before the awaited work
}

void Timeline::cancel(uint64_t context) {
  BoardLock hold(board_);
  BoardData& data = board_.data();
  clear_shares(data, [&](const Share& share) { return share.context == context; });
  for (uint32_t i = 0; i < data.jobs_high; ++i) {
    Job& job = data.jobs[i];
    if (job.state == JobState::kFree || job.state == JobState::kDone || job.context != context)
      continue;
    if (job.state == JobState::kArrived) --data.arrived;
    deliver(data, job);
  }
}

void Timeline::advance() { advance_locked(board_.data()); }

int64_t Timeline::wait_ns() {
  if (simulated()) return board_.data().holds == 0 ? kIdleNs : kStuckNs;
  const int64_t next = find_next(board_.data()).at_ns;
  return next == kNever ? kIdleNs
                        : std::clamp<int64_t>(next - clock_now(board_.data()), 0, kIdleNs);
}

// Somebody waits and the clock stands still: is its holder dead, or silent?
void Timeline::look_for_holders() {
  BoardData& data = board_.data();
  const int64_t now = host_now_ns();
  if (!simulated() || data.holds == 0 || now - data.looked_ns < kStuckNs) return;
  data.looked_ns = now;
  board_.reap_locked();
  drop_silent(data);
}

bool Timeline::take_end(uint64_t* cookie) {
  BoardData& data = board_.data();
  Job* found = nullptr;
  for (uint32_t i = 0; i < data.jobs_high; ++i) {
    Job& job = data.jobs[i];
    if (job.state != JobState::kDone || job.process != board_.slot()) continue;
    if (found == nullptr || job.done_order < found->done_order) found = &job;
  }
  if (found == nullptr) return false;
  *cookie = found->cookie;
  found->state = JobState::kFree;
  return true;
}

bool Timeline::next_end(int64_t patience_ms, uint64_t* cookie) {
  const int64_t deadline = host_now_ns() + patience_ms * 1'000'000;
  ProcessRecord& me = board_.data().processes[board_.slot()];
  for (;;) {
    uint32_t seen = 0;
    int64_t sleep_ns = 0;
    {
      BoardLock hold(board_);
      if (me.unseen == 0) look_for_holders();
      if (me.unseen == 0) advance();
      if (me.unseen != 0 && take_end(cookie)) return true;
      seen = me.doorbell.load(std::memory_order_acquire);
      sleep_ns = wait_ns();
    }
    if (host_now_ns() > deadline) return false;
    wait_for_doorbell(me, seen, sleep_ns);
  }
}

void Timeline::delivered() {
  BoardLock hold(board_);
  ProcessRecord& me = board_.data().processes[board_.slot()];
  --me.unseen;
  --board_.data().holds;
  advance();
}

}  // namespace tendril::softgpu
