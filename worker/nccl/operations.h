// SPDX-License-Identifier: Apache-2.0
// The session's side of NCCL (api/nccl/operations.spec): it turns ids into the driver's objects,
// passes the gate, and hands the work to threads (worker/nccl/communicators.h). Executor thread;
// `take_on_sight` on any.
#pragma once

#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "api/nccl_messages.gen.h"
#include "worker/cuda/executor/executor.h"
#include "worker/nccl/communicators.h"
#include "worker/nccl/driver/memory.h"

namespace tendril::worker::nccl {

// Calls with these numbers and above are NCCL's (api/nccl/registry/opcodes.txt).
inline constexpr uint16_t kFirstOpcode = 0x4000;

class Executor {
 public:
  Executor(cuda::Executor* session, std::vector<gpu::NcclFile> libraries);

  // Opens the library of that version, once. `why`: what went wrong, for people.
  ncclResult_t open(uint32_t version, std::string* why);
  // Before a communicator begins in the context. What NCCL takes for it is charged as NCCL takes it
  // (driver/memory.h). Where that cannot be, an estimate is charged until the communicator has
  // ended. False: the slice has no room.
  bool charge(uint64_t communicator, const cuda::WorkerContext* context);
  // The driver has ended the context with its memory.
  void context_ended(CUcontext context);
  // Says so in `text` if NCCL failed because a slice had no room.
  void explain_shortage(std::string* text);
  // Any thread. `give_back`, before the session's next call, gives back their charges.
  void ended(const std::vector<uint64_t>& communicators);
  void give_back();

  std::string& why() { return why_; }  // lives until the answer has been sent
  // Null before that.
  Communicators* communicators() { return communicators_.get(); }

  // False: the call is malformed.
  bool serve(const session::Call& call);
  // A call that must not wait in line, because the executor may be waiting for what it ends.
  bool take_on_sight(const session::Call& call);

  cuda::Executor& session() { return *session_; }
  template <typename Reply>
  void answer(const session::Call& call, ncclResult_t result, const Reply& message) {
    session_->replies().answer(call, result, message);
  }
  void finish(const session::Call& call, ncclResult_t result) {
    session_->replies().finish(call, result);
  }

 private:
  void count_memory();
  bool counts_memory() const;

  cuda::Executor* const session_;
  const std::vector<gpu::NcclFile> libraries_;
  std::unique_ptr<Memory> memory_;  // null: communicators are charged by an estimate
  bool any_began_ = false;          // a communicator
  std::string why_;
  std::map<uint64_t, uint64_t> charges_;  // by communicator
  std::mutex mutex_;
  std::vector<uint64_t> ended_;  // guarded by mutex_
  std::atomic<bool> any_ended_{false};
  // Calls are taken on sight on another thread, and only after the client has an answer to `open`.
  std::unique_ptr<Communicators> communicators_;
  std::atomic<Communicators*> on_sight_{nullptr};
};

// Generated. False: the message is malformed.
bool dispatch(Executor& executor, const session::Call& call);

}  // namespace tendril::worker::nccl
