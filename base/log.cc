// SPDX-License-Identifier: Apache-2.0
// See log.h.
#include "base/log.h"

#include <unistd.h>

#include <atomic>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace tendril::base {
namespace {
constexpr int kUnknown = -1;
std::atomic<int> g_level{kUnknown};
std::atomic<LogSink> g_sink{nullptr};

int level_from_environment() {
  static const char* const names[] = {"off", "error", "warning", "info", "debug"};
  const char* text = getenv("TENDRIL_LOG");
  for (int i = 0; text != nullptr && i < 5; ++i) {
    if (strcmp(text, names[i]) == 0) return i;
  }
  return int(LogLevel::kWarning);
}
}  // namespace

bool log_enabled(LogLevel level) {
  int now = g_level.load(std::memory_order_relaxed);
  if (now == kUnknown) {
    now = level_from_environment();
    g_level.store(now, std::memory_order_relaxed);
  }
  return int(level) <= now;
}

void set_log_level(LogLevel level) { g_level.store(int(level), std::memory_order_relaxed); }
void set_log_sink(LogSink sink) { g_sink.store(sink); }

void log(LogLevel level, const char* pattern, ...) {
  if (!log_enabled(level)) return;
  char line[1024] = "tendril: ";
  const size_t head = strlen(line);
  va_list arguments;
  va_start(arguments, pattern);
  int length = vsnprintf(line + head, sizeof line - head - 1, pattern, arguments);
  va_end(arguments);
  if (length < 0) return;
  if (LogSink sink = g_sink.load()) return sink(level, line + head);
  size_t bytes = strlen(line);
  line[bytes++] = '\n';
  ssize_t ignored = write(STDERR_FILENO, line, bytes);
  (void)ignored;
}

}  // namespace tendril::base
