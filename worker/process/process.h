// SPDX-License-Identifier: Apache-2.0
// The whole life of a worker process: arguments, sandbox, the session that tendrild gives it. A
// library, so that a test can make a worker that serves another table of APIs. The executable is
// started by tendrild only (daemon/worker_process.h).
#pragma once

#include <vector>

#include "worker/core/api.h"

namespace tendril::worker {

// Modes: --probe prints the inventory and the table of APIs; --monitor prints samples of
// utilisation until it is killed. Otherwise the process warms up the API of --api (cuda when
// absent) on --gpu, says so on descriptor 3 and waits there for its session. Does not return: it
// leaves with _exit, because the drivers' exit handlers only delay what the kernel does at once.
[[noreturn]] void process_main(int argc, char** argv, const std::vector<Api>& apis);

}  // namespace tendril::worker
