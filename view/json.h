// SPDX-License-Identifier: Apache-2.0
// What is shown, as JSON: what the commands print with --json. Field names are a contract with
// scripts: add, never rename; units are in the names. One file, so that one translation unit pays
// for the JSON library.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "view/rates.h"
#include "view/server.h"

namespace tendril::view {

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
// Whether copies between the GPUs of two servers go from server to server.
struct PassageReport {
  std::string one, other;  // as the user wrote them
  bool open = false;
  bool sealed = false;       // the servers' rules want it; a sealed session seals it, too
  double round_trip_us = 0;  // between the two
  std::string detail;        // why not, from both
};
// Whether GPUs of this machine can be in a program, beside others.
struct LocalReport {
  std::string state;  // "ok", "none", "failed"
  std::string detail;
};

std::string servers_json(const std::vector<ServerView>& views);
// On one line, as a stream of them is read line by line.
std::string top_json(const std::vector<ServerRates>& servers);
std::string variables_json(const std::vector<std::pair<std::string, std::string>>& variables);
std::string doctor_json(const std::vector<DoctorReport>& reports,
                        const std::vector<PassageReport>& passages, const LocalReport& local);
// `calls`: the digest of the calls that this build speaks.
std::string version_json(const char* version, uint64_t calls);

}  // namespace tendril::view
