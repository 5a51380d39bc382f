// SPDX-License-Identifier: Apache-2.0
// base/log.h for the client libraries. Inside other people's processes messages must not flood, so
// one distinct text is shown at most kRepeatsMax times. Keeps errno. Any thread, any time, also
// across fork: no locks, no allocation.
#pragma once

namespace tendril::client {

// A type of its own, so that `log(...)` here never means base's by argument-dependent lookup.
enum class LogLevel : int { kOff = 0, kError = 1, kWarning = 2, kInfo = 3, kDebug = 4 };

inline constexpr unsigned kRepeatsMax = 3;

// Lines longer than 1,000 bytes are cut. `format` as printf.
void log(LogLevel level, const char* format, ...) __attribute__((format(printf, 2, 3)));

// The same, at most once per process for one distinct text.
void log_once(LogLevel level, const char* format, ...) __attribute__((format(printf, 2, 3)));

// Forgets what was shown. For tests.
void forget_logged();

}  // namespace tendril::client
