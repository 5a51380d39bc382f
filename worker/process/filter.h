// SPDX-License-Identifier: Apache-2.0
// The filter of system calls. What is not on a list is denied with EPERM. The lists in allowed/ say
// what the process itself needs and what each driver needs; they were recorded with `tendril serve
// --learn-filter`. Another filter denies some arguments of calls that are on the lists. Used by
// sandbox.cc, on the main thread.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "base/result.h"

namespace tendril::worker {

// The names on process.list and on the list of the driver in this file: the software GPU's or the
// vendor's. `compiles`: and those of the compilers that the driver starts.
std::vector<std::string> allowed_calls(const std::string& driver, bool compiles = false);
// The names in a list that an administrator wrote. Names that this kernel or the library does not
// know are passed over, because lists are made on other machines.
base::Result<std::vector<std::string>> read_calls(const std::string& path);

// Denies everything that is not in `names`, on every thread. If `learned` is set, nothing that is
// off the list is denied. A thread calls it with the name of each such call, and the call goes on;
// that is for learning what a new driver needs, not for serving strangers. Arguments are checked in
// either case.
struct Openings {
  bool networked = false;  // sockets may reach beyond this machine
  bool compiles = false;   // the process may start others, which have the same filter
};
base::Status install_filter(const std::vector<std::string>& names, const Openings& openings,
                            std::function<void(const std::string& name)> learned);

}  // namespace tendril::worker
