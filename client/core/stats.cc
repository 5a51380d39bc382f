// SPDX-License-Identifier: Apache-2.0
// See stats.h.
#include "client/core/stats.h"

#include <string.h>

namespace tendril::client::core {

FILE* open_statistics(const char* where) {
  FILE* to = strcmp(where, "1") == 0 ? stderr : fopen(where, "ae");
  return to != nullptr ? to : stderr;
}

void close_statistics(FILE* to) {
  fflush(to);
  if (to != stderr) fclose(to);
}

void print_traffic(FILE* to, const Session& session, uint64_t code_bytes) {
  const session::LaneStats& s = session.lane->stats();
  fprintf(to,
          "tendril: server %s over %s: %llu calls sent, %llu round trips, %llu sends, %llu "
          "bytes out, %llu bytes in, %llu of them bulk, %llu bytes of code\n",
          session.endpoint.c_str(), session.lane->transport_kind(),
          static_cast<unsigned long long>(s.calls.load()),
          static_cast<unsigned long long>(s.round_trips.load()),
          static_cast<unsigned long long>(s.sends.load()),
          static_cast<unsigned long long>(s.bytes_sent.load()),
          static_cast<unsigned long long>(s.bytes_received.load()),
          static_cast<unsigned long long>(s.bulk_bytes.load()),
          static_cast<unsigned long long>(code_bytes));
}

void print_moved(FILE* to, const Session& session, uint64_t times, uint64_t bytes) {
  fprintf(to, "tendril: server %s got content from other servers: %llu times, %llu bytes\n",
          session.endpoint.c_str(), static_cast<unsigned long long>(times),
          static_cast<unsigned long long>(bytes));
}

}  // namespace tendril::client::core
