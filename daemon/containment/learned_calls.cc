// SPDX-License-Identifier: Apache-2.0
// See learned_calls.h.
#include "daemon/containment/learned_calls.h"

#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

#include "base/call_names.h"
#include "daemon/log.h"

namespace tendril::daemon {
base::Result<std::shared_ptr<LearnedCalls>> LearnedCalls::open(const std::string& path) {
  auto calls = std::make_shared<LearnedCalls>();
  calls->file_.reset(::open(path.c_str(), O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC, 0644));
  if (!calls->file_.valid()) {
    return base::errno_status(base::Code::kInvalid,
                              ("--learn-filter: cannot write '" + path + "'").c_str(), errno);
  }
  std::string text;
  char part[4096];
  for (ssize_t got; (got = read(calls->file_.get(), part, sizeof part)) > 0;) {
    text.append(part, static_cast<size_t>(got));
    if (text.size() > base::kCallNamesBytesMax) break;
  }
  std::vector<std::string> names;
  std::string wrong;
  if (text.size() > base::kCallNamesBytesMax || !base::read_call_names(text, &names, &wrong)) {
    return base::Status(base::Code::kInvalid, "--learn-filter: '" + path +
                                                  "' is no list of system calls" +
                                                  (wrong.empty() ? "" : ": " + wrong));
  }
  calls->known_.insert(names.begin(), names.end());
  return calls;
}

void LearnedCalls::add(const std::string& name) {
  if (!base::is_call_name(name) || known_.size() >= base::kCallNamesMax ||
      !known_.insert(name).second)
    return;
  log(Level::kInfo, "learned the system call %s", name.c_str());
  const std::string line = name + "\n";
  if (write(file_.get(), line.data(), line.size()) < 0)
    log(Level::kWarning, "the list of system calls lacks %s: it cannot be written", name.c_str());
}

}  // namespace tendril::daemon
