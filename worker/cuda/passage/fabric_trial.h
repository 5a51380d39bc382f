// SPDX-License-Identifier: Apache-2.0
// The trial of a fabric for a passage that runs on its connections: whether RDMA is there at both
// ends, what it gives, and the move of the passage's pieces to it. The end that made the passage's
// connections makes those of the trial, too, and chooses.
// docs/decisions/0046-passages-over-rdma.md.
#pragma once

#include <functional>
#include <mutex>
#include <string>
#include <vector>

#include "base/fd.h"
#include "base/thread.h"
#include "session/choice/candidate.h"
#include "session/choice/trial_connections.h"
#include "session/choice/ways.h"
#include "worker/core/exports.h"
#include "worker/cuda/passage/passage.h"

namespace tendril::worker::cuda {

// Why this worker may have no RDMA for passages; empty: it may. `lent`: TENDRIL_RDMA_DEVICE, as
// tendrild sets it; null: none.
std::string fabric_refusal(const char* lent, bool forbidden);

class FabricTrial {
 public:
  struct Task {
    Passage* passage = nullptr;  // outlives it
    bool chooses = false;        // this end has made the connections
    bool forced = false;         // by the operator: whatever could be measured
    std::string refusal;         // why this end has no fabric; empty: it may have
    // What came of it, and of the fabric later. On other threads.
    std::function<void(const PassageWay&)> tell;
  };
  // Waits for connections on a thread of its own.
  explicit FabricTrial(Task task);
  // Ends it where it is.
  ~FabricTrial();
  // Connection `index` of wire::kTrialLinesMax. Not valid: there will be none, so there is no
  // trial. `known`: what is remembered of the way. Any thread.
  void take(uint32_t index, base::Fd connection, const std::string& known);

 private:
  void run();
  // At the end that chooses.
  base::Result<session::WayChoice> try_out(const transport::Transport& fabric,
                                           session::Candidate* candidate,
                                           std::vector<base::Fd> connections,
                                           session::OneWay* known) const;
  base::Result<session::WayChoice> answer(const transport::Transport& fabric,
                                          session::Candidate candidate,
                                          std::vector<base::Fd> connections) const;

  const Task task_;
  session::TrialConnections connections_;
  std::mutex mutex_;
  std::string known_;           // guarded by mutex_
  std::vector<base::Fd> open_;  // guarded by mutex_: the connections, to end them
  bool ended_ = false;          // guarded by mutex_
  std::shared_ptr<session::LatePinned> pinned_;
  base::Thread thread_;
};

}  // namespace tendril::worker::cuda
