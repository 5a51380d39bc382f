// SPDX-License-Identifier: Apache-2.0
// One line on stderr, written with a single system call so that lines of several processes do not
// mix. TENDRIL_LOG sets the level (off, error, warning, info, debug; default warning). Servers may
// redirect lines with set_log_sink. Callers must not log secrets.
#pragma once

namespace tendril::base {

enum class LogLevel : int { kOff = 0, kError = 1, kWarning = 2, kInfo = 3, kDebug = 4 };

bool log_enabled(LogLevel level);
void set_log_level(LogLevel level);
void log(LogLevel level, const char* pattern, ...) __attribute__((format(printf, 2, 3)));

using LogSink = void (*)(LogLevel level, const char* line);
void set_log_sink(LogSink sink);  // null: stderr

}  // namespace tendril::base
