// SPDX-License-Identifier: Apache-2.0
// base/log.h for the client libraries. Messages must not flood other people's processes, so each
// distinct text is shown at most kRepeatsMax times. Preserves errno. Any thread, any time, also
// across fork: no locks, no allocation.
#pragma once

namespace tendril::client {

// A separate type, so that argument-dependent lookup never takes base's `log(...)`.
enum class LogLevel : int { kOff = 0, kError = 1, kWarning = 2, kInfo = 3, kDebug = 4 };

inline constexpr unsigned kRepeatsMax = 3;

// Cuts lines at 1,000 bytes. `format` is as for printf.
void log(LogLevel level, const char* format, ...) __attribute__((format(printf, 2, 3)));

// The same, but shows each distinct text at most once per process.
void log_once(LogLevel level, const char* format, ...) __attribute__((format(printf, 2, 3)));

// Forgets what was shown. For tests.
void forget_logged();

}  // namespace tendril::client
