// SPDX-License-Identifier: Apache-2.0
// What another policy would do: a second engine with the same servers, leases and requests makes a
// plan, which is told and not carried out.
#include <algorithm>

#include "base/text.h"
#include "pool/scheduler/state.h"

namespace tendril::pool {

void Scheduler::State::describe_dry_run(Json& json, const PoolPolicy& then, const Asker& who) {
  const PoolPolicy now = effective_;
  std::vector<std::string> waits, shrinks, ends;
  Engine engine;
  engine.set_policy(then, now_.wall_s, seconds());
  effective_ = then;  // what ask_of() and class_of() look at
  for (const auto& each : members_) {
    EngineServer what;
    if (each != nullptr) {
      what.name = each->record.name;
      for (size_t i = 0; i < each->record.facts.gpus.size(); ++i) {
        const wire::GpuRecord& gpu = each->record.facts.gpus[i];
        what.gpus.push_back({gpu.name, class_of(then, each->facts[i]).value_or(kNoClass),
                             gpu.memory_usable_bytes, gpu.process_bytes});
      }
    }
    base::Result<uint32_t> number = engine.add_server(what);
    if (number.ok() && (each == nullptr || !speaks(*each) || each->record.drained)) {
      engine.set_state(*number, each == nullptr ? ServerState::kSilent : ServerState::kDraining);
    }
  }
  const auto name = [&](const Job& job) {
    return std::to_string(job.id) + " of " +
           (may_see(who, job) ? base::printable(job.who.name) : "somebody") + " (account " +
           job.account + ", class " + job.user_class + ")";
  };
  for (const auto& [id, job] : jobs_) {
    if (!job.in_engine) continue;
    if (!then.account(job.account) || !then.user_class(job.user_class)) {
      (job.on_servers() ? ends : waits).push_back(name(job) + ": its account or class is gone");
    } else if (job.on_servers()) {
      engine.adopt(ask_of(job), placed(job), job.granted_ns / int64_t(kSecond));
    } else {
      const base::Status status = engine.submit(ask_of(job), seconds());
      if (!status.ok()) waits.push_back(name(job) + ": " + status.message());
    }
  }
  const EnginePlan plan = engine.plan(seconds());
  for (const EngineReclaim& reclaim : plan.reclaims) {
    auto found = jobs_.find(reclaim.id);
    if (found == jobs_.end()) continue;
    const Job& job = found->second;
    const auto number = then.user_class(job.user_class);
    const auto& steps = then.user_classes[number.value_or(0)].preempt_mode;
    const bool shrinks_first =
        std::find(steps.begin(), steps.end(), Action::kShrink) != steps.end();
    (shrinks_first ? shrinks : ends).push_back(name(job) + ": " + reclaim.why);
  }
  for (const EngineWaiting& waiting : engine.waiting(seconds())) {
    auto found = jobs_.find(waiting.id);
    if (found == jobs_.end()) continue;
    waits.push_back(name(found->second) + ": " + reason_text(waiting.reason, waiting.text));
  }
  effective_ = now;
  for (const auto& [key, texts] :
       {std::pair("waits", &waits), std::pair("shrinks", &shrinks), std::pair("ends", &ends)}) {
    json.list(key);
    for (const std::string& text : *texts) json.text(text);
    json.end();
  }
}

}  // namespace tendril::pool
