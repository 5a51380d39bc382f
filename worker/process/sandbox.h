// SPDX-License-Identifier: Apache-2.0
// What a worker process gives up before it serves a stranger: core files, its user, its
// capabilities, new privileges, and system calls that no GPU driver needs. It also dies with its
// parent. worker/process/process.cc calls each function once, on the main thread: `enter_sandbox`
// before any driver is loaded, `lock_down` when the driver's threads and contexts exist.
#pragma once

#include <sys/types.h>

#include <cstdint>

#include "base/result.h"

namespace tendril::worker {

// `parent`: the daemon. Fails if it has died already. `user` 0: keep the user, but drop the
// capabilities.
base::Status enter_sandbox(pid_t parent, uint32_t user);

// Denies system calls with EPERM: those that start programs, look into or signal other processes,
// mount, load modules, open network connections or change the machine. It is a deny list because
// drivers need many calls, and other ones with each release. Applies to every thread.
base::Status lock_down();

}  // namespace tendril::worker
