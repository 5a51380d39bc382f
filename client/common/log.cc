// SPDX-License-Identifier: Apache-2.0
// See log.h. A table of hashes counts repeats. Entries are claimed and incremented with atomics.
// When the table is full, new messages are shown without a limit, because dropping them could hide
// the one that matters.
#include "client/common/log.h"

#include <atomic>
#include <cerrno>
#include <cstdarg>
#include <cstdint>
#include <cstdio>

#include "base/log.h"

namespace tendril::client {
namespace {

constexpr size_t kLineMax = 1000;
constexpr size_t kSlots = 512;

struct Slot {
  std::atomic<uint64_t> hash{0};
  std::atomic<uint32_t> count{0};
};

constinit Slot seen[kSlots];

base::LogLevel level_of_base(LogLevel level) { return static_cast<base::LogLevel>(level); }

// How often this text came before. 0: it is new, or the table is full.
uint32_t count_repeat(const char* text) {
  uint64_t hash = 0xcbf29ce484222325u;  // FNV-1a
  for (; *text != 0; ++text) hash = (hash ^ static_cast<uint8_t>(*text)) * 0x100000001b3u;
  if (hash == 0) hash = 1;
  for (size_t probe = 0; probe < kSlots; ++probe) {
    Slot& slot = seen[(hash + probe) % kSlots];
    uint64_t found = 0;
    if (slot.hash.compare_exchange_strong(found, hash) || found == hash) {
      return slot.count.fetch_add(1, std::memory_order_relaxed);
    }
  }
  return 0;
}

void show(LogLevel level, const char* format, va_list arguments, uint32_t shown_max) {
  int saved = errno;
  char line[kLineMax];
  if (vsnprintf(line, sizeof line, format, arguments) >= 0) {
    uint32_t before = count_repeat(line);
    bool last = shown_max > 1 && before + 1 == shown_max;
    if (before < shown_max)
      base::log(level_of_base(level), "%s%s", line, last ? " (further repeats are not shown)" : "");
  }
  errno = saved;
}

}  // namespace

void log(LogLevel level, const char* format, ...) {
  if (!base::log_enabled(level_of_base(level))) return;
  va_list arguments;
  va_start(arguments, format);
  show(level, format, arguments, kRepeatsMax);
  va_end(arguments);
}

void log_once(LogLevel level, const char* format, ...) {
  if (!base::log_enabled(level_of_base(level))) return;
  va_list arguments;
  va_start(arguments, format);
  show(level, format, arguments, 1);
  va_end(arguments);
}

void forget_logged() {
  for (Slot& slot : seen) {
    slot.hash.store(0);
    slot.count.store(0);
  }
}

}  // namespace tendril::client
