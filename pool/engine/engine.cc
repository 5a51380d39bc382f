// SPDX-License-Identifier: Apache-2.0
// See engine.h.
#include "pool/engine/engine.h"

#include <algorithm>

#include "pool/engine/room.h"

namespace tendril::pool {

const char* wait_reason_name(WaitReason reason) {
  switch (reason) {
    case WaitReason::kResources:
      return "Resources";
    case WaitReason::kPriority:
      return "Priority";
    case WaitReason::kQuota:
      return "Quota";
    case WaitReason::kUserLimit:
      return "UserLimit";
    case WaitReason::kReservation:
      return "Reservation";
    case WaitReason::kSchedule:
      return "Schedule";
    case WaitReason::kFragmented:
      return "Fragmented";
    case WaitReason::kNeverFits:
      return "NeverFits";
    case WaitReason::kServersDown:
      return "ServersDown";
  }
  return "unknown";
}

class Engine::State {
 public:
  struct Entry {
    Ask ask;
    uint32_t gpu_class = kNoClass;
    uint64_t share = 0;
    int64_t started_s = 0;
  };
  Room room;
  PoolPolicy policy = default_policy();
  std::vector<Entry> waiting;
  std::map<uint64_t, Entry> running;
};

Engine::Engine() : state_(std::make_unique<State>()) {}
Engine::~Engine() = default;

void Engine::set_policy(const PoolPolicy& policy, int64_t, int64_t) { state_->policy = policy; }

base::Result<uint32_t> Engine::add_server(const EngineServer& server) {
  return state_->room.add(server);
}
base::Status Engine::update_server(uint32_t server, const EngineServer& what) {
  return state_->room.update(server, what);
}
void Engine::set_state(uint32_t server, ServerState state) {
  state_->room.set_state(server, state);
}
void Engine::set_maintenance(uint32_t server, std::vector<Interval> windows) {
  state_->room.set_maintenance(server, std::move(windows));
}
void Engine::remove_server(uint32_t server) { set_state(server, ServerState::kSilent); }

base::Status Engine::submit(const Ask& ask, int64_t) {
  if (ask.slices == 0 || ask.slices > kMostSlices)
    return base::Status(base::Code::kInvalid,
                        "a request has 1 to 64 slices, not " + std::to_string(ask.slices));
  state_->waiting.push_back(State::Entry{ask, kNoClass, 0, 0});
  return {};
}

void Engine::withdraw(uint64_t id) {
  std::erase_if(state_->waiting, [id](const State::Entry& entry) { return entry.ask.id == id; });
}

void Engine::adopt(const Ask& ask, const std::vector<PlacedSlice>& slices, int64_t started_s) {
  state_->room.hold(ask.id, slices, ask.packed, kNever);
  state_->running[ask.id] = State::Entry{ask, kNoClass, 0, started_s};
}

void Engine::resize(uint64_t, const std::vector<PlacedSlice>&) {}

void Engine::ended(uint64_t id, int64_t) {
  state_->room.release(id);
  state_->running.erase(id);
  withdraw(id);
}

void Engine::failed(uint64_t id, uint32_t, int64_t now_s) {
  const auto found = state_->running.find(id);
  if (found == state_->running.end()) return;
  const State::Entry entry = found->second;
  ended(id, now_s);
  state_->waiting.push_back(entry);
}

EnginePlan Engine::plan(int64_t now_s) {
  EnginePlan plan;
  std::vector<State::Entry> waiting;
  for (State::Entry& entry : state_->waiting) {
    std::vector<PlacedSlice> slices;
    for (uint32_t gpu_class : entry.ask.gpu_classes) {
      slices = state_->room.find(entry.ask, gpu_class, kNever);
      entry.gpu_class = gpu_class;
      if (!slices.empty()) break;
    }
    if (slices.empty()) {
      waiting.push_back(entry);
      continue;
    }
    state_->room.hold(entry.ask.id, slices, entry.ask.packed, kNever);
    plan.starts.push_back(EngineStart{entry.ask.id, entry.gpu_class, kNever, slices});
    entry.started_s = now_s;
    state_->running[entry.ask.id] = entry;
  }
  state_->waiting = std::move(waiting);
  return plan;
}

std::vector<EngineWaiting> Engine::waiting(int64_t) {
  std::vector<EngineWaiting> waiting;
  for (const State::Entry& entry : state_->waiting) {
    EngineWaiting each;
    each.id = entry.ask.id;
    each.place = static_cast<uint32_t>(waiting.size() + 1);
    each.of = static_cast<uint32_t>(state_->waiting.size());
    each.gpu_class = entry.gpu_class;
    each.account = entry.ask.account;
    each.reason = WaitReason::kResources;
    waiting.push_back(each);
  }
  return waiting;
}

uint64_t Engine::used(uint32_t, uint32_t) const { return 0; }
uint64_t Engine::used_by_user(uint32_t, const std::string&) const { return 0; }
uint64_t Engine::capacity(uint32_t) const { return state_->room.fleet().share_total(); }
uint64_t Engine::unused(uint32_t) const { return state_->room.fleet().share_free(); }
double Engine::decayed_gpu_seconds(uint32_t) const { return 0; }
size_t Engine::waiting_count() const { return state_->waiting.size(); }
size_t Engine::running_count() const { return state_->running.size(); }
std::vector<UsageRecord> Engine::usage() const { return {}; }
std::vector<DurationRecord> Engine::durations() const { return {}; }
void Engine::restore(const std::vector<UsageRecord>&, const std::vector<DurationRecord>&, int64_t) {
}

}  // namespace tendril::pool
