// SPDX-License-Identifier: Apache-2.0
// Where a page gets what it shows, and who does what its users want: a pool's scheduler or a
// daemon. All calls return at once; `done` is called once, soon, on any thread.
#pragma once

#include <functional>
#include <string>

#include "access/principal.h"
#include "base/result.h"
#include "view/picture.h"
#include "wire/pool.h"

namespace tendril::dashboard {

// What somebody may see and do here. A page draws nothing else, and its routes refuse it.
struct Rights {
  bool sees = false;      // anything at all
  bool sees_all = false;  // others' names
  bool manages = false;   // ends and changes others' leases, too
  bool holds = false;     // ends and changes its own
  bool operates = false;  // drains servers, tries a policy
  bool rules = false;     // applies a policy
};

// By access/decide.h. `pool`: of a pool's scheduler, where one secret, or none, gives all rights to
// everybody; else of a lone server.
Rights rights_of(const access::Principal& who, bool pool);

class Source {
 public:
  template <typename Value>
  using Done = std::function<void(base::Result<Value>)>;
  virtual ~Source() = default;

  virtual Rights rights(const access::Principal& who) const = 0;
  // kUnavailable: not now, for example because another process schedules.
  virtual void look(Done<view::Picture> done) = 0;
  // Somebody looks at this lease for the next seconds: pictures should have its calls and bytes.
  virtual void watch(uint64_t /*lease*/) {}
  // A verb of PoolCommand. Whether `who` may is decided, and written to the audit log, behind this.
  // kUnsupported: there is no such thing here, for example no history.
  virtual void command(const access::Principal& who, const std::string& address,
                       wire::PoolCommand command, Done<std::string> done) = 0;
};

}  // namespace tendril::dashboard
