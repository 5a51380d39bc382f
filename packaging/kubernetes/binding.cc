// SPDX-License-Identifier: Apache-2.0
// See binding.h.
#include "packaging/kubernetes/binding.h"

#include <algorithm>

namespace tendril::kubernetes {
namespace {

// The devices of this driver that have the condition, as the claim's allocation names them.
Json devices_that_wait(const Json& claim) {
  Json found = Json::array();
  const Json status = claim.value("status", Json::object());
  const Json devices = status.value("allocation", Json::object()).value("devices", Json::object());
  for (const Json& result : devices.value("results", Json::array())) {
    const Json conditions = result.value("bindingConditions", Json::array());
    if (result.value("driver", "") == kDriver &&
        std::find(conditions.begin(), conditions.end(), kLeased) != conditions.end())
      found.push_back(result);
  }
  return found;
}

// Of one device in the claim's status: parts of a shared device differ in their shareID.
bool is_same(const Json& one, const Json& other) {
  for (const char* const name : {"driver", "pool", "device", "shareID"})
    if (one.value(name, "") != other.value(name, "")) return false;
  return true;
}

Json* find(Json* list, const Json& device) {
  for (Json& each : *list)
    if (is_same(each, device)) return &each;
  return nullptr;
}

Json* find_type(Json* conditions, const std::string& type) {
  for (Json& each : *conditions)
    if (each.value("type", "") == type) return &each;
  return nullptr;
}

}  // namespace

bool waits_for_lease(const Json& claim) { return !devices_that_wait(claim).empty(); }

std::string allocation_of(const Json& claim) {
  const Json& allocation = claim.at("status").at("allocation");
  return allocation.at("devices").at("results").dump() +
         allocation.value("allocationTimestamp", "");
}

bool is_leased(const Json& claim) {
  Json known = claim.at("status").value("devices", Json::array());
  for (const Json& device : devices_that_wait(claim)) {
    Json* const entry = find(&known, device);
    if (entry == nullptr) return false;
    Json conditions = entry->value("conditions", Json::array());
    const Json* const condition = find_type(&conditions, kLeased);
    if (condition == nullptr || condition->value("status", "") != "True") return false;
  }
  return true;
}

Json with_condition(Json claim, const Condition& condition, const std::string& now) {
  Json& known = claim["status"]["devices"];
  if (!known.is_array()) known = Json::array();
  for (const Json& device : devices_that_wait(claim)) {
    Json* entry = find(&known, device);
    if (entry == nullptr) {
      Json added = Json::object();
      for (const char* const name : {"driver", "pool", "device", "shareID"})
        if (device.contains(name)) added[name] = device[name];
      known.push_back(added);
      entry = &known.back();
    }
    Json& conditions = (*entry)["conditions"];
    if (!conditions.is_array()) conditions = Json::array();
    Json* present = find_type(&conditions, condition.type);
    const char* const status = condition.holds ? "True" : "False";
    if (present == nullptr) {
      conditions.push_back({{"type", condition.type}});
      present = &conditions.back();
    }
    if (present->value("status", "") != status) (*present)["lastTransitionTime"] = now;
    (*present)["status"] = status;
    (*present)["reason"] = condition.reason;
    (*present)["message"] = condition.message;
  }
  return claim;
}

}  // namespace tendril::kubernetes
