// SPDX-License-Identifier: Apache-2.0
// See used_record.h.
#include "pool/accounting/used_record.h"

#include "base/text.h"
#include "pool/accounting/sums_json.h"

namespace tendril::pool {

using Json = nlohmann::ordered_json;

void UsedSums::add(const UsedSums& other) {
  for (const auto& [key, field] : kSumFields) this->*field += other.*field;
}

void put_sums(const UsedSums& sums, Json* json) {
  for (size_t i = 0; i < kLeaseSumFields; ++i)
    (*json)[kSumFields[i].first] = sums.*kSumFields[i].second;
}

bool get_sums(const Json& json, UsedSums* sums) {
  for (size_t i = 0; i < kLeaseSumFields; ++i) {
    if (!get(json, kSumFields[i].first, &(sums->*kSumFields[i].second))) return false;
  }
  return true;
}

std::string used_key(const std::string& server, uint64_t boot, uint64_t server_lease,
                     uint64_t pool_lease) {
  return keys::kUsed + base::format("%s-%016llx-%llu-%llx", server.c_str(),
                                    static_cast<unsigned long long>(boot),
                                    static_cast<unsigned long long>(server_lease),
                                    static_cast<unsigned long long>(pool_lease));
}

bool is_old(const UsedRecord& record, int64_t now_s, uint64_t keep_s) {
  if (keep_s == 0 || record.ended_at > now_s) return false;
  return uint64_t(now_s - record.ended_at) > keep_s;
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
  return true;
}

}  // namespace tendril::pool
