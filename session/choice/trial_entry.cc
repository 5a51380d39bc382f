// SPDX-License-Identifier: Apache-2.0
// See trial_entry.h.
#include "session/choice/trial_entry.h"

#include <algorithm>

#include "base/text.h"
#include "transport/registry.h"

namespace tendril::session {

using base::Code;
using base::Status;

void TrialEntry::open(const wire::TransportAnswers& answers, uint16_t bulk_channels, bool lasts) {
  if (!lasts || answers.answers.size() < 2) return;
  const transport::Transport* const first = transport::find_transport(answers.answers.front().kind);
  if (first == nullptr || (first->abilities & transport::kCarriesLines) == 0) return;
  seats_.assign(std::max<size_t>(bulk_channels, 1), false);
}

Status TrialEntry::join(uint16_t number, uint64_t now_ns) {
  if (seats_.empty()) return Status(Code::kInvalid, "this session has nothing to try");
  if (number >= seats_.size())
    return Status(Code::kInvalid,
                  base::format("a trial of this session has %zu connections", seats_.size()));
  if (seats_[number])
    return Status(Code::kInvalid,
                  base::format("connection %u of the trial is there already", unsigned(number)));
  if (now_ns >= until_ns_) {
    return Status(Code::kInvalid,
                  base::format("a session is tried within %d s of its start, or not at all",
                               kTrialComesMs / 1000));
  }
  seats_[number] = true;
  return Status();
}

}  // namespace tendril::session
