// SPDX-License-Identifier: Apache-2.0
// See network.h.
#include "plan/network.h"

#include <algorithm>
#include <cinttypes>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "base/text.h"
#include "view/table.h"

namespace tendril::plan {
namespace {

using base::Code;
using base::Status;
using Json = nlohmann::ordered_json;

constexpr size_t kMostLineBytes = 4096;
constexpr size_t kMostServers = 4096;

bool read_run(const std::string& line, ProgramCosts* costs) {
  return sscanf(line.c_str(), "tendril: ran for %lf s, %lf s of waiting", &costs->run_s,
                &costs->blocked_s) == 2;
}

bool read_server(const std::string& line, ProgramCosts* costs) {
  uint64_t round_trips = 0, out = 0, in = 0;
  char transport[16] = {};
  const int read = sscanf(line.c_str(),
                          "tendril: server %*s over %15[a-z]: %*u calls sent, %" SCNu64
                          " round trips, %*u sends, %" SCNu64 " bytes out, %" SCNu64 " bytes in,",
                          transport, &round_trips, &out, &in);
  if (read != 4) return false;
  costs->round_trips += round_trips;
  costs->bytes_out += out;
  costs->bytes_in += in;
  if (costs->transports.find(transport) == std::string::npos)
    costs->transports += (costs->transports.empty() ? "" : " ") + std::string(transport);
  return ++costs->servers <= kMostServers;
}

std::string seconds_text(double seconds) {
  return base::format(seconds < 10 ? "%.3f s" : "%.1f s", seconds);
}

}  // namespace

base::Result<ProgramCosts> read_program_costs(std::string_view text) {
  ProgramCosts costs;
  size_t runs = 0;
  while (!text.empty()) {
    const size_t end = std::min(text.find('\n'), text.size());
    const std::string line(text.substr(0, std::min(end, kMostLineBytes)));
    text.remove_prefix(std::min(end + 1, text.size()));
    if (read_run(line, &costs))
      ++runs;
    else if (line.rfind("tendril: server ", 0) == 0 && !read_server(line, &costs))
      return Status(Code::kInvalid, "a line of a server is not as TENDRIL_STATS prints it");
  }
  if (runs > 1) {
    return Status(Code::kInvalid,
                  "there are the tables of several processes; give the table of one");
  }
  if (runs == 0 || costs.servers == 0 || !(costs.run_s > 0)) {
    return Status(Code::kInvalid,
                  "there is no table of a whole run; make it with TENDRIL_STATS=FILE tendril run");
  }
  return costs;
}

NetworkBounds bounds_on(const ProgramCosts& costs, const NetworkLine& line) {
  NetworkBounds bounds;
  const double bytes_s = line.gigabits * 1e9 / 8;
  bounds.waits_s = static_cast<double>(costs.round_trips) * line.delay_us / 1e6;
  const double out_s = static_cast<double>(costs.bytes_out) / bytes_s;
  const double in_s = static_cast<double>(costs.bytes_in) / bytes_s;
  bounds.transfer_s = std::max(out_s, in_s);
  bounds.at_least_s = std::max(costs.run_s, bounds.transfer_s);
  bounds.at_most_s = costs.run_s + bounds.waits_s + out_s + in_s;
  return bounds;
}

std::string network_text(const ProgramCosts& costs, const std::vector<NetworkLine>& lines) {
  std::string text = base::format("The program ran for %s over %s: %" PRIu64
                                  " round trips, %.1f MB to servers, %.1f MB back.\n"
                                  "Its calls waited for %s of that.\n\n",
                                  seconds_text(costs.run_s).c_str(), costs.transports.c_str(),
                                  costs.round_trips, static_cast<double>(costs.bytes_out) / 1e6,
                                  static_cast<double>(costs.bytes_in) / 1e6,
                                  seconds_text(costs.blocked_s).c_str());
  std::vector<view::Row> rows = {{"Line", "Delay", "Waits", "Transfer", "At least", "At most"}};
  for (const NetworkLine& line : lines) {
    const NetworkBounds bounds = bounds_on(costs, line);
    rows.push_back({base::format("%g Gb/s", line.gigabits), base::format("%g us", line.delay_us),
                    seconds_text(bounds.waits_s), seconds_text(bounds.transfer_s),
                    seconds_text(bounds.at_least_s), seconds_text(bounds.at_most_s)});
  }
  text += view::aligned(rows);
  text += "\nAt least: all waits and transfers are hidden behind work. At most: none is.\n";
  if (costs.transports != "shm") {
    text +=
        "The measured network is part of both. Measure over shared memory, on the server, to leave "
        "it out.\n";
  }
  return text;
}

std::string network_json(const ProgramCosts& costs, const std::vector<NetworkLine>& lines) {
  Json json = {{"run_s", costs.run_s},
               {"blocked_s", costs.blocked_s},
               {"round_trips", costs.round_trips},
               {"bytes_out", costs.bytes_out},
               {"bytes_in", costs.bytes_in},
               {"servers", costs.servers},
               {"transports", costs.transports}};
  json["lines"] = Json::array();
  for (const NetworkLine& line : lines) {
    const NetworkBounds bounds = bounds_on(costs, line);
    json["lines"].push_back({{"gigabits", line.gigabits},
                             {"delay_us", line.delay_us},
                             {"waits_s", bounds.waits_s},
                             {"transfer_s", bounds.transfer_s},
                             {"at_least_s", bounds.at_least_s},
                             {"at_most_s", bounds.at_most_s}});
  }
  return json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace tendril::plan
