// SPDX-License-Identifier: Apache-2.0
// The client's end of a trial, from the fabric's halves to the lines that move: measures what
// fabric and connections give, or takes what is remembered of that, chooses, and moves the lines.
// The worker's end is answer_trial (candidate.h). For control/background_trial.cc, and for passages
// between workers, of which the one that connects is the client. Blocking.
#pragma once

#include <string>
#include <vector>

#include "session/choice/candidate.h"
#include "session/choice/port_pairs.h"
#include "session/choice/ways.h"

namespace tendril::session {

class WayTrial {
 public:
  // `candidate` and `known` outlive it. `blob`: the worker's answer to the candidate's half.
  WayTrial(Candidate* candidate, std::string blob, WayMemory* known);
  // Whether both ends' cards reach each other at all. Before `run`.
  base::Status open();
  // What was chosen, and is done; or why there is nothing to choose.
  base::Result<WayChoice> run(TrialLines* lines);
  // Under which it is remembered.
  const std::string& way() const { return way_; }

 private:
  void keep(WayRecord* record);
  base::Result<WayRecord> compare(TrialLines* lines);
  // Several ports. `tried` has the first pair already.
  void find_ports(TrialLines* lines);
  void compare_pairs(TrialLines* lines, WayRecord* record, const transport::Measured& first);
  base::Status open_pair(TrialLines* lines, WayKind kind, const PortPair& pair);
  base::Status open_remembered(TrialLines* lines, const WayRecord& record);
  std::string name_of(const PortPair& pair, const char* between) const;

  Candidate& candidate_;
  const std::string blob_;
  WayMemory& known_;
  const std::string way_;
  // Where several pairs of ports may carry it.
  std::vector<transport::Port> here_, there_;
  WayKind best_ = WayKind::kFabric;
  bool striped_ = false;
  std::string remarks_[kWays], pairs_text_;
};

}  // namespace tendril::session
