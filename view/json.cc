// SPDX-License-Identifier: Apache-2.0
// See json.h.
#include "view/json.h"

#include <nlohmann/json.hpp>

#include "base/text.h"
#include "config/quantity.h"
#include "view/text.h"

namespace tendril::view {
namespace {

using Json = nlohmann::ordered_json;

// Peers may send anything; bytes that are not UTF-8 are replaced rather than thrown at.
std::string dump(const Json& json) {
  return json.dump(2, ' ', false, Json::error_handler_t::replace);
}

double fraction(uint32_t millionths) { return millionths / static_cast<double>(config::kWholeGpu); }

Json unknown_or(int32_t value) { return value < 0 ? Json(nullptr) : Json(value); }

Json gpu_json(const wire::GpuRecord& gpu) {
  Json json = {{"index", gpu.index},
               {"name", gpu.name},
               {"uuid", uuid_text(gpu.uuid)},
               {"pci_bus_id", gpu.pci_bus_id},
               {"memory_total_bytes", gpu.memory_total_bytes},
               {"memory_used_bytes", gpu.memory_used_bytes},
               {"share_used", fraction(gpu.share_used_millionths)},
               {"utilization_percent", unknown_or(gpu.utilization_percent)},
               {"temperature_c", unknown_or(gpu.temperature_c)},
               {"power_mw", unknown_or(gpu.power_mw)}};
  if (gpu.type.empty()) return json;
  json["type"] = gpu.type;
  json["vendor"] = gpu.vendor;
  json["opencl_version"] = gpu.opencl_version;
  json["extensions"] = gpu.extensions;
  return json;
}

// What was had of the GPU's time. Null where it is not measured: a whole GPU, a packed slice.
void add_use(const wire::SliceUse& use, Json* slice) {
  const bool known = use.measured && use.age_ns != 0;
  const double used_s = static_cast<double>(use.used_ns) / 1e9;
  (*slice)["share_delivered_10_s"] = known ? Json(fraction(use.recent_millionths)) : Json(nullptr);
  (*slice)["share_delivered"] =
      known ? Json(used_s / (static_cast<double>(use.age_ns) / 1e9)) : Json(nullptr);
  (*slice)["gpu_time_s"] = known ? Json(used_s) : Json(nullptr);
  (*slice)["queued_s"] = known ? Json(static_cast<double>(use.waited_ns) / 1e9) : Json(nullptr);
}

Json passages_json(const wire::LeaseRecord& lease) {
  Json passages = Json::array();
  for (const wire::PassageRecord& passage : lease.passages)
    passages.push_back(
        {{"server", passage.server}, {"sealed", passage.sealed}, {"way", passage.way}});
  return passages;
}

Json lease_json(const wire::LeaseRecord& lease) {
  Json slices = Json::array();
  for (size_t i = 0; i < lease.slices.size(); ++i) {
    const wire::SliceGrant& grant = lease.slices[i];
    Json slice = {{"gpu", grant.gpu_index},
                  {"share", fraction(grant.share_millionths)},
                  {"packed", grant.packed},
                  {"memory_bytes", grant.memory_bytes},
                  {"memory_used_bytes", memory_used_of(lease, i)},
                  {"memory_parked_bytes", memory_parked_of(lease, i)}};
    add_use(use_of(lease, i), &slice);
    slices.push_back(slice);
  }
  return {{"lease", lease.lease_id},
          {"user", user_text(lease.client)},
          {"proof", lease.client.proof},
          {"claimed_user", lease.client.user},
          {"host", lease.client.host},
          {"program", lease.client.program},
          {"pid", lease.client.pid},
          {"policy", lease.terms.policy == wire::SharePolicy::kCap ? "cap" : "lend"},
          {"priority", lease.terms.priority},
          {"slices", slices},
          {"processes", lease.processes},
          {"links", lease.links},
          {"passages", passages_json(lease)},
          {"standing", wire::standing_name(lease.standing)},
          {"standing_s", lease.standing_s},
          {"parks", lease.parks},
          {"age_s", lease.age_s}};
}

Json rates_json(const SessionRates& rates) {
  const wire::SessionRecord& session = rates.session;
  Json slices = Json::array();
  for (size_t i = 0; i < rates.slices.size(); ++i) {
    slices.push_back({{"gpu", rates.slices[i].gpu_index},
                      {"share", fraction(rates.slices[i].share_millionths)},
                      {"memory_bytes", rates.slices[i].memory_bytes},
                      {"memory_used_bytes",
                       i < session.memory_used_bytes.size() ? session.memory_used_bytes[i] : 0}});
  }
  return {{"session", session.session_id},
          {"lease", session.lease_id},
          {"user", user_text(session.client)},
          {"claimed_user", session.client.user},
          {"host", session.client.host},
          {"program", session.client.program},
          {"pid", session.client.pid},
          {"worker_pid", session.worker_pid},
          {"link", session.link},
          {"age_s", session.age_s},
          {"slices", slices},
          {"gpu_share_delivered", rates.delivered ? Json(*rates.delivered) : Json(nullptr)},
          {"calls_per_s", rates.calls_per_s},
          {"launches_per_s", rates.launches_per_s},
          {"round_trips_per_s", rates.round_trips_per_s},
          {"bytes_to_gpu_per_s", rates.bytes_in_per_s},
          {"bytes_from_gpu_per_s", rates.bytes_out_per_s},
          {"waiting", rates.waiting},
          {"server_processors", rates.processors},
          {"calls", session.calls},
          {"launches", session.launches},
          {"round_trips", session.replies},
          {"bytes_to_gpu", session.bytes_in},
          {"bytes_from_gpu", session.bytes_out},
          {"server_processor_s", static_cast<double>(session.processor_ns) / 1e9},
          {"waiting_s", static_cast<double>(session.awaited_ns) / 1e9}};
}

}  // namespace

std::string servers_json(const std::vector<ServerView>& views) {
  Json servers = Json::array();
  for (const ServerView& view : views) {
    Json server = {{"server", view.server}};
    if (!view.status.ok()) {
      server["error"] = view.status.message();
      servers.push_back(server);
      continue;
    }
    server["host"] = view.list.server;
    server["here"] = view.here;
    server["version"] = view.list.product_version;
    server["driver"] = view.list.driver;
    server["driver_version"] = view.list.driver_version;
    server["gpus"] = Json::array();
    for (const wire::GpuRecord& gpu : view.list.gpus) server["gpus"].push_back(gpu_json(gpu));
    server["leases"] = Json::array();
    for (const wire::LeaseRecord& lease : view.list.leases)
      server["leases"].push_back(lease_json(lease));
    servers.push_back(server);
  }
  return dump({{"servers", servers}});
}

std::string top_json(const std::vector<ServerRates>& servers) {
  Json all = Json::array();
  for (const ServerRates& rates : servers) {
    Json server = {{"server", rates.view.server}};
    if (!rates.view.status.ok()) {
      server["error"] = rates.view.status.message();
      all.push_back(server);
      continue;
    }
    server["host"] = rates.view.list.server;
    server["interval_s"] = rates.interval_s;
    server["gpus"] = Json::array();
    for (const wire::GpuRecord& gpu : rates.view.list.gpus) server["gpus"].push_back(gpu_json(gpu));
    server["sessions"] = Json::array();
    for (const SessionRates& session : rates.sessions)
      server["sessions"].push_back(rates_json(session));
    all.push_back(server);
  }
  return Json({{"servers", all}}).dump(-1, ' ', false, Json::error_handler_t::replace);
}

std::string variables_json(const std::vector<std::pair<std::string, std::string>>& variables) {
  Json json = Json::object();
  for (const auto& [name, value] : variables) json[name] = value;
  return dump(json);
}

std::string doctor_json(const std::vector<DoctorReport>& reports,
                        const std::vector<PassageReport>& passages, const LocalReport& local) {
  Json servers = Json::array();
  for (const DoctorReport& report : reports) {
    Json steps = Json::array();
    for (const DoctorStep& step : report.steps) {
      Json one = {{"step", step.name}, {"state", step.state}, {"detail", step.detail}};
      for (const auto& [name, value] : step.figures) one[name] = value;
      steps.push_back(one);
    }
    servers.push_back({{"server", report.server}, {"healthy", report.healthy}, {"steps", steps}});
  }
  Json pairs = Json::array();
  for (const PassageReport& pair : passages) {
    Json one = {{"servers", {pair.one, pair.other}}, {"open", pair.open}};
    if (pair.open) one.update({{"sealed", pair.sealed}, {"round_trip_us", pair.round_trip_us}});
    one["detail"] = pair.detail;
    pairs.push_back(one);
  }
  return dump({{"servers", servers},
               {"passages", pairs},
               {"local", {{"state", local.state}, {"detail", local.detail}}}});
}

std::string version_json(const char* version, uint64_t calls) {
  return dump({{"version", version},
               {"protocol", wire::kProtocolVersion},
               {"schema_digest", base::format("%016llx", static_cast<unsigned long long>(calls))}});
}

}  // namespace tendril::view
