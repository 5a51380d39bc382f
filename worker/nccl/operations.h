// SPDX-License-Identifier: Apache-2.0
// The session's side of NCCL (api/nccl/operations.spec): it turns ids into the driver's objects,
// passes the gate, and hands the work to threads (worker/nccl/communicators.h). Executor thread;
// `take_on_sight` on any.
#pragma once

#include <memory>

#include "api/nccl_messages.gen.h"
#include "worker/cuda/executor/executor.h"
#include "worker/nccl/communicators.h"

namespace tendril::worker::nccl {

// Calls with these numbers and above are NCCL's (api/nccl/registry/opcodes.txt).
inline constexpr uint16_t kFirstOpcode = 0x4000;

class Executor {
 public:
  Executor(cuda::Executor* session, std::unique_ptr<gpu::Nccl> library);

  // False: the call is malformed.
  bool serve(const session::Call& call);
  // A call that must not wait in line, because the executor may be waiting for what it ends.
  bool take_on_sight(const session::Call& call);

  cuda::Executor& session() { return *session_; }
  Communicators& communicators() { return communicators_; }
  template <typename Reply>
  void answer(const session::Call& call, ncclResult_t result, const Reply& message) {
    session_->replies().answer(call, result, message);
  }

 private:
  cuda::Executor* const session_;
  Communicators communicators_;
};

// Generated. False: the message is malformed.
bool dispatch(Executor& executor, const session::Call& call);

}  // namespace tendril::worker::nccl
