// SPDX-License-Identifier: Apache-2.0
// Pictures that a command shows again and again: `top`, and every command with --watch. On a
// terminal each is drawn over the last one, and q or Ctrl-C ends it. In a pipe they follow each
// other. One at a time in a process, on its main thread.
#pragma once

#include <termios.h>

#include <functional>
#include <string>

#include "cli/commands.h"

namespace tendril::cli {

class Live {
 public:
  // From now on signals end the pictures, and a person's keys are read without Enter and echo.
  Live();
  ~Live();
  Live(const Live&) = delete;
  Live& operator=(const Live&) = delete;

  // False: nobody reads them any more.
  bool show(const std::string& picture) const;
  // Waits this long, or until it is time to end. False: end.
  bool wait(double seconds) const;

 private:
  termios before_ = {};
  bool types_ = false;  // a person
};

// `look` adds what it has to show to its argument, complains of the rest on stderr, and returns the
// exit status. Without --watch it is called once and what it gave is printed. With it the first
// call must have something to show; the status is then that of the last one.
int look_once_or_watch(const WatchOptions& options, const std::function<int(std::string*)>& look);

}  // namespace tendril::cli
