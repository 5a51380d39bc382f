// SPDX-License-Identifier: Apache-2.0
// Zones for tests, made of a rule such as "CET-1CEST,M3.5.0,M10.5.0/3", so that no test depends on
// what the machine has.
#pragma once

#include <string>

#include "pool/policy/zone.h"

namespace tendril::pool {

// A zone file without changes in its table, and with this rule.
inline std::string zone_bytes(const std::string& rule) {
  const std::string head = std::string("TZif2") + std::string(15, '\0');
  const auto count = [](char value) { return std::string(3, '\0') + value; };
  const std::string counts =
      count(0) + count(0) + count(0) + count(0) + count(1) + count(4);  // one kind, four letters
  const std::string table = std::string(6, '\0') + std::string("UTC\0", 4);
  return head + counts + table + head + counts + table + "\n" + rule + "\n";
}

inline Zone zone_of_rule(const std::string& rule) {
  auto zone = parse_zone(zone_bytes(rule), "test");
  return zone.ok() ? zone.take() : Zone{"wrong", 1, {}};
}

inline Zone berlin() { return zone_of_rule("CET-1CEST,M3.5.0,M10.5.0/3"); }

}  // namespace tendril::pool
