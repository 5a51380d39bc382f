// SPDX-License-Identifier: Apache-2.0
// See stats.h.
#include "client/cuda/stats.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/cuda/entry.h"
#include "client/cuda/trace.h"

namespace tendril::client::cuda {

std::atomic<bool> g_observing{false};

namespace {

struct Line {
  std::atomic<uint64_t> calls, nanoseconds;
};
Line g_lines[kEntryCount];
char g_path[512];

void print_lines(FILE* to) {
  fprintf(to, "tendril: calls by function\n%12s %12s %10s  %s\n", "calls", "total us", "us/call", "function");
  uint64_t total = 0;
  for (int i = 0; i < kEntryCount; ++i) {
    const uint64_t calls = g_lines[i].calls.load();
    if (calls == 0) continue;
    total += calls;
    const double us = static_cast<double>(g_lines[i].nanoseconds.load()) / 1000.0;
    fprintf(to, "%12llu %12.1f %10.3f  %s\n", static_cast<unsigned long long>(calls), us,
            us / static_cast<double>(calls), kEntries[i].name);
  }
  fprintf(to, "%12llu calls in all\n", static_cast<unsigned long long>(total));
}

}  // namespace

uint64_t stats_now_ns() {
  timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<uint64_t>(now.tv_sec) * 1'000'000'000u + static_cast<uint64_t>(now.tv_nsec);
}

void stats_count(uint16_t entry, uint64_t begun_ns) {
  if (entry >= kEntryCount) return;
  g_lines[entry].calls.fetch_add(1, std::memory_order_relaxed);
  g_lines[entry].nanoseconds.fetch_add(stats_now_ns() - begun_ns, std::memory_order_relaxed);
}

void stats_report() {
  if (g_path[0] == 0) return;
  FILE* to = strcmp(g_path, "1") == 0 ? stderr : fopen(g_path, "ae");
  if (to == nullptr) to = stderr;
  print_lines(to);
  if (Process* p = process()) {
    for (Session* session : p->sessions) {
      const session::LaneStats& s = session->lane->stats();
      fprintf(to,
              "tendril: server %s over %s: %llu calls sent, %llu round trips, %llu sends, %llu bytes out, %llu bytes "
              "in, %llu bulk\n",
              session->endpoint.c_str(), session->lane->transport_kind(),
              static_cast<unsigned long long>(s.calls.load()), static_cast<unsigned long long>(s.round_trips.load()),
              static_cast<unsigned long long>(s.sends.load()), static_cast<unsigned long long>(s.bytes_sent.load()),
              static_cast<unsigned long long>(s.bytes_received.load()),
              static_cast<unsigned long long>(s.bulk_bytes.load()));
    }
  }
  fflush(to);
  if (to != stderr) fclose(to);
}

void stats_start() {
  if (trace_start()) g_observing.store(true);
  const char* where = getenv("TENDRIL_STATS");
  if (where == nullptr || *where == 0 || strcmp(where, "0") == 0) return;
  snprintf(g_path, sizeof g_path, "%s", where);
  g_observing.store(true);
  static bool registered = false;
  if (!registered) registered = atexit(stats_report) == 0;
}

}  // namespace tendril::client::cuda
