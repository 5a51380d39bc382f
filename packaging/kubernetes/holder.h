// SPDX-License-Identifier: Apache-2.0
// A process that asks a pool for a lease and holds it: `tendril run` with a program that does
// nothing. One thread, which must live as long as the holder, because the process ends with it.
#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

#include "base/fd.h"

namespace tendril::kubernetes {

class Holder {
 public:
  // `words`: the options of `tendril run` that say what is asked for. `name`: what lists of leases
  // show as the program. Throws std::runtime_error: it cannot be started.
  Holder(const std::string& tendril, const std::vector<std::string>& words,
         const std::string& name);
  Holder(const Holder&) = delete;
  Holder& operator=(const Holder&) = delete;
  // Kills the process. A lease ends with that, unless a program has taken it over.
  ~Holder();

  // Reads what it has said and sees whether it lives. Does not block.
  void look();
  // The leases as TENDRIL_LEASES says them; empty: not granted yet.
  const std::string& leases() const { return leases_; }
  // The last line that it wrote for people.
  const std::string& said() const { return said_; }
  bool has_ended() const { return ended_; }

 private:
  struct Folder {  // goes with its content, also when the constructor throws
    std::string path;
    ~Folder();
  };
  Folder folder_;
  base::Fd out_, err_;
  std::string out_text_, err_text_, leases_, said_;
  pid_t process_ = -1;
  bool ended_ = false;
};

}  // namespace tendril::kubernetes
