// SPDX-License-Identifier: Apache-2.0
// The memory of this machine, as far as the daemon's cgroup lets it have it. What may go to host
// memory for parked leases follows from it. Reads a few files; any thread.
#pragma once

#include <cstdint>
#include <string>

namespace tendril::daemon {

struct HostMemory {
  uint64_t total_bytes = 0;
  uint64_t available_bytes = 0;  // what programs may take now; UINT64_MAX: the machine does not say
};

// As it is now.
HostMemory host_memory();
// The same in the group `place` ("/a/b") of the cgroups that are mounted at `mount`: each group
// from there up may have a limit.
HostMemory bounded_by_groups(HostMemory machine, const std::string& mount, std::string place);

// Where cgroup v2 is mounted; empty: nowhere.
std::string cgroup_mount();
// This process' group there: "/a/b".
std::string own_cgroup();

}  // namespace tendril::daemon
