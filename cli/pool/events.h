// SPDX-License-Identifier: Apache-2.0
// What happens to the leases of a program, for programs: a line of JSON for each notice, appended
// to a file or pipe that the user names. A notebook's extension or a supervisor reads it. Used by
// run.cc and lease_hold.cc; it never blocks, and nothing that the program does depends on it.
#pragma once

#include <cstdint>
#include <string>

#include "base/result.h"
#include "wire/pool.h"

namespace tendril::cli {

// {"at":1700000000,"event":"warning","in_s":120,"text":"the lease reaches its longest time"}
std::string event_line(const wire::Notice& notice, int64_t wall_s);

class Events {
 public:
  // `path` is what the command line names; empty: TENDRIL_EVENTS, and without that nothing is
  // written.
  explicit Events(const std::string& path);

  // kInvalid: the file cannot be written. A pipe that nobody reads yet is fine.
  base::Status check() const;
  void tell(const wire::Notice& notice) const;
  // A server ended the lease without a word, or is gone.
  void tell_lost(const std::string& server) const;

 private:
  void append(const std::string& line) const;

  std::string path_;
};

}  // namespace tendril::cli
