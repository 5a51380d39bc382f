// SPDX-License-Identifier: Apache-2.0
// See learned_calls.h.
#include "daemon/containment/learned_calls.h"

#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

#include "daemon/log.h"

namespace tendril::daemon {
namespace {

constexpr size_t kNamesMax = 1024, kNameMax = 40;  // the kernel has about 450

bool is_name(const std::string& text) {
  return !text.empty() && text.size() <= kNameMax &&
         text.find_first_not_of("abcdefghijklmnopqrstuvwxyz0123456789_") == std::string::npos;
}

}  // namespace

base::Result<std::shared_ptr<LearnedCalls>> LearnedCalls::open(const std::string& path) {
  auto calls = std::make_shared<LearnedCalls>();
  calls->file_.reset(::open(path.c_str(), O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC, 0644));
  if (!calls->file_.valid()) {
    return base::errno_status(base::Code::kInvalid,
                              ("--learn-filter: cannot write '" + path + "'").c_str(), errno);
  }
  std::string line;
  char letter;
  while (read(calls->file_.get(), &letter, 1) == 1) {
    if (letter != '\n') {
      line += letter;
      continue;
    }
    calls->known_.insert(std::move(line));
    line.clear();
  }
  return calls;
}

void LearnedCalls::add(const std::string& name) {
  if (!is_name(name) || known_.size() >= kNamesMax || !known_.insert(name).second) return;
  log(Level::kInfo, "learned the system call %s", name.c_str());
  const std::string line = name + "\n";
  if (write(file_.get(), line.data(), line.size()) < 0)
    log(Level::kWarning, "the list of system calls lacks %s: it cannot be written", name.c_str());
}

}  // namespace tendril::daemon
