// SPDX-License-Identifier: Apache-2.0
// The loop of one session: takes calls off the lane in order and, between them, looks at waits and
// at the gate. One for every API; a template, so that a launch pays no virtual call. Executor
// thread.
#pragma once

#include "session/lane/service.h"
#include "worker/core/gate.h"

namespace tendril::worker {

enum class CallOutcome : uint8_t {
  kRun,
  kAnswered,     // not run, as it named what does not exist
  kSessionOver,  // it was no call
};

// Host has:
//   bool polling()                       waits are under way that must be looked at often
//   void poll()                          looks at them
//   void catch_up()                      does what has been put off until no call is there
//   bool catch_up_now()                  the same when no call came in time; false: nothing was due
//   transport::Wait patience(bool polling)   how long to look for the next call
//   void looked()                        a call was looked for while nothing was polled
//   void idle()                          no call came, and gate and waits need no look either
//   CallOutcome serve(const session::Call&)
template <typename Host>
class Loop {
 public:
  // Until the client goes, the service ends or a call is malformed.
  static void run(session::Service* service, Gate* gate, Host* host) {
    for (;;) {
      const bool polling = host->polling();
      const Gate::Pace pace = gate->pace();
      if ((polling || pace == Gate::Pace::kAtOnce) && !service->pending()) {
        host->catch_up();
        if (polling) host->poll();
        if (pace != Gate::Pace::kNever) gate->look(false);
        if (!polling) gate->rest();
        continue;
      }
      base::Result<session::Call> call = service->next(host->patience(polling));
      if (!call.ok()) {
        if (call.status().code() != base::Code::kTimeout) break;
        no_call(gate, host, polling, pace);
        continue;
      }
      if (!polling) host->looked();
      const CallOutcome outcome = host->serve(*call);
      if (outcome == CallOutcome::kSessionOver) break;
      if (outcome == CallOutcome::kAnswered) continue;
      if (polling) host->poll();
      gate->look_between_calls();
    }
  }

 private:
  static void no_call(Gate* gate, Host* host, bool polling, Gate::Pace pace) {
    if (host->catch_up_now()) return;
    if (!polling) host->looked();
    if (polling) host->poll();
    if (pace != Gate::Pace::kNever)
      gate->look(!polling);
    else if (!polling)
      host->idle();
  }
};

}  // namespace tendril::worker
