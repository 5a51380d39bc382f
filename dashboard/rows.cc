// SPDX-License-Identifier: Apache-2.0
// See rows.h.
#include "dashboard/rows.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

namespace tendril::dashboard {
namespace {

using Ordered = nlohmann::ordered_json;

constexpr size_t kTextMax = 256;  // of one name; longer ones are cut

std::string written(const Ordered& json) {
  return json.dump(-1, ' ', false, Ordered::error_handler_t::replace);
}

std::string cut(const std::string& text) {
  if (text.size() <= kTextMax) return text;
  size_t end = kTextMax;
  while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xc0) == 0x80) --end;
  return text.substr(0, end) + "…";
}

Ordered moment(int64_t at) { return at == view::kNoMoment ? Ordered() : Ordered(at); }
// Millionths as GPUs.
double gpus(uint64_t millionths) { return static_cast<double>(millionths) / 1e6; }
Ordered amount(uint64_t millionths) {
  return millionths == view::kNoAmount ? Ordered() : Ordered(gpus(millionths));
}
Ordered part(int64_t millionths) {
  return millionths < 0 ? Ordered() : Ordered(static_cast<double>(millionths) / 1e6);
}
Ordered rate(int64_t value) { return value < 0 ? Ordered() : Ordered(value); }
double seconds(uint64_t ns) { return std::round(static_cast<double>(ns) / 1e6) / 1e3; }
int64_t percent(uint64_t part_of, uint64_t whole) {
  if (whole == 0) return 0;
  return std::llround(100.0 * static_cast<double>(part_of) / static_cast<double>(whole));
}

Ordered use_json(const view::PictureUse& use, const Pace& pace) {
  Ordered json;
  json["age_s"] = seconds(use.age_ns);
  json["used_s"] = use.measured ? Ordered(seconds(use.used_ns)) : Ordered();
  json["waited_s"] = use.measured ? Ordered(seconds(use.waited_ns)) : Ordered();
  json["idle_s"] = seconds(use.idle_ns);
  json["memory_used_bytes"] = use.memory_used_bytes;
  json["memory_parked_bytes"] = use.memory_parked_bytes;
  json["had"] = part(pace.had_millionths);
  json["waits"] = part(pace.waited_millionths);
  if (use.counts_calls) {
    json["calls"] = use.calls;
    json["round_trips"] = use.round_trips;
    json["awaited_s"] = seconds(use.awaited_ns);
    json["bytes_in"] = use.bytes_in;
    json["bytes_out"] = use.bytes_out;
    json["in_bytes_s"] = rate(pace.in_bytes_s);
    json["out_bytes_s"] = rate(pace.out_bytes_s);
    json["round_trips_s"] = rate(pace.round_trips_s);
    json["awaits"] = part(pace.awaited_millionths);
  }
  return json;
}

}  // namespace

std::string json_text(const std::string& text) { return written(Ordered(text)); }

std::string head_json(const HeadRow& row) {
  const view::PictureHead& head = row.head;
  Ordered json;
  json["pool"] = head.is_pool;
  json["name"] = cut(head.name);
  json["scheduler"] = cut(head.scheduler);
  json["version"] = head.version;
  json["term"] = head.term;
  json["policy_revision"] = head.policy_revision;
  json["planning"] = head.planning;
  json["planning_why"] = cut(head.planning_why);
  json["store_trouble"] = cut(head.store_trouble);
  json["servers"] = row.servers;
  json["leases"] = row.leases;
  json["waiting"] = row.waiting;
  json["classes"] = Ordered::array();
  for (const view::PictureClass& each : head.classes) {
    json["classes"].push_back({{"name", cut(each.name)},
                               {"gpus", gpus(each.gpus_millionths)},
                               {"given", gpus(each.given_millionths)},
                               {"unused", gpus(each.unused_millionths)}});
  }
  return written(json);
}

// As short as may be: a page of a thousand servers has a thousand of them.
std::string server_json(const ServerRow& row) {
  const view::PictureServer& server = row.server;
  Ordered json;
  json["n"] = row.number;
  json["name"] = cut(server.name);
  if (server.state != "up") json["state"] = server.state;
  if (server.draining) json["draining"] = true;
  json["leases"] = server.leases;
  std::vector<std::string> classes;
  Ordered given = Ordered::array(), busy = Ordered::array();
  for (size_t i = 0; i < server.gpus.size(); ++i) {
    const view::PictureGpu& gpu = server.gpus[i];
    if (std::find(classes.begin(), classes.end(), gpu.gpu_class) == classes.end())
      classes.push_back(gpu.gpu_class);
    given.push_back(percent(gpu.given_millionths, 1'000'000));
    busy.push_back(row.busy_percent[i]);
  }
  json["classes"] = Ordered::array();
  for (const std::string& each : classes) json["classes"].push_back(cut(each));
  json["given"] = std::move(given);
  json["busy"] = std::move(busy);
  return written(json);
}

std::string server_info_json(const ServerRow& row) {
  const view::PictureServer& server = row.server;
  Ordered json;
  json["n"] = row.number;
  json["name"] = cut(server.name);
  json["endpoint"] = cut(server.endpoint);
  json["state"] = server.state;
  json["silent_since_at"] = moment(server.silent_since_at);
  json["draining"] = server.draining;
  json["drain_why"] = cut(server.drain_why);
  json["version"] = cut(server.version);
  json["driver"] = cut(server.driver);
  json["leases"] = server.leases;
  json["labels"] = Ordered::array();
  for (const std::string& label : server.labels) json["labels"].push_back(cut(label));
  json["transports"] = Ordered::array();
  for (const std::string& kind : server.transports) json["transports"].push_back(cut(kind));
  json["maintenance"] = Ordered::array();
  for (const view::PictureWindow& each : server.maintenance) {
    json["maintenance"].push_back(
        {{"from_at", each.from_at}, {"to_at", each.to_at}, {"why", cut(each.why)}});
  }
  json["gpus"] = Ordered::array();
  for (size_t i = 0; i < server.gpus.size(); ++i) {
    const view::PictureGpu& gpu = server.gpus[i];
    Ordered shown;
    shown["index"] = gpu.index;
    shown["model"] = cut(gpu.model);
    shown["type"] = gpu.type.empty() ? "gpu" : cut(gpu.type);
    shown["class"] = cut(gpu.gpu_class);
    shown["memory_bytes"] = gpu.memory_bytes;
    shown["memory_promised_bytes"] = gpu.memory_promised_bytes;
    shown["memory_used_bytes"] = gpu.memory_used_bytes;
    shown["given"] = gpus(gpu.given_millionths);
    shown["packed"] = gpu.packed;
    shown["temperature_c"] = gpu.temperature_c < 0 ? Ordered() : Ordered(gpu.temperature_c);
    shown["power_w"] = gpu.power_mw < 0 ? Ordered() : Ordered(gpu.power_mw / 1000);
    json["gpus"].push_back(std::move(shown));
  }
  return written(json);
}

std::string lease_json(const LeaseRow& row, bool named) {
  const view::PictureLease& lease = row.lease;
  Ordered json;
  json["id"] = lease.id;
  json["state"] = lease.state;
  json["owner"] = named ? cut(lease.owner) : "";
  json["account"] = cut(lease.account);
  json["user_class"] = cut(lease.user_class);
  json["gpu_class"] = cut(lease.gpu_class);
  json["program"] = named ? cut(lease.program) : "";
  json["host"] = named ? cut(lease.host) : "";
  json["links"] = cut(lease.links);
  json["slices"] = Ordered::array();
  for (const view::PictureSlice& slice : lease.slices) {
    json["slices"].push_back({{"server", cut(slice.server)},
                              {"gpu", slice.gpu},
                              {"share", gpus(slice.share_millionths)},
                              {"memory_bytes", slice.memory_bytes}});
  }
  json["processes"] = lease.processes;
  json["priority"] = lease.priority;
  json["capped"] = lease.capped;
  json["local"] = lease.local;
  json["paused"] = lease.paused;
  json["standing"] = lease.standing;
  json["standing_since_at"] = moment(lease.standing_since_at);
  json["parks"] = lease.parks == view::kNoAmount ? Ordered() : Ordered(lease.parks);
  json["shrunk"] = lease.shrunk;
  json["reclaimed"] = lease.reclaimed;
  json["granted_at"] = moment(lease.granted_at);
  json["ends_at"] = moment(lease.ends_at);
  json["idle_since_at"] = moment(lease.idle_since_at);
  json["queued_s"] = lease.queued_s;
  json["use"] = use_json(lease.use, row.pace);
  return written(json);
}

std::string request_json(const RequestRow& row, bool named) {
  const view::PictureRequest& request = row.request;
  Ordered json;
  json["id"] = request.id;
  json["rank"] = row.rank;
  json["place"] = request.place == 0 ? Ordered() : Ordered(request.place);
  json["of"] = request.of == 0 ? Ordered() : Ordered(request.of);
  json["queue"] = cut(request.queue);
  json["state"] = request.state;
  json["owner"] = named ? cut(request.owner) : "";
  json["account"] = cut(request.account);
  json["user_class"] = cut(request.user_class);
  json["program"] = named ? cut(request.program) : "";
  json["host"] = named ? cut(request.host) : "";
  json["filter"] = cut(request.filter);
  json["slices"] = request.slices;
  json["share"] = gpus(request.share_millionths);
  json["memory_bytes"] = request.memory_bytes;
  json["reason"] = request.reason;
  json["numbers"] = cut(request.numbers);
  json["held"] = request.held;
  json["start_why"] = cut(request.start_why);
  json["submitted_at"] = moment(request.submitted_at);
  json["start_from_at"] = moment(request.start_from_at);
  json["start_to_at"] = moment(request.start_to_at);
  json["reclaimed_at"] = moment(request.reclaimed_at);
  json["present"] = request.present;
  return written(json);
}

std::string account_json(const AccountRow& row) {
  const view::PictureAccount& account = row.account;
  Ordered json;
  json["name"] = cut(account.name);
  json["parent"] = cut(account.parent);
  json["weight"] = account.weight;
  json["waiting"] = account.waiting;
  json["usage_gpu_s"] = account.usage_gpu_s;
  json["classes"] = Ordered::array();
  for (const auto& [name, each] : account.classes) {
    json["classes"].push_back({{"name", cut(name)},
                               {"quota", amount(each.quota)},
                               {"limit", amount(each.limit)},
                               {"used", gpus(each.used)},
                               {"lent", gpus(each.lent)}});
  }
  return written(json);
}

}  // namespace tendril::dashboard
