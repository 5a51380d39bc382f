// SPDX-License-Identifier: Apache-2.0
// The loop of one session. It takes calls off the lane in order. Between them it looks at waits and
// at the gate. All APIs share it. It is a template, so that a launch makes no virtual call.
// Executor thread.
#pragma once

#include "session/lane/service.h"
#include "worker/core/gate.h"

namespace tendril::worker {

enum class CallOutcome : uint8_t {
  kRun,
  kAnswered,     // not run, because it names an object that does not exist
  kSessionOver,  // the message is not a valid call
};

// Host has:
//   bool polling()                       some waits must be looked at often
//   void poll()                          looks at them
//   void catch_up()                      does the work that was put off until no call is there
//   bool catch_up_now()                  the same, if no call came in time; false: nothing was due
//   transport::Wait patience(bool polling)   how long to look for the next call
//   void looked()                        the loop looked for a call while no wait was polled
//   void idle()                          no call came, and neither gate nor waits need a look
//   bool ordered()                       tendrild wants something done between calls
//   void obey()                          does it, if it can be done now
//   CallOutcome serve(const session::Call&)
template <typename Host>
class Loop {
 public:
  // Runs until the client leaves, the service ends or a call is malformed.
  static void run(session::Service* service, Gate* gate, Host* host) {
    for (;;) {
      if (__builtin_expect(host->ordered(), 0)) host->obey();
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
