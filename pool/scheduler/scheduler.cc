// SPDX-License-Identifier: Apache-2.0
// The first body: it answers reports, so that servers and tests can be written against it.
#include "pool/scheduler/scheduler.h"

#include <map>

namespace tendril::pool {

class Scheduler::State {
 public:
  explicit State(SchedulerOptions given) : options(std::move(given)) {}

  SchedulerOptions options;
  std::map<uint64_t, uint64_t> reports_due_ns;  // by connection
  Effects effects;
  std::string policy;
};

Scheduler::Scheduler(SchedulerOptions options)
    : state_(std::make_unique<State>(std::move(options))) {}
Scheduler::~Scheduler() = default;

void Scheduler::recover(const std::vector<std::pair<std::string, std::string>>&, Now) {}

void Scheduler::reported(uint64_t connection, const std::string&, const wire::PoolReport&,
                         Now now) {
  state_->reports_due_ns[connection] =
      now.monotonic_ns + uint64_t(wire::kReportEveryMs) * 1'000'000;
}

void Scheduler::lost(uint64_t connection, Now) { state_->reports_due_ns.erase(connection); }

void Scheduler::submitted(uint64_t connection, const Asker&, const wire::LeaseRequest&, Now) {
  state_->effects.news.push_back({connection, {}});
}

void Scheduler::left(uint64_t, bool, Now) {}

void Scheduler::command(uint64_t connection, const Asker&, const wire::PoolCommand& command, Now) {
  state_->effects.to_commanders.push_back(
      {connection, base::Status(base::Code::kUnsupported, "no verb " + command.verb), {}});
}

void Scheduler::stored(uint64_t, const base::Status&, Now) {}

Effects Scheduler::tick(Now now) {
  Effects effects = std::move(state_->effects);
  state_->effects = Effects();
  for (auto due = state_->reports_due_ns.begin(); due != state_->reports_due_ns.end();) {
    if (due->second > now.monotonic_ns) {
      effects.again_ns = std::min(effects.again_ns, due->second);
      ++due;
      continue;
    }
    wire::PoolOrders orders;
    orders.pool = state_->options.pool;
    orders.scheduler = state_->options.scheduler;
    orders.term = state_->options.term;
    orders.schedules = true;
    effects.to_servers.push_back({due->first, base::Status(), std::move(orders)});
    due = state_->reports_due_ns.erase(due);
  }
  return effects;
}

wire::ListReply Scheduler::list(const wire::ListRequest&, const Asker&, Now) const { return {}; }
const std::string& Scheduler::policy_text() const { return state_->policy; }
uint64_t Scheduler::policy_revision() const { return 0; }
Scheduler::Counts Scheduler::counts() const { return {}; }

}  // namespace tendril::pool
