// SPDX-License-Identifier: Apache-2.0
// What the commands print with --json. One file, so that one translation unit pays for the JSON
// library. Field names are a contract with scripts: add, never rename; units are in the names.
#pragma once

#include <string>
#include <vector>

#include "cli/environment.h"
#include "cli/servers.h"
#include "cli/top_view.h"

namespace tendril::cli {

struct DoctorStep {
  std::string name;    // "name", "route", "port", "version", "authentication", "latency", "driver",
                       // "transport", "bandwidth"
  std::string state;   // "ok", "failed", "skipped", "warning"
  std::string detail;  // for people: figures or the reason
  std::vector<std::pair<std::string, double>> figures;  // e.g. round_trip_us
};
struct DoctorReport {
  std::string server;
  std::vector<DoctorStep> steps;
  bool healthy = true;
};

std::string servers_json(const std::vector<ServerView>& views);
// On one line, as a stream of them is read line by line.
std::string top_json(const std::vector<ServerRates>& servers);
std::string variables_json(const Variables& variables);
std::string doctor_json(const std::vector<DoctorReport>& reports);
std::string version_json();

}  // namespace tendril::cli
