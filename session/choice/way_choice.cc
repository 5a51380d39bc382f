// SPDX-License-Identifier: Apache-2.0
// See way_choice.h.
#include "session/choice/way_choice.h"

#include <stdio.h>

#include <algorithm>
#include <cinttypes>
#include <vector>

#include "base/text.h"

namespace tendril::session {

using transport::Measured;

namespace {

constexpr const char* kFormat = "tendril-way-3";
constexpr size_t kTextMax = 2048;

// How many times better the better one is.
double margin(double one, double other) {
  return one <= 0 || other <= 0 ? 0 : std::max(one, other) / std::min(one, other);
}

// "calls over rdma (4.1 us; tcp 21.0 us: 5.1 times)"
std::string explained(const char* what, bool fabric_wins, const std::string& fabric,
                      double over_fabric, const std::string& connections, double over_connections,
                      const char* unit) {
  const std::string& winner = fabric_wins ? fabric : connections;
  const std::string& loser = fabric_wins ? connections : fabric;
  return base::format("%s over %s (%.3g %s; %s %.3g %s: %.1f times)", what, winner.c_str(),
                      fabric_wins ? over_fabric : over_connections, unit, loser.c_str(),
                      fabric_wins ? over_connections : over_fabric, unit,
                      margin(over_fabric, over_connections));
}

}  // namespace

WayChoice choose_bulk(const std::string& fabric, const Measured& over_fabric,
                      const std::string& connections, const Measured& over_connections) {
  const double fabric_rate = over_fabric.gigabytes_per_second;
  const double other_rate = over_connections.gigabytes_per_second;
  WayChoice choice;
  choice.calls = false;
  choice.bulk = fabric_rate > 0 && fabric_rate * (1 + kNoise) >= other_rate;
  choice.text =
      explained("copies", choice.bulk, fabric, fabric_rate, connections, other_rate, "GB/s");
  choice.brief = base::format("%s (%.1fx)", (choice.bulk ? fabric : connections).c_str(),
                              margin(fabric_rate, other_rate));
  return choice;
}

WayChoice choose_way(const std::string& fabric, const Measured& over_fabric,
                     const std::string& connections, const Measured& over_connections) {
  const double fabric_us = over_fabric.round_trip_us;
  const double other_us = over_connections.round_trip_us;
  const double fabric_rate = over_fabric.gigabytes_per_second;
  const double other_rate = over_connections.gigabytes_per_second;
  WayChoice choice;
  choice.calls = fabric_us > 0 && (other_us <= 0 || fabric_us <= other_us * (1 + kNoise));
  choice.bulk = fabric_rate > 0 && fabric_rate * (1 + kNoise) >= other_rate;
  choice.text =
      explained("calls", choice.calls, fabric, fabric_us, connections, other_us, "us") + ", " +
      explained("bulk data", choice.bulk, fabric, fabric_rate, connections, other_rate, "GB/s");
  const char* const calls_on = (choice.calls ? fabric : connections).c_str();
  const char* const bulk_on = (choice.bulk ? fabric : connections).c_str();
  const double calls_margin = margin(fabric_us, other_us);
  const double bulk_margin = margin(fabric_rate, other_rate);
  choice.brief = choice.calls == choice.bulk
                     ? base::format("%s (%.1fx, %.1fx)", calls_on, calls_margin, bulk_margin)
                     : base::format("%s (calls %.1fx) + %s (bulk %.1fx)", calls_on, calls_margin,
                                    bulk_on, bulk_margin);
  return choice;
}

WayChoice forced_way(const std::string& fabric) {
  return {true, true, "it was asked for, so nothing else was measured", fabric, false, false};
}

std::string written(const WayRecord& record) {
  return base::format("%s %" PRIu64 " %.3f %.6f %.3f %.6f\n%s\n%s\n%s\n%s\n", kFormat, record.at_s,
                      record.connections.round_trip_us, record.connections.gigabytes_per_second,
                      record.fabric.round_trip_us, record.fabric.gigabytes_per_second,
                      record.way.c_str(), base::printable(record.failure, 500).c_str(),
                      record.best.c_str(), record.beside.c_str());
}

bool read_record(const std::string& text, const std::string& way, uint64_t now_s,
                 WayRecord* record) {
  if (text.size() > kTextMax || way.empty()) return false;
  std::vector<std::string> lines;
  for (size_t from = 0, end; (end = text.find('\n', from)) != std::string::npos; from = end + 1)
    lines.push_back(text.substr(from, end - from));
  if (lines.size() != 5 || text.back() != '\n') return false;
  char format[16] = {};
  WayRecord read;
  if (sscanf(lines[0].c_str(), "%15s %" SCNu64 " %lf %lf %lf %lf", format, &read.at_s,
             &read.connections.round_trip_us, &read.connections.gigabytes_per_second,
             &read.fabric.round_trip_us, &read.fabric.gigabytes_per_second) != 6 ||
      std::string(format) != kFormat)
    return false;
  read.way = lines[1];
  read.failure = lines[2];
  read.best = lines[3];
  read.beside = lines[4];
  const auto sensible = [](double number) { return number >= 0 && number < 1e9; };
  for (const Measured& measured : {read.connections, read.fabric}) {
    if (!sensible(measured.round_trip_us) || !sensible(measured.gigabytes_per_second)) return false;
  }
  const uint64_t lasts_s = read.failure.empty() ? kRememberedS : kFailureRememberedS;
  if (read.way != way || read.at_s > now_s || now_s - read.at_s >= lasts_s) return false;
  *record = read;
  return true;
}

}  // namespace tendril::session
