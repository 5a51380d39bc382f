// SPDX-License-Identifier: Apache-2.0
// A program that wants GPUs in a simulated world, with its launcher: it asks, waits, claims, runs
// and leaves; or gives up, crashes, loses its answer, or stops because it is asked to.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "pool/scheduler/scheduler.h"
#include "pool/simulation/clockwork.h"
#include "wire/pool.h"

namespace tendril::pool::simulation {

class World;

// What a program will do, decided by chance when it comes.
struct Plan {
  size_t user = 0;
  wire::LeaseRequest request;
  int64_t patience_ns = INT64_MAX;    // then it leaves the queue
  int64_t attach_after_ns = 0;        // after all is claimed; kNever: it never does
  int64_t run_ns = 0;                 // after it attached
  int64_t rest_after_ns = INT64_MAX;  // it does nothing from then on
  int64_t rest_ns = 0;                // for so long
  bool crashes_waiting = false, crashes_at_answer = false, loses_answer = false;
  bool asks_servers = false;  // if no scheduler is there
};

enum class ClientState : uint8_t { kSeeking, kWaiting, kClaiming, kRunning, kGone };

struct Part {
  size_t server = 0;
  uint64_t lease_id = 0;
  std::string secret;
  size_t slices = 0;
  bool claimed = false, gone = false;
  uint64_t boot = 0;  // of the server, when it was claimed: numbers begin anew after that
};

class FakeClient {
 public:
  FakeClient(World* world, uint64_t id, Plan plan);

  uint64_t id() const { return id_; }
  ClientState state() const { return state_; }
  const Plan& plan() const { return plan_; }
  const std::vector<Part>& parts() const { return parts_; }
  uint64_t pool_lease_id() const { return pool_lease_id_; }
  int64_t asked_ns() const { return asked_ns_; }
  int64_t answered_ns() const { return answered_ns_; }
  int64_t heard_ns() const { return heard_ns_; }
  const wire::News& last_news() const { return news_; }
  bool runs_whole() const;  // all its parts are claimed and none is gone

  void seek();
  void wire_gone(uint64_t wire);
  void answered(uint64_t wire, const base::Status& status, const wire::LeaseReply& reply);
  void heard(uint64_t wire, const wire::News& news);
  void noticed(size_t server, const wire::Notice& notice);
  void part_gone(size_t server, uint64_t lease_id, const std::string& why);
  void crash();
  void leave();
  void stop(const std::string& why);  // it ends, with all its parts

 private:
  void ask_server();
  void claim(size_t part);
  void run();
  void gone(bool broken, const std::string& why);
  void again();
  void later(int64_t span_ns, void (FakeClient::*what)());
  void rest();
  void work_again();
  void finish() { stop("done"); }

  World* const world_;
  const uint64_t id_;
  Plan plan_;
  ClientState state_ = ClientState::kSeeking;
  uint64_t step_ = 0;  // counts changes of state, to make what was planned before obsolete
  uint64_t wire_ = 0;
  int64_t asked_ns_ = 0, first_try_ns_ = -1, answered_ns_ = 0, heard_ns_ = 0;
  uint64_t pool_lease_id_ = 0;
  std::vector<Part> parts_;
  wire::News news_;
  bool requeued_ = false;
};

}  // namespace tendril::pool::simulation
