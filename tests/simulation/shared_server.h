// SPDX-License-Identifier: Apache-2.0
// Servers whose GPUs are shared, on simulated time. tendrild's rules (lease/lease_turns.h) and the
// workers' gates (worker/core/gate.h) are the real ones, with pages between them. GPUs are queues
// of known length. An executor's loop and the programs are a few lines each. A test says what
// programs do and asks what they got.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <vector>

#include "lease/lease_turns.h"
#include "tests/simulation/simulated_time.h"
#include "wire/turn_page.h"
#include "worker/core/gate.h"

namespace tendril::simulation {

using worker::ContextHandle;
using worker::EventHandle;
using worker::StreamHandle;

// A collective: each GPU of a program runs a kernel for it, which is over only `ns` after the last
// of them has begun. Until then it keeps its GPU busy.
struct Meeting {
  size_t wanted = 0, here = 0;
  uint64_t ns = 0;
  std::vector<std::function<void()>> complete;
};

// Streams run their work in order, and a GPU runs one kernel at a time. A tenant has the GPU until
// it has nothing more to run, or until its slice is over while another waits. Then its kernel is
// interrupted, and goes on when its slice comes again. (An H200 does so.)
class SimulatedGpu {
 public:
  static constexpr uint64_t kSwitchNs = 100 * kUs;  // from one tenant's kernel to another's
  explicit SimulatedGpu(SimulatedTime* time) : time_(*time) {}

  void kernel(size_t tenant, uint64_t stream, uint64_t ns) {
    add(tenant, stream, {Item::kKernel, ns, order_++, 0, nullptr});
  }
  void collective(size_t tenant, uint64_t stream, std::shared_ptr<Meeting> meeting) {
    add(tenant, stream, {Item::kKernel, kEndlessNs, order_++, 0, std::move(meeting)});
  }
  void host_function(size_t tenant, uint64_t stream, uint64_t ns) {
    add(tenant, stream, {Item::kHost, ns, order_++, 0, nullptr});
  }
  uint64_t mark(size_t tenant, uint64_t stream);
  bool reached(uint64_t event) const { return pending_.count(event) == 0; }
  uint64_t had_ns(size_t tenant) { return had_ns_[tenant]; }
  void set_slice(size_t tenant, uint64_t ns) { slices_ns_[tenant] = ns; }

 private:
  struct Item {
    enum Kind { kKernel, kHost, kMarker } kind;
    uint64_t ns, order, event;
    std::shared_ptr<Meeting> meeting;  // until it is complete
  };
  static constexpr uint64_t kEndlessNs = 1'000'000'000'000'000;
  struct Stream {
    std::deque<Item> items;
    bool runs = false;  // its first item does
  };
  using Key = std::pair<size_t, uint64_t>;
  void add(size_t tenant, uint64_t stream, const Item& item);
  void begin_what_is_no_kernel();
  const Key* next_kernel();
  void go_on();
  void run(const Key& key);
  void end_in(const Key& key, uint64_t at_ns);
  void meet(const Key& key);
  void complete(const Key& key, uint64_t ns);
  void stop(uint64_t now_ns);
  void ends(const Key& key);
  uint64_t slice_ends_ns() const;

  SimulatedTime& time_;
  std::map<Key, Stream> streams_;
  std::set<uint64_t> pending_;
  std::map<size_t, uint64_t> had_ns_;
  uint64_t order_ = 0, events_ = 0;
  std::map<size_t, uint64_t> slices_ns_;
  std::map<size_t, uint64_t> had_at_;  // when each tenant last had it, counted in kernels
  uint64_t turns_ = 0;
  size_t last_ = SIZE_MAX;  // tenant that has the GPU
  uint64_t last_since_ns_ = 0;
  Key running_;
  bool busy_ = false;
  uint64_t begun_ns_ = 0, runs_ = 0;  // the kernel that runs, and how many have been begun
  uint64_t watched_ = 0;              // the tenant whose interruption is planned
};

class SharedServer;

// A session: its program is a fiber that says what comes next, and its executor does it.
class SimulatedWorker final : public worker::GateHost {
 public:
  static constexpr uint64_t kCallNs = 2'000, kMarkNs = 1'500, kLookNs = 700, kServeNs = 500;
  SimulatedWorker(SharedServer* server, size_t number, std::vector<uint32_t> gpus);

  // What a program does. Each step takes as long as it does there.
  void launch(uint64_t ns, uint64_t stream = 1, uint32_t slice = 0) {
    launch(ns, stream, slice, ns);
  }
  void launch(uint64_t usual_ns, uint64_t stream, uint32_t slice, uint64_t this_time_ns);
  void collective(const std::shared_ptr<Meeting>& meeting, uint64_t stream = 1, uint32_t slice = 0);
  void call_back(uint64_t ns, uint64_t stream = 1, uint32_t slice = 0);
  void wait(uint64_t stream = 1, uint32_t slice = 0);
  void compute(uint64_t ns);  // without a call
  uint64_t pieces() const { return pieces_; }
  wire::TurnPage* page() { return page_.get(); }

  ContextHandle owner(ContextHandle current, StreamHandle) override { return current; }
  EventHandle mark(ContextHandle context, StreamHandle stream) override;
  bool reached(EventHandle event) override;
  void give_back(ContextHandle, EventHandle) override {}
  bool serve() override;
  bool busy() override { return false; }
  void set_hardware_slice(uint32_t slice, uint32_t us) override {
    gpu(slice).set_slice(number_, us * kUs);
  }

 private:
  SimulatedGpu& gpu(uint32_t slice);
  void take_call_at(uint64_t at_ns);
  ContextHandle context(uint32_t slice) const {
    return reinterpret_cast<ContextHandle>(uint64_t{slice} + 1);
  }

  SharedServer& server_;
  const size_t number_;
  const std::vector<uint32_t> gpus_;
  std::unique_ptr<wire::TurnPage> page_ = std::make_unique<wire::TurnPage>();
  worker::Gate gate_;
  uint64_t pieces_ = 0;
};

// One, or several that share nothing but the time. Each has as many GPUs; they are numbered
// through.
class SharedServer {
 public:
  static constexpr uint64_t kBellNs = 30'000, kBellHeardNs = 3'000;  // asleep, and listening
  explicit SharedServer(size_t gpus = 1, size_t servers = 1);

  using Program = std::function<void(SimulatedWorker&)>;
  // Repeats a program. It has a lease with `share` of each of these GPUs, which are of one server,
  // and one session.
  SimulatedWorker& add(double share, const Program& program,
                       const std::vector<uint32_t>& gpus = {0}, const wire::LeaseTerms& terms = {},
                       uint64_t gang = 0);
  void run(uint64_t ns) { time_.run(time_.now_ns() + ns); }

  SimulatedTime& time() { return time_; }
  SimulatedGpu& gpu(uint32_t index) { return *gpus_[index]; }
  lease::LeaseTurns& turns(size_t server = 0) { return arbiters_[server]->turns; }
  void ring(size_t number);

 private:
  struct Arbiter {
    lease::LeaseTurns turns;
    std::vector<uint64_t> rang;
    uint64_t timer_ns = UINT64_MAX;
  };
  void hear(Arbiter* arbiter);

  SimulatedTime time_;
  std::vector<std::unique_ptr<Arbiter>> arbiters_;  // of each server
  std::vector<std::unique_ptr<SimulatedGpu>> gpus_;
  std::vector<std::unique_ptr<SimulatedWorker>> workers_;
  std::vector<Arbiter*> arbiter_of_;  // of each worker
};

}  // namespace tendril::simulation
