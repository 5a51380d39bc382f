// SPDX-License-Identifier: Apache-2.0
// Which transport a session gets. The client offers every kind that its build has, or says why one
// is not possible there. The worker chooses in `choose`, and nowhere else, and answers. Both ends
// keep their halves meanwhile. No transport is named here; the registry knows them.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/fd.h"
#include "base/result.h"
#include "session/choice/candidate.h"
#include "transport/registry.h"
#include "wire/assignment.h"
#include "wire/control.h"

namespace tendril::session {

// ---- the client's end ----

class Offers {
 public:
  // If `only` is not empty, it lists the transports with channels of their own that are offered.
  static Offers make(const transport::Setting& setting, const std::string& only);
  const wire::TransportOffers& records() const { return records_; }

  struct Own {
    const transport::Transport* transport = nullptr;
    std::unique_ptr<transport::Half> half;
  };
  // The offer of that kind; null: none.
  Own* find(const std::string& kind);

 private:
  wire::TransportOffers records_;
  std::vector<Own> own_;
};

// kInvalid if this build lacks a transport of that list ("rdma,tcp"); the text lists the kinds.
base::Status check_kind(const std::string& only);

// ---- the worker's end ----

struct Choice {
  wire::TransportAnswers answers;
  base::Fd descriptor;  // of the first answer, for the client; invalid: it needs none
  std::vector<std::unique_ptr<transport::Half>> halves;  // one for each answer
};

// Nobody chooses what moves data between registered memory (RDMA) any more: `why`, for people. For
// tendrild, before a worker sees the offers.
void forbid_fabrics(wire::TransportOffers* offers, const std::string& why);

// The nearest transport that both ends have and can use. The reason says why nearer ones were not
// chosen. kUnsupported: there is none.
base::Result<Choice> choose(const wire::TransportOffers& offers, const transport::Setting& setting);

// Opens the channels, once the client has decided among the answers. *candidate: what the client
// may try while the session runs; without a half: nothing.
base::Result<transport::Channels> open_choice(Choice choice, wire::StartOn on,
                                              transport::Streams streams, Candidate* candidate);

}  // namespace tendril::session
