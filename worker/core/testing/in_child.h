// SPDX-License-Identifier: Apache-2.0
// For tests of what a process cannot undo.
#pragma once

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <functional>

namespace tendril::worker {

// Runs `body` in a child. The child's exit status, or -signal if it was killed.
inline int in_child(const std::function<int()>& body) {
  const pid_t child = fork();
  if (child == 0) _exit(body());
  int status = 0;
  waitpid(child, &status, 0);
  return WIFSIGNALED(status) ? -WTERMSIG(status) : WEXITSTATUS(status);
}

}  // namespace tendril::worker
