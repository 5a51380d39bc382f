// SPDX-License-Identifier: Apache-2.0
// The whole life of a worker process: arguments, sandbox, and the session that tendrild gives it.
// It is a library, so that a test can make a worker with another table of APIs. Only tendrild
// starts the executable (daemon/worker_process.h).
#pragma once

#include <vector>

#include "worker/core/api.h"

namespace tendril::worker {

// Modes: --probe prints the inventory and the table of APIs. --monitor prints samples of
// utilisation until it is killed. --bare, with --probe: outside of the sandbox, as the daemon's
// user; of the devices of --api, and the APIs that share them. Without these, the process warms up
// the API of --api (default: cuda) on --gpu, reports that on descriptor 3, and waits there for its
// session. It does not return. It leaves with _exit, because the drivers' exit handlers only delay
// what the kernel does at once.
[[noreturn]] void process_main(int argc, char** argv, const std::vector<Api>& apis);

}  // namespace tendril::worker
