// SPDX-License-Identifier: Apache-2.0
// See stats.h.
#include "client/cuda/observe/stats.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "client/core/stats.h"
#include "client/cuda/bodies.h"
#include "client/cuda/entry.h"
#include "client/cuda/observe/trace.h"

namespace tendril::client::cuda {

namespace {

struct Line {
  std::atomic<uint64_t> calls, nanoseconds, waited, sent, round_trips, blocked_ns, bytes;
  std::atomic<uint64_t> errors, first_error_ns;  // since the statistics began
  std::atomic<int> first_error;
};
// Outside Process: entries are counted before there is one, and reported after it is of use.
struct Statistics {
  Line lines[kEntryCount];
  char path[512] = {};
  uint64_t begun_ns = 0;
};
constinit Statistics g_statistics;  // nothing of ours runs when the library is loaded

unsigned long long number(const std::atomic<uint64_t>& value) {
  return value.load(std::memory_order_relaxed);
}

// The functions that took most of the program's time first.
int by_time(const void* a, const void* b) {
  const uint64_t left = g_statistics.lines[*static_cast<const uint16_t*>(a)].nanoseconds.load();
  const uint64_t right = g_statistics.lines[*static_cast<const uint16_t*>(b)].nanoseconds.load();
  return left < right ? 1 : left > right ? -1 : 0;
}

void print_lines(FILE* to) {
  static uint16_t order[kEntryCount];
  unsigned used = 0;
  uint64_t total = 0, sent = 0, waited = 0, blocked_ns = 0;
  for (uint16_t i = 0; i < kEntryCount; ++i) {
    if (g_statistics.lines[i].calls.load() == 0) continue;
    order[used++] = i;
    total += g_statistics.lines[i].calls.load();
    sent += g_statistics.lines[i].sent.load();
    waited += g_statistics.lines[i].waited.load();
    blocked_ns += g_statistics.lines[i].blocked_ns.load();
  }
  qsort(order, used, sizeof *order, by_time);
  fprintf(to, "tendril: calls by function\n%12s %12s %10s %12s %11s %13s  %s\n", "calls",
          "total us", "us/call", "blocked us", "round trips", "bytes", "function");
  for (unsigned i = 0; i < used; ++i) {
    const Line& line = g_statistics.lines[order[i]];
    const double us = static_cast<double>(number(line.nanoseconds)) / 1000.0;
    fprintf(to, "%12llu %12.1f %10.3f %12.1f %11llu %13llu  %s\n", number(line.calls), us,
            us / static_cast<double>(number(line.calls)),
            static_cast<double>(number(line.blocked_ns)) / 1000.0, number(line.round_trips),
            number(line.bytes), kEntries[order[i]].name);
  }
  fprintf(to, "%12llu calls in all: %llu answered here, %llu sent without waiting, %llu waited\n",
          static_cast<unsigned long long>(total),
          static_cast<unsigned long long>(total - sent - waited),
          static_cast<unsigned long long>(sent), static_cast<unsigned long long>(waited));
  fprintf(to, "tendril: ran for %.3f s, %.3f s of waiting\n",  // plan/network.h reads it
          static_cast<double>(base::now_ns() - g_statistics.begun_ns) / 1e9,
          static_cast<double>(blocked_ns) / 1e9);
}

// The errors that the program was answered, by function. The reason why it ended may be among them.
void print_errors(FILE* to) {
  for (uint16_t i = 0; i < kEntryCount; ++i) {
    const Line& line = g_statistics.lines[i];
    if (line.errors.load() == 0) continue;
    const char* name = nullptr;
    if (cuGetErrorName(static_cast<CUresult>(line.first_error.load()), &name) != CUDA_SUCCESS)
      name = "?";
    fprintf(to,
            "tendril: %llu of %llu calls of %s were answered with an error, the first after %.3f "
            "s: %d (%s)\n",
            number(line.errors), number(line.calls), kEntries[i].name,
            static_cast<double>(number(line.first_error_ns)) / 1e9, line.first_error.load(), name);
  }
}

}  // namespace

uint64_t stats_begin() {
  core::tally() = {};
  return base::now_ns();
}

void stats_count(uint16_t entry, uint64_t begun_ns, int result) {
  if (entry >= kEntryCount) return;
  Line& line = g_statistics.lines[entry];
  const auto add = [](std::atomic<uint64_t>& to, uint64_t value) {
    to.fetch_add(value, std::memory_order_relaxed);
  };
  add(line.calls, 1);
  add(line.nanoseconds, base::now_ns() - begun_ns);
  const core::Tally& tally = core::tally();
  add(tally.blocked_ns != 0 ? line.waited : line.sent, tally.blocked_ns != 0 || tally.bytes != 0);
  add(line.round_trips, tally.round_trips);
  add(line.blocked_ns, tally.blocked_ns);
  add(line.bytes, tally.bytes);
  if (result == CUDA_SUCCESS || result == CUDA_ERROR_NOT_READY) return;
  if (line.errors.fetch_add(1, std::memory_order_relaxed) == 0) {
    line.first_error.store(result);
    line.first_error_ns.store(base::now_ns() - g_statistics.begun_ns);
  }
}

void stats_report() {
  if (g_statistics.path[0] == 0) return;
  FILE* to = core::open_statistics(g_statistics.path);
  print_lines(to);
  print_errors(to);
  if (Process* program = process()) {
    for (Session* session : program->sessions)
      core::print_traffic(to, *session, session->code_bytes.load());
  }
  core::close_statistics(to);
}

size_t stats_counters(uint64_t* values, size_t count) {
  uint64_t sums[kSessionCounters] = {};
  if (Process* program = process()) {
    for (Session* session : program->sessions) {
      const session::LaneStats& s = session->lane->stats();
      const std::atomic<uint64_t>* each[kSessionCounters] = {
          &s.calls,      &s.round_trips,      &s.sends, &s.bytes_sent, &s.bytes_received,
          &s.bulk_bytes, &session->code_bytes};
      for (size_t i = 0; i < kSessionCounters; ++i)
        sums[i] += each[i]->load(std::memory_order_relaxed);
    }
  }
  for (size_t i = 0; i < count && i < kSessionCounters; ++i) values[i] = sums[i];
  return kSessionCounters;
}

void stats_start() {
  if (trace_start()) core::g_observing.store(true);
  const char* where = getenv("TENDRIL_STATS");
  if (where == nullptr || *where == 0 || strcmp(where, "0") == 0) return;
  snprintf(g_statistics.path, sizeof g_statistics.path, "%s", where);
  g_statistics.begun_ns = base::now_ns();
  core::g_observing.store(true);
  static bool registered = false;
  if (!registered) registered = atexit(stats_report) == 0;
}

}  // namespace tendril::client::cuda
