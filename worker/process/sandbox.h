// SPDX-License-Identifier: Apache-2.0
// What a worker process gives up before it serves a stranger: its parent's absence kills it, no
// core files, another user, no capabilities, no new privileges, and system calls that no GPU driver
// needs. Called once each by worker/process/process.cc, on the main thread: `enter` before any
// driver is loaded, `lock_down` when the driver's threads and contexts exist.
#pragma once

#include <sys/types.h>

#include <cstdint>

#include "base/result.h"

namespace tendril::worker {

// `parent`: the daemon; fails when it has died already. `user` 0: stay who we are, but without
// capabilities.
base::Status enter_sandbox(pid_t parent, uint32_t user);

// A deny list, since drivers need many calls and change them with each release: what starts
// programs, looks into or signals other processes, mounts, loads modules, opens network connections
// or changes the machine answers EPERM. Applies to every thread.
base::Status lock_down();

}  // namespace tendril::worker
