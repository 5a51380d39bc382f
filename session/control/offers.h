// SPDX-License-Identifier: Apache-2.0
// Which transport a session gets. The client offers every kind that its build has, or says why one
// is not possible there; the worker chooses in `choose`, and nowhere else, and answers. Both ends
// keep their halves meanwhile. Names no transport: what there is, the registry knows.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/fd.h"
#include "base/result.h"
#include "transport/registry.h"
#include "wire/assignment.h"
#include "wire/control.h"

namespace tendril::session {

// ---- the client's end ----

class Offers {
 public:
  // `only` not empty: of the transports with channels of their own, this kind alone is offered.
  static Offers make(const transport::Setting& setting, const std::string& only);
  const wire::TransportOffers& records() const { return records_; }

  struct Own {
    const transport::Transport* transport = nullptr;
    std::unique_ptr<transport::Half> half;
  };
  // What was offered of that kind; null: nothing.
  Own* find(const std::string& kind);

 private:
  wire::TransportOffers records_;
  std::vector<Own> own_;
};

// kInvalid where the user asks for a kind that this build does not have; the text lists them.
base::Status check_kind(const std::string& only);

// ---- the worker's end ----

struct Choice {
  wire::TransportAnswers answers;
  base::Fd descriptor;  // of the first answer, for the client; invalid: it needs none
  std::vector<std::unique_ptr<transport::Half>> halves;  // of each answer
};

// The nearest transport that both ends have and that both can use. The reason says what was against
// nearer ones. kUnsupported: there is none.
base::Result<Choice> choose(const wire::TransportOffers& offers, const transport::Setting& setting);

// The channels, once the client has decided among the answers.
base::Result<transport::Channels> open_choice(Choice choice, wire::StartOn on,
                                              transport::Streams streams);

}  // namespace tendril::session
