// SPDX-License-Identifier: Apache-2.0
// Starts a child of the daemon and notices its end without signals. The child inherits only the
// descriptors named here, and by default only what drivers and workers need of the environment. Its
// stdout and stderr go into pipes or sockets of the caller's choice. The thread that starts a child
// must outlive it, because the child asks the kernel to be killed when that thread ends.
#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

#include "base/fd.h"
#include "base/result.h"

namespace tendril::daemon {

struct Child {
  pid_t pid = -1;
  base::Fd pidfd;  // readable when it has exited
};

enum class ChildEnvironment {
  kNeeded,  // only what drivers and workers need: the rest may be a secret
  kWhole,   // a user's command starts itself again
};

// `output` becomes stdout and stderr; `control` (-1: none) becomes descriptor 3. Every other
// descriptor is closed in the child.
base::Result<Child> start_child(const std::string& executable,
                                const std::vector<std::string>& arguments, int output, int control,
                                ChildEnvironment environment = ChildEnvironment::kNeeded);

// Sends SIGKILL. Harmless if the child has already exited.
void kill_child(const Child& child);
// Collects a child and returns its wait status, as from waitpid. Blocks until it has exited.
int reap_child(Child* child);
std::string describe_exit(
    int wait_status);  // "exited with status 3", "was killed by signal 9 (Killed)"

// Runs a child to its end and returns what it wrote to stdout and stderr, limited in size. A child
// that takes too long is killed. The calling thread waits, so it outlives the child.
struct ChildOutput {
  std::string text;
  int wait_status = 0;
};
base::Result<ChildOutput> run_child(const std::string& executable,
                                    const std::vector<std::string>& arguments, int timeout_ms,
                                    ChildEnvironment environment = ChildEnvironment::kNeeded);

}  // namespace tendril::daemon
