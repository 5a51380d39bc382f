// SPDX-License-Identifier: Apache-2.0
// Starting a child of the daemon and knowing, without signals, when it ends. The child inherits
// only the descriptors named here; its stdout and stderr go into pipes or sockets of the caller's
// choice. Children must be started on a thread that outlives them: they ask the kernel to be killed
// when that thread goes.
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

// `output` becomes stdout and stderr; `control` (-1: none) becomes descriptor 3. Every other
// descriptor is closed in the child.
base::Result<Child> start_child(const std::string& executable,
                                const std::vector<std::string>& arguments, int output, int control);

// SIGKILL; harmless when it has gone already.
void kill_child(const Child& child);
// Collects an exited child; its wait status as of waitpid. Blocks until it has exited.
int reap_child(Child* child);
std::string describe_exit(
    int wait_status);  // "exited with status 3", "was killed by signal 9 (Killed)"

// Runs a child to its end and returns what it wrote to stdout and stderr, bounded in size and time
// (it is killed then). The calling thread must live on until it returns, which it does.
struct ChildOutput {
  std::string text;
  int wait_status = 0;
};
base::Result<ChildOutput> run_child(const std::string& executable,
                                    const std::vector<std::string>& arguments, int timeout_ms);

}  // namespace tendril::daemon
