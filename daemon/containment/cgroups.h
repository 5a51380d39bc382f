// SPDX-License-Identifier: Apache-2.0
// A control group for each lease, where the system lets the daemon make some (cgroup v2, systemd's
// Delegate=yes, or a container that may write its own). It bounds what all workers of a lease take
// of memory, threads, processors and disks, and ends them together. Any thread; calls may take tens
// of milliseconds, so not on the supervisor's thread.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>

#include "base/result.h"
#include "lease/host_share.h"

namespace tendril::daemon {

class Cgroups {
 public:
  // `wish`: "auto", "off", or the folder of a group that was delegated to the daemon. Null: there
  // are none; the log says why. Only a folder that was named and cannot be used is an error. Ends
  // what daemons left in the same group that are not there any more.
  static base::Result<std::unique_ptr<Cgroups>> open(const std::string& wish);
  ~Cgroups();

  // Makes the group of the lease if there is none yet, and moves the process there.
  base::Status enter(uint64_t lease_id, const lease::HostShare& share, pid_t process);
  // What the lease may have beyond its share of the machine's memory, because it is parked.
  void add_memory(uint64_t lease_id, uint64_t bytes);
  // Kills what is left in the group, and removes it.
  void remove(uint64_t lease_id);
  // For the log: "memory, pids, cpu, io", or what of these there is.
  const std::string& controllers() const { return controllers_; }
  // Of the group that all leases' groups are in.
  const std::string& folder() const { return top_; }

 private:
  Cgroups(std::string base, std::string top) : base_(std::move(base)), top_(std::move(top)) {}
  base::Status prepare();
  base::Status make(const std::string& folder, const lease::HostShare& share) const;
  void tidy() const;

  const std::string base_;  // the daemon's
  const std::string top_;   // below it, for this daemon's leases
  std::string controllers_;
  std::mutex mutex_;
  struct Group {
    std::string folder;
    uint64_t memory_bytes = 0;  // its share
  };
  std::map<uint64_t, Group> groups_;  // guarded by mutex_: by lease
};

}  // namespace tendril::daemon
