// SPDX-License-Identifier: Apache-2.0
// How this server's workers are kept from the machine and from each other, as the daemon's own
// rights and the kernel allow. daemon/probe.h tries what is chosen here with the real driver. What
// a worker then does to itself is in worker/process/sandbox.h.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "base/fd.h"
#include "base/result.h"

namespace tendril::daemon {

// What an administrator asked for.
struct IsolationWish {
  std::string user = "auto";  // "auto", "none" or the first of a range of user ids
  bool weak = false;          // serve even where workers cannot be kept apart
};

struct Isolation {
  enum class Kind {
    kUsers,       // each lease has a user of its own
    kNamespaces,  // the daemon's user, in user namespaces, with few files
    kWeak,        // the daemon's user; only what needs no rights
  };
  Kind kind = Kind::kWeak;
  uint32_t first_user = 0;  // of kUsers
};

// `users`: how many are needed. The range is one that no person, service manager or container has
// by custom, if this process may become those users.
base::Result<Isolation> choose_isolation(const IsolationWish& wish, uint32_t users);

// Why a server refuses to serve, with what would help. `why` is what failed.
base::Status refuse_weak_isolation(const std::string& why);

// One line for the log, about what holds here.
std::string describe(const Isolation& isolation);

// The networks of the supervisor's thread, which calls this.
class Networks {
 public:
  // The calling thread and the processes that it starts from now on have a network of their own,
  // without any interface that is up, and System V objects and message queues of their own. The
  // processes see each other: drivers pass each other descriptors over abstract sockets. Needs
  // root.
  base::Status leave();
  // What `start` starts is in the machine's network.
  void in_machines(const std::function<void()>& start) const;

 private:
  base::Fd machines_, own_;  // of the network namespaces; not valid: it has not left
};

// The processes that the calling thread starts from now on cannot reach abstract sockets of other
// programs, or signal them. Fails where the kernel is too old.
base::Status keep_children_inside();

}  // namespace tendril::daemon
