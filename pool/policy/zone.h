// SPDX-License-Identifier: Apache-2.0
// A time zone as a table of offsets, from the bytes of a system's zone file (TZif, RFC 8536). The
// bytes are read elsewhere (config/zone_file.h). Pure.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "base/result.h"

namespace tendril::pool {

struct Zone {
  struct Change {
    int64_t from_s = 0;  // wall seconds
    int32_t offset_s = 0;
  };
  std::string name = "UTC";
  int32_t first_offset_s = 0;
  std::vector<Change> changes;  // by time

  // What the clocks there are ahead of UTC.
  int32_t offset_at(int64_t wall_s) const;
  // When clocks there show `local_s` (seconds since 1970 by the clock there). Shown twice: the last
  // time if `last`, else the first. Never shown: when they jump over it.
  int64_t wall_of(int64_t local_s, bool last) const;
};

// Where policies get zones by name ("Europe/Berlin"). kNotFound: there is none of this name.
using ZoneReader = std::function<base::Result<Zone>(const std::string& name)>;

// Knows UTC only. For tests and for machines without zones.
base::Result<Zone> only_utc(const std::string& name);

// kInvalid: the bytes are no zone.
base::Result<Zone> parse_zone(const std::string& bytes, const std::string& name);

}  // namespace tendril::pool
