// SPDX-License-Identifier: Apache-2.0
// See publisher.h.
#include "packaging/kubernetes/publisher.h"

#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <map>

#include "packaging/kubernetes/command.h"

namespace tendril::kubernetes {
namespace {

const std::string kSlices = std::string(kApi) + "/resourceslices";

struct Present {
  std::map<std::string, Json> slices;  // by name
  int64_t generation = 0;
};

Present present_slices(const PublishOptions& options) {
  Present present;
  for (const Json& slice : published(options.api)) {
    const Json& pool = slice.at("spec").at("pool");
    if (pool.at("name") != options.pool) continue;
    present.slices[slice.at("metadata").at("name")] = slice;
    present.generation = std::max(present.generation, pool.at("generation").get<int64_t>());
  }
  return present;
}

bool equal(const Present& present, const std::vector<Json>& wanted) {
  if (present.slices.size() != wanted.size()) return false;
  for (const Json& slice : wanted) {
    const auto found = present.slices.find(slice["metadata"]["name"]);
    if (found == present.slices.end()) return false;
    const Json& spec = found->second.at("spec");
    if (spec.at("pool") != slice["spec"]["pool"] ||
        spec.value("devices", Json::array()) != slice["spec"]["devices"])
      return false;
  }
  return true;
}

void write_slices(const PublishOptions& options, const Present& present,
                  const std::vector<Json>& wanted) {
  std::map<std::string, Json> surplus = present.slices;
  for (Json slice : wanted) {
    const std::string name = slice["metadata"]["name"];
    const auto found = present.slices.find(name);
    surplus.erase(name);
    if (found == present.slices.end()) {
      ask(options.api, "POST", kSlices, slice);
      continue;
    }
    slice["metadata"]["resourceVersion"] = found->second.at("metadata").at("resourceVersion");
    ask(options.api, "PUT", kSlices + "/" + name, slice);
  }
  for (const auto& [name, slice] : surplus) ask(options.api, "DELETE", kSlices + "/" + name);
}

void round(const PublishOptions& options) {
  const std::string said = run_tendril(options.tendril, {"pool", "status", "--json"});
  const Json devices = devices_of(Json::parse(said, nullptr, false), options.binds);
  const Present present = present_slices(options);
  if (equal(present, slices_of(options.pool, devices, present.generation))) return;
  write_slices(options, present, slices_of(options.pool, devices, present.generation + 1));
  fprintf(stderr, "tendril-kubernetes: published %zu GPUs of the pool\n", devices.size());
}

}  // namespace

int publish(const PublishOptions& options) {
  for (;;) {
    int status = 0;
    try {
      round(options);
    } catch (const std::exception& error) {
      fprintf(stderr, "tendril-kubernetes: %s\n", error.what());
      status = 1;
    }
    if (options.once) return status;
    sleep(static_cast<unsigned>(options.interval_s));
  }
}

}  // namespace tendril::kubernetes
