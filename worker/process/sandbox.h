// SPDX-License-Identifier: Apache-2.0
// What a worker process gives up before it serves a stranger: its user or its place among the
// daemon's user's processes, capabilities, files, new privileges, core files, being looked into,
// most resources without end, and system calls that no GPU driver needs. It also dies with its
// parent. worker/process/process.cc calls each function once, on the main thread: `enter_sandbox`
// before any driver is loaded, `lock_down` when the driver's threads and contexts exist.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "base/result.h"

namespace tendril::worker {

struct Confinement {
  pid_t parent = 0;  // the daemon
  // The user to become. 0: keep the user, but drop the capabilities.
  uint32_t user = 0;
  // Keep the user, in a user namespace of its own. Then processes outside cannot be traced, though
  // they have the same user. Needs Landlock, because files do not know the difference.
  bool own_namespace = false;
  // What the driver needs of the machine's files beyond what every driver needs.
  std::vector<std::string> readable, writable;
  bool shares_files = false;  // the driver's processes meet in /dev/shm
  bool networked = false;     // NCCL reaches other servers' workers over TCP
  // The driver keeps what it compiles in files. It gets kOwnFolder, in memory, which no other
  // process sees and which ends with this one. Needs root or a user namespace.
  bool own_folder = false;
};
inline constexpr char kOwnFolder[] = "/var/tmp";

// Fails if the parent has died already. Where the kernel has no Landlock, a worker that becomes
// another user goes on without: it has that user's access to files.
base::Status enter_sandbox(const Confinement& wanted);

struct Calls {
  std::string driver;              // decides which of the lists in allowed/ holds
  std::vector<std::string> extra;  // from an administrator's list
  bool networked = false;          // NCCL reaches other servers' workers over TCP
  bool compiles = false;           // the driver starts programs of its own, such as a linker
  std::function<void(const std::string& name)> learned;  // see filter.h
};
// Denies system calls. Applies to every thread.
base::Status lock_down(const Calls& calls);

}  // namespace tendril::worker
