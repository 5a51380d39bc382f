// SPDX-License-Identifier: Apache-2.0
// One rank of a communicator: who it is, its state, its connections and what it has under way. The
// program drives it with one thread at a time; abort may come from any thread.
#pragma once

#include <condition_variable>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <thread>
#include <vector>

#include "softnccl/buffers.h"
#include "softnccl/mesh.h"
#include "softnccl/operation.h"

namespace tendril::softnccl {

struct Scalar {
  ncclDataType_t type;
  uint64_t value = 0;  // its bytes
  CUdeviceptr at = 0;  // or where they are, on the device
};

// The context that a communicator lives in.
struct Place {
  CUcontext context = nullptr;
  CUdevice device = 0;
  bool retained = false;  // the primary context, which is given back at the end
};
// That of the calling thread, else the primary context of device 0, as the runtime would choose.
ncclResult_t current_place(Place* place);
ncclResult_t primary_place(int device, Place* place);

class Communicator {
 public:
  Communicator(Place place, int rank, int ranks, bool blocking);
  ~Communicator();

  // The meeting of all ranks; or a place among those that a parent has gathered.
  ncclResult_t meet(const ncclUniqueId& id);
  ncclResult_t settle(int rank, std::vector<Member> members);
  ncclResult_t prepare();        // before either
  ncclResult_t prepare_lines();  // before data goes to others

  int rank() const { return rank_; }
  int ranks() const { return ranks_; }
  bool blocking() const { return blocking_; }
  const Place& place() const { return place_; }
  Mesh& mesh() { return mesh_; }
  const Stop& stop() const { return stop_; }

  // What ncclCommGetAsyncError tells. The first error stays.
  ncclResult_t state() const;
  void set_state(ncclResult_t state);
  // Success if calls may use it now, else what they answer.
  ncclResult_t ready() const;

  // Launches under way are counted, those in graphs apart.
  ncclResult_t begin_launch(bool in_graph);  // waits while the queue is full
  void end_launch(bool in_graph);
  // Calls `what` unless aborted, one launch at a time. An error stays stuck until abort, as kernels
  // do that wait for a lost peer.
  void in_turn(const std::function<ncclResult_t()>& what);

  // Waits for all that is under way, and for graphs that may use this communicator.
  void finish();
  void abort();
  // Runs on a thread of its own, which ends before this object does.
  void in_background(std::function<void()> what);
  void join_background();

  bool finalized() const;
  void set_finalized();

  // Operators of its own.
  ncclRedOp_t add_scalar(const Scalar& scalar);
  bool drop_scalar(ncclRedOp_t op);
  bool find_scalar(ncclRedOp_t op, Scalar* scalar) const;
  void* add_registration();
  bool drop_registration(void* handle);

  // Orders launches on different streams. The caller has the communicator for itself.
  CUevent joined = nullptr, launched = nullptr;
  CUstream last_stream = nullptr;
  bool used = false;
  unsigned long long last_capture = 0;

 private:
  const Place place_;
  Buffers buffers_, line_buffers_;
  int rank_;
  int ranks_;
  const bool blocking_;
  Mesh mesh_;
  Stop stop_;
  mutable std::mutex lock_;
  std::condition_variable changed_;
  ncclResult_t state_ = ncclInProgress;
  bool finalized_ = false;
  unsigned under_way_ = 0, in_graphs_ = 0;
  unsigned running_ = 0;
  std::mutex turn_;
  std::thread background_;
  std::map<int, Scalar> scalars_;
  std::set<uint64_t> registrations_;
};

using CommunicatorPtr = std::shared_ptr<Communicator>;

// Handles are the objects' addresses; a stale one is not found.
ncclComm_t publish(const CommunicatorPtr& communicator);
CommunicatorPtr find(ncclComm_t handle);
bool withdraw(ncclComm_t handle);

// A host function may hold the last reference, and must not make the driver calls of the end. So it
// gives the reference away, together with its launch; the next call of the program lets go of it.
void end_launch_and_release(CommunicatorPtr communicator, bool in_graph);
void let_go();

}  // namespace tendril::softnccl
