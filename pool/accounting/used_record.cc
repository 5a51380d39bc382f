// SPDX-License-Identifier: Apache-2.0
// See used_record.h.
#include "pool/accounting/used_record.h"

#include "pool/accounting/sums_json.h"

namespace tendril::pool {

using Json = nlohmann::ordered_json;

void UsedSums::add(const UsedSums& other) {
  leases += other.leases;
  waited_ns += other.waited_ns;
  held_ns += other.held_ns;
  idle_ns += other.idle_ns;
  used_ns += other.used_ns;
  gpu_waited_ns += other.gpu_waited_ns;
  asked_gpu_ns += other.asked_gpu_ns;
  given_gpu_ns += other.given_gpu_ns;
}

void put_sums(const UsedSums& sums, Json* json) {
  for (const auto& [key, field] : kSumFields) (*json)[key] = sums.*field;
}

bool get_sums(const Json& json, UsedSums* sums) {
  for (const auto& [key, field] : kSumFields) {
    if (!get(json, key, &(sums->*field))) return false;
  }
  return true;
}

std::string used_json(const UsedRecord& record) {
  Json json;
  json["lease"] = record.lease;
  json["server"] = record.server;
  json["server_lease"] = record.server_lease;
  json["owner_id"] = record.owner_id;
  json["owner"] = record.owner;
  json["account"] = record.account;
  json["user_class"] = record.user_class;
  json["gpu_class"] = record.gpu_class;
  json["program"] = record.program;
  json["host"] = record.host;
  json["asked_slices"] = record.asked_slices;
  json["asked_share_millionths"] = record.asked_share_millionths;
  json["asked_memory_bytes"] = record.asked_memory_bytes;
  json["asked_longest_s"] = record.asked_longest_s;
  json["gpus"] = record.gpus;
  json["share_millionths"] = record.share_millionths;
  json["memory_bytes"] = record.memory_bytes;
  json["submitted_at"] = record.submitted_at;
  json["granted_at"] = record.granted_at;
  json["ended_at"] = record.ended_at;
  put_sums(record.sums, &json);
  json["attached"] = record.attached;
  json["local"] = record.local;
  json["exact"] = record.exact;
  json["why"] = record.why;
  if (record.hours_summed != 0) json["hours_summed"] = record.hours_summed;
  return text_of(json);
}

bool read_used(const std::string& text, UsedRecord* record) {
  if (text.size() > kUsedBytesMax) return false;
  const Json json = Json::parse(text, nullptr, false);
  UsedRecord& r = *record;
  if (!get(json, "lease", &r.lease) || !get(json, "server_lease", &r.server_lease) ||
      !get(json, "server", &r.server) || !get(json, "owner_id", &r.owner_id) ||
      !get(json, "owner", &r.owner) || !get(json, "account", &r.account) ||
      !get(json, "user_class", &r.user_class) || !get(json, "gpu_class", &r.gpu_class) ||
      !get(json, "program", &r.program) || !get(json, "host", &r.host) ||
      !get(json, "asked_slices", &r.asked_slices) ||
      !get(json, "asked_share_millionths", &r.asked_share_millionths) ||
      !get(json, "asked_memory_bytes", &r.asked_memory_bytes) ||
      !get(json, "asked_longest_s", &r.asked_longest_s) ||
      !get(json, "share_millionths", &r.share_millionths) ||
      !get(json, "memory_bytes", &r.memory_bytes) || !get(json, "submitted_at", &r.submitted_at) ||
      !get(json, "granted_at", &r.granted_at) || !get(json, "ended_at", &r.ended_at) ||
      !get_sums(json, &r.sums) || !get(json, "attached", &r.attached) ||
      !get(json, "local", &r.local) || !get(json, "exact", &r.exact) || !get(json, "why", &r.why)) {
    return false;
  }
  const Json* const gpus = find(json, "gpus");
  if (gpus == nullptr || !gpus->is_array() || gpus->size() > kUsedGpusMax) return false;
  r.gpus.clear();
  for (const Json& gpu : *gpus) {
    if (!gpu.is_number_unsigned()) return false;
    r.gpus.push_back(gpu.get<uint32_t>());
  }
  r.hours_summed = 0;
  return find(json, "hours_summed") == nullptr || get(json, "hours_summed", &r.hours_summed);
}

}  // namespace tendril::pool
