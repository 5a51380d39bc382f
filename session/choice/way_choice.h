// SPDX-License-Identifier: Apache-2.0
// What carries a session's calls and what its bulk data, where a fabric and the session's
// connections could both do it: arithmetic over what was measured, and what is remembered of that.
// Pure; the time is passed in. trial.h measures, attach.cc asks.
#pragma once

#include <cstdint>
#include <string>

#include "transport/registry.h"

namespace tendril::session {

struct WayChoice {
  bool calls = true, bulk = true;  // the fabric carries them
  std::string text;   // for doctor: what was chosen, what else was there, by what margin
  std::string brief;  // for lists; at most 63 bytes
  // Where several pairs of ports were tried: the second of two ways is the fabric's best, and the
  // other one carries every other bulk line.
  bool second = false, striped = false;
};

// Differences within a tenth are noise. Then it is the fabric, which spares processors.
inline constexpr double kNoise = 0.1;

// `fabric`, `connections`: their kinds, for the texts. A fabric's measure of 0 is unknown, and
// loses.
WayChoice choose_way(const std::string& fabric, const transport::Measured& over_fabric,
                     const std::string& connections, const transport::Measured& over_connections);
// The same where there are bulk data only: copies between servers.
WayChoice choose_bulk(const std::string& fabric, const transport::Measured& over_fabric,
                      const std::string& connections, const transport::Measured& over_connections);
// The fabric carries everything, because somebody wants it so.
WayChoice forced_way(const std::string& fabric);

// What a client remembers of the way to a host.
struct WayRecord {
  std::string way;  // Half::way
  uint64_t at_s = 0;
  transport::Measured connections;
  std::string failure;  // of the fabric; empty: it works
  transport::Measured fabric;
  // Pairs of ports, "here>there": the best one, and one beside it. Empty: the first ones; none.
  std::string best, beside;
};
inline constexpr uint64_t kRememberedS = 24 * 3600, kFailureRememberedS = 3600;

std::string written(const WayRecord& record);
// False: it is not such a text, it is of another way, or too old.
bool read_record(const std::string& text, const std::string& way, uint64_t now_s,
                 WayRecord* record);

}  // namespace tendril::session
