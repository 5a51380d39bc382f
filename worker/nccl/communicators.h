// SPDX-License-Identifier: Apache-2.0
// The communicators of one session, and the threads that call NCCL for it. NCCL's calls wait for
// other ranks, so none runs on the executor. Each thread of the program that calls NCCL has a
// thread here. It waits for each answer, so its calls keep their order. One more thread looks
// whether communicators have failed. Any thread.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "gpu/cuda/driver.h"
#include "gpu/nccl/library.h"
#include "worker/nccl/work.h"

namespace tendril::worker::nccl {

// An element, checked, with the driver's objects in the place of ids. `context`: of kInit and
// kUniqueId.
struct Work {
  api::nccl::Element element;
  CUstream stream = nullptr;
  CUcontext context = nullptr;
};

struct Answer {
  ncclResult_t result = ncclSuccess;
  std::string text;   // NCCL's words, after a failure
  std::string extra;  // of kUniqueId: the id
};

class Communicators {
 public:
  // A communicator has failed, and this is its state.
  using Tell = std::function<void(uint64_t communicator, ncclResult_t state)>;

  // `tell` is called once for each communicator that fails, on any thread, and before the answer
  // of the call that failed.
  Communicators(std::unique_ptr<gpu::Nccl> library, const gpu::Driver* driver, Tell tell);
  // Never destroyed while calls run: a worker process ends without.
  ~Communicators();

  int version() const { return library_->version(); }
  // Does the work as one group on the thread of `caller`. `done` is called there. False: there are
  // too many callers.
  bool run(uint64_t caller, std::vector<Work> work, std::string extra,
           std::function<void(const Answer&)> done);
  // Does the work as one group on this thread, whose context it changes. May wait for other ranks.
  ncclResult_t run_here(std::vector<Work> work);
  // The communicator has failed for a call that nobody awaits. Tells so, once.
  void fail(uint64_t communicator, ncclResult_t state);
  // ncclCommGetAsyncError, and with ncclSuccess the rank and how many there are. Never waits.
  ncclResult_t state(uint64_t communicator, int* rank, int* ranks);
  // Aborts on a thread of its own, because that waits for the GPU and for NCCL's threads.
  void abort(uint64_t communicator, std::function<void(ncclResult_t)> done);
  bool knows(uint64_t communicator) { return find(communicator) != nullptr; }
  // The context of a communicator; null: there is none of that name.
  CUcontext context_of(uint64_t communicator);

 private:
  struct Communicator {
    ncclComm_t comm = nullptr;  // NCCL writes it while others may read it
    CUcontext context = nullptr;
    std::map<uint64_t, void*> registrations;  // by the client's number; guarded by mutex_
    std::mutex asking;  // guards all that follows, and holds while NCCL is asked for the state
    bool begun = false, ended = false, told = false;
  };
  struct Job {
    std::vector<Work> work;
    std::string extra;
    std::function<void(const Answer&)> done;
  };
  struct Caller {
    std::condition_variable woken;
    std::vector<Job> jobs;
    bool busy = false, dismissed = false;
  };
  struct Group;
  using Hold = std::unique_lock<std::mutex>;

  bool dismiss_idle_caller();
  void serve(uint64_t number, const std::shared_ptr<Caller>& caller);
  Answer perform(const Job& job);
  ncclResult_t give(const Work& work, const std::string& extra, Group* group, Answer* answer);
  ncclResult_t begin(const Work& work, const std::string& extra, Group* group);
  ncclResult_t split(const Work& work, const std::string& extra, ncclComm_t parent, Group* group);
  ncclResult_t shrink(const Work& work, const std::string& extra, ncclComm_t parent, Group* group);
  ncclResult_t end(const Work& work, Communicator* communicator, ncclComm_t comm);
  ncclResult_t enlist(const Work& work, Communicator* communicator, ncclComm_t comm);
  ncclResult_t delist(const Work& work, Communicator* communicator, ncclComm_t comm);
  ncclResult_t collective(const Work& work, const std::string& extra, ncclComm_t comm,
                          Group* group);
  // NCCL's state of it; without a communicator in NCCL: `otherwise`.
  ncclResult_t ask(uint64_t id, Communicator* communicator, ncclResult_t otherwise);
  void begun(const std::vector<uint64_t>& made);
  // From now on NCCL is not asked, because it may free the communicator. False: somebody else has
  // said so before, and only he ends it.
  bool about_to_end(Communicator* communicator);
  void watch();
  std::shared_ptr<Communicator> find(uint64_t id);
  std::shared_ptr<Communicator> add(uint64_t id, CUcontext context);
  void forget(uint64_t id);

  const std::unique_ptr<gpu::Nccl> library_;
  const gpu::Driver* const driver_;
  const Tell tell_;
  std::mutex mutex_;
  std::map<uint64_t, std::shared_ptr<Communicator>> all_;  // guarded by mutex_
  std::map<uint64_t, std::shared_ptr<Caller>> callers_;    // guarded by mutex_
  unsigned threads_ = 0;                                   // guarded by mutex_
  bool ending_ = false, watching_ = false;                 // guarded by mutex_
  std::condition_variable ended_;
};

}  // namespace tendril::worker::nccl
