// SPDX-License-Identifier: Apache-2.0
// TENDRIL_CHECK is for programmer errors. It aborts daemons and tests. In the client library the
// handler of client/common turns the failure into a sticky "device lost" result, because we must
// never kill other people's processes. Never use it on data that came from a peer or from the
// user's program.
#pragma once

namespace tendril::base {

// Prints the failed condition once and calls the installed handler. Aborts if there is none or it
// returns false.
void check_failed(const char* condition, const char* file, int line);

// The client library installs a handler that marks the session lost and returns true (do not
// abort).
using CheckHandler = bool (*)(const char* condition, const char* file, int line);
void set_check_handler(CheckHandler handler);

}  // namespace tendril::base

#define TENDRIL_CHECK(condition)                                     \
  do {                                                               \
    if (__builtin_expect(!(condition), 0))                           \
      ::tendril::base::check_failed(#condition, __FILE__, __LINE__); \
  } while (false)
