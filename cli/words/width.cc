// SPDX-License-Identifier: Apache-2.0
// See width.h.
#include "cli/words/width.h"

#include <sys/ioctl.h>
#include <unistd.h>

namespace tendril::cli {
namespace {

constexpr size_t kUsual = 80, kLeast = 40;

}  // namespace

size_t line_width(bool wide) {
  if (wide || !isatty(STDOUT_FILENO)) return 0;
  winsize size = {};
  if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) != 0 || size.ws_col == 0) return kUsual;
  return size.ws_col < kLeast ? kLeast : size.ws_col;
}

}  // namespace tendril::cli
