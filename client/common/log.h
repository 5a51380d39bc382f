// SPDX-License-Identifier: Apache-2.0
// base/log.h for the client libraries: inside other people's processes a message must not flood, so one distinct text is shown at most
// kRepeatsMax times, and errno is kept. Any thread, any time, also across fork: no locks, no allocation.
#pragma once

#include "base/log.h"

namespace tendril::client {

using base::LogLevel;

inline constexpr unsigned kRepeatsMax = 3;

// Lines longer than 1,000 bytes are cut. `format` as printf.
void log(LogLevel level, const char* format, ...) __attribute__((format(printf, 2, 3)));

// The same, at most once per process for one distinct text.
void log_once(LogLevel level, const char* format, ...) __attribute__((format(printf, 2, 3)));

// Forgets what was shown. For tests.
void forget_logged();

}  // namespace tendril::client
