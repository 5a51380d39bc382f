// SPDX-License-Identifier: Apache-2.0
// Keeps workers warm: one API's driver is open, a context exists on one GPU, and the worker waits
// for a client. `take` hands one out. The pool refills in the background. A worker serves one
// session and ends with it.
//
// How many are kept: as many as memory is set aside for (`--warm`). More are kept where their
// contexts fit into memory that nobody was promised (`--warm-spare`), or into the quotas of leases
// whose programs have yet to attach (expect).
//
// All processes are started and collected on the supervisor's thread. `take` blocks and may be
// called from any other thread. A worker may have to run as the same user as another one, because
// the driver shares memory only between processes of one user. Such a worker is started on demand,
// for the caller that asked for it.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "base/result.h"
#include "daemon/containment/isolation.h"
#include "daemon/event_loop.h"
#include "daemon/worker_process.h"
#include "gpu/inventory.h"

namespace tendril::daemon {

struct WorkerOptions {
  std::string executable;
  std::string api = "cuda";         // whose devices are lent
  bool compiles = false;            // that API's driver does, with programs and files of its own
  std::vector<std::string> apis;    // that the workers serve; the first is kept warm from the start
  std::string driver;               // empty: the system's
  std::string monitor;              // the monitoring library; empty: the system's
  std::string nccl_place;           // where libraries for collectives are; empty: none are lent
  std::vector<gpu::NcclFile> nccl;  // those that the probe found there
  Isolation isolation;
  const Networks* networks = nullptr;  // null: there is only the machine's
  std::string calls;  // a file with system calls that the driver needs beyond ours; empty: none
  // If set, system calls that are on no list are allowed and reported. Supervisor's thread.
  std::function<void(const std::string& name)> learned;
  uint32_t warm_per_gpu = 1;
  uint32_t warm_total_max = 4;
  uint32_t warm_spare = 0;      // more per GPU, in memory that nobody was promised
  uint32_t workers_max = 1024;  // processes at once, idle ones included
};

// Arguments common to every mode of the worker executable.
std::vector<std::string> worker_arguments(const WorkerOptions& options, uint32_t slot);

// A slot is one of the users. Below workers_max each is one lease's. Packed workers have one in
// common, and processes that serve nobody (probe, monitor) another.
inline uint32_t packed_slot(const WorkerOptions& options) { return options.workers_max; }
inline uint32_t observer_slot(const WorkerOptions& options) { return options.workers_max + 1; }
inline uint32_t user_count(const WorkerOptions& options) { return options.workers_max + 2; }

// As replies say them.
std::vector<uint32_t> nccl_versions(const std::vector<gpu::NcclFile>& files);

class WorkerPool {
 public:
  WorkerPool(EventLoop* loop, WorkerOptions options, uint32_t gpu_count);

  // Starts the first warm workers.
  void start();
  // Kills every worker and waits until all are collected. Nothing is started afterwards.
  void stop();

  // Called on the supervisor's thread. `gone`: once, when the worker has exited. `asked`: for each
  // of its requests. `answered`: when it has chosen a transport.
  struct Uses {
    std::function<void(const std::string& how)> gone;
    std::function<void(const wire::WorkerRequest& request, base::Fd fd, const std::string& tail)>
        asked;
    std::function<void(const wire::TransportAnswers& answers, base::Fd fd)> answered;
  };
  // What a session needs of its worker. Any idle worker at that post will do, unless `like`,
  // `networked` or `packed_folder` is set. Then a worker is started for this session.
  struct Wish {
    WorkerProcess::Post post;
    const WorkerProcess* like = nullptr;  // it must run as this worker's user
    std::string packed_folder;            // it must be a client of this server (packed_servers.h)
    uint32_t packed_percent = 100;        // then: its part of the GPU's processors
    bool networked = false;               // it may use NCCL, so it is started for this session
    bool expected = false;                // expect() announced it
  };
  base::Result<std::shared_ptr<WorkerProcess>> take(const Wish& wish, Uses uses, int timeout_ms);

  const std::vector<gpu::NcclFile>& nccl() const { return options_.nccl; }
  // Whether workers run as separate users, and which user a worker has. Equal numbers are equal
  // users.
  bool separates_users() const { return options_.isolation.kind == Isolation::Kind::kUsers; }
  uint32_t user_of(const WorkerProcess& worker) const;
  // Packed workers trust each other and are one user, because their server takes clients of only
  // one user. 0: the daemon's own.
  uint32_t packed_user() const;

  // How many idle warm workers memory is set aside for on `gpu`.
  uint32_t warm_target(uint32_t gpu) const;
  // Announces that a program will attach whose slice's quota holds the context, or that it no
  // longer will. A caller that takes an expected worker says so in its wish.
  void expect(uint32_t gpu);
  void expect_no_more(uint32_t gpu);
  // Sets how many contexts fit into memory that nobody was promised.
  void set_room(uint32_t gpu, uint64_t contexts);
  // Idle workers end, and others take their places: what a worker may open is decided at its start.
  void renew();
  // True while surplus idle workers of the GPU, made so by one of the last three functions, are
  // still ending: their memory is not free yet. `trimmed` is called on the supervisor's thread when
  // one has ended.
  bool is_trimming(uint32_t gpu);
  void when_trimmed(std::function<void()> trimmed) { trimmed_ = std::move(trimmed); }
  size_t process_count();

 private:
  static constexpr uint32_t kAnySlot = UINT32_MAX;
  // A worker that is started for one waiter.
  struct Order {
    uint64_t number = 0;  // 0: a warm worker for any client
    uint32_t slot = kAnySlot;
    std::vector<std::string> arguments;
    bool networked = false;
  };
  struct Waiter {
    WorkerProcess::Post post;
    uint64_t order = 0;
    bool done = false;
    Uses uses;
    std::shared_ptr<WorkerProcess> worker;
    base::Status failure;
  };
  enum class State { kStarting, kIdle, kTaken, kUnwanted };
  struct Entry {
    std::shared_ptr<WorkerProcess> worker;
    State state = State::kStarting;
    uint64_t order = 0;
    Uses uses;
  };

  // Starts workers for waiting clients and for expected programs.
  void start_wanted();
  // Also starts warm workers that nobody has asked for: after a pause, and not while programs
  // arrive in quick succession.
  void plan_refill(int after_ms);
  void refill();
  // With the lock held: the posts of workers that are missing on the GPU and must start now.
  std::vector<WorkerProcess::Post> missing(uint32_t gpu, bool at_leisure) const;
  bool is_crowded() const;
  void start_one(const WorkerProcess::Post& post, Order order);
  void ready(WorkerProcess* worker);
  // The callbacks of the caller that took the worker; empty if nobody did.
  Uses uses_of(const WorkerProcess& worker);
  void gone(WorkerProcess* worker, const std::string& how);
  void fail_waiters(const WorkerProcess::Post& post, const base::Status& why);
  uint32_t free_slot();
  // With the lock held. wanted: how many should be warm on the GPU. warm, warm_at: how many are or
  // soon will be. trim: ends those that are too many.
  size_t wanted(uint32_t gpu) const;
  size_t warm(uint32_t gpu) const;
  size_t warm_at(const WorkerProcess::Post& post) const;
  size_t waiters_at(const WorkerProcess::Post& post) const;
  size_t starting(uint32_t gpu) const;
  void trim(uint32_t gpu);

  EventLoop* const loop_;
  const WorkerOptions options_;
  const uint32_t gpu_count_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<pid_t, Entry> entries_;                // guarded by mutex_
  std::vector<std::shared_ptr<Waiter>> waiters_;  // guarded by mutex_, oldest first
  uint64_t next_order_ = 1;                       // guarded by mutex_
  bool stopping_ = false;                         // guarded by mutex_
  std::vector<uint32_t> slots_;                   // guarded by mutex_: processes of each user
  std::vector<uint32_t> expected_, spare_;        // guarded by mutex_, per GPU
  std::vector<uint64_t> taken_ns_;                // when the last few workers were taken
  // Guarded by mutex_: the API that was asked for last on each GPU. Idle workers cost memory, so
  // there are only as many as for one API. The last one is likely to be asked for again.
  std::vector<std::string> warm_api_;
  bool refill_planned_ = false;    // guarded by mutex_
  std::function<void()> trimmed_;  // set before start()
  uint32_t failures_ = 0;          // starts failed in a row; supervisor's thread
  bool backing_off_ = false;       // supervisor's thread
};

}  // namespace tendril::daemon
