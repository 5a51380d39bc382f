// SPDX-License-Identifier: Apache-2.0
// See log.h.
#include "reception/log.h"

#include <time.h>
#include <unistd.h>

#include <atomic>
#include <cstdarg>
#include <cstdio>

namespace tendril::reception {
namespace {

std::atomic<int> g_level{static_cast<int>(Level::kInfo)};
constexpr const char* kNames[] = {"debug", "info", "warning", "error"};

}  // namespace

void set_log_level(Level level) { g_level = static_cast<int>(level); }

void log(Level level, const char* format, ...) {
  if (static_cast<int>(level) < g_level) return;
  char line[2048];
  timespec now;
  clock_gettime(CLOCK_REALTIME, &now);
  tm parts;
  gmtime_r(&now.tv_sec, &parts);
  size_t used = strftime(line, sizeof line, "%Y-%m-%dT%H:%M:%S", &parts);
  used += static_cast<size_t>(snprintf(line + used, sizeof line - used, ".%03ldZ %s ",
                                       now.tv_nsec / 1000000, kNames[static_cast<int>(level)]));
  va_list arguments;
  va_start(arguments, format);
  const int wrote = vsnprintf(line + used, sizeof line - used - 1, format, arguments);
  va_end(arguments);
  if (wrote < 0) return;
  used = used + static_cast<size_t>(wrote) < sizeof line - 1 ? used + static_cast<size_t>(wrote)
                                                             : sizeof line - 2;
  line[used++] = '\n';
  // One write per line, so that lines of several threads do not mix. A failure (full disk, closed
  // pipe) loses only the line.
  const ssize_t ignored = write(2, line, used);
  (void)ignored;
}

}  // namespace tendril::reception
