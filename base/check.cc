// SPDX-License-Identifier: Apache-2.0
// TENDRIL_CHECK when its condition is false. See check.h.
#include "base/check.h"

#include <atomic>
#include <cstdio>
#include <cstdlib>

namespace tendril::base {
namespace {
std::atomic<CheckHandler> g_handler{nullptr};
}

void set_check_handler(CheckHandler handler) { g_handler.store(handler); }

void check_failed(const char* condition, const char* file, int line) {
  std::fprintf(stderr, "tendril: internal error: %s (%s:%d)\n", condition, file, line);
  CheckHandler handler = g_handler.load();
  if (handler != nullptr && handler(condition, file, line)) return;
  std::abort();
}

}  // namespace tendril::base
