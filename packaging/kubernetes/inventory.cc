// SPDX-License-Identifier: Apache-2.0
// See inventory.h.
#include "packaging/kubernetes/inventory.h"

#include <algorithm>
#include <iterator>
#include <stdexcept>

#include "packaging/kubernetes/binding.h"

namespace tendril::kubernetes {
namespace {

constexpr size_t kNameMax = 36, kAttributeMax = 64;

// FNV-1a: tells servers apart whose names differ only in what a label cannot have.
uint32_t short_hash(const std::string& text) {
  uint32_t hash = 2166136261u;
  for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 16777619u;
  return hash;
}

std::string attribute_text(const std::string& text) { return text.substr(0, kAttributeMax); }

// As Kubernetes itself writes it: with the largest unit that leaves a whole number. Otherwise what
// it gives back would differ from what was sent.
std::string memory_text(uint64_t mib) {
  constexpr const char* kUnits[] = {"Mi", "Gi", "Ti", "Pi"};
  size_t unit = 0;
  for (; unit + 1 < std::size(kUnits) && mib != 0 && mib % 1024 == 0; ++unit) mib /= 1024;
  return std::to_string(mib) + kUnits[unit];
}

Json device(const std::string& server, const Json& gpu) {
  const int64_t index = gpu.at("index").get<int64_t>();
  const std::string memory = memory_text(gpu.at("memory_bytes").get<uint64_t>() >> 20);
  // Without a wish a pod gets the whole GPU. A wish is rounded up to hundredths.
  const Json compute = {
      {"value", "1"},
      {"requestPolicy",
       {{"default", "1"}, {"validRange", {{"min", "10m"}, {"max", "1"}, {"step", "10m"}}}}}};
  const Json bytes = {
      {"value", memory},
      {"requestPolicy", {{"default", memory}, {"validRange", {{"min", "64Mi"}, {"max", memory}}}}}};
  return {{"name", device_name(server, index)},
          {"allowMultipleAllocations", true},
          {"attributes",
           {{"gpu", {{"string", device_name(server, index)}}},  // for distinctAttribute
            {"server", {{"string", attribute_text(server)}}},
            {"index", {{"int", index}}},
            {"model", {{"string", attribute_text(gpu.at("model").get<std::string>())}}}}},
          {"capacity", {{"compute", compute}, {"memory", bytes}}}};
}

}  // namespace

std::string device_name(const std::string& server, int64_t index) {
  std::string label;
  for (const char c : server.substr(0, kNameMax)) {
    const char small = c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
    const bool fits = (small >= 'a' && small <= 'z') || (small >= '0' && small <= '9');
    label += fits ? small : '-';
  }
  char hash[16];
  snprintf(hash, sizeof hash, "%08x", short_hash(server));
  return "gpu-" + label + "-" + hash + "-" + std::to_string(index);
}

Json devices_of(const Json& status, bool binds) {
  constexpr uint64_t kLeastBytes = 64ull << 20;
  Json devices = Json::array();
  try {
    for (const Json& server : status.at("servers")) {
      const auto name = server.at("name").get<std::string>();
      // An attribute could not hold it, and the pod's filter would name another server.
      if (name.size() > kAttributeMax) continue;
      if (server.at("state") != "up" || server.at("draining").get<bool>()) continue;
      for (const Json& gpu : server.at("gpus"))
        if (gpu.at("memory_bytes").get<uint64_t>() >= kLeastBytes)
          devices.push_back(device(name, gpu));
    }
  } catch (const Json::exception& wrong) {
    throw std::runtime_error(std::string("the pool's status is not understood: ") + wrong.what());
  }
  if (binds) {
    for (Json& device : devices) {
      device["bindingConditions"] = {kLeased};
      device["bindingFailureConditions"] = {kRefused};
    }
  }
  std::sort(devices.begin(), devices.end(),
            [](const Json& one, const Json& other) { return one["name"] < other["name"]; });
  return devices;
}

std::vector<Json> slices_of(const std::string& pool, const Json& devices, int64_t generation) {
  const size_t count = std::max<size_t>(1, (devices.size() + kDevicesMax - 1) / kDevicesMax);
  std::vector<Json> slices;
  for (size_t i = 0; i < count; ++i) {
    Json part = Json::array();
    for (size_t k = i * kDevicesMax; k < std::min(devices.size(), (i + 1) * kDevicesMax); ++k)
      part.push_back(devices[k]);
    slices.push_back(
        {{"apiVersion", "resource.k8s.io/v1"},
         {"kind", "ResourceSlice"},
         {"metadata", {{"name", pool + "-" + std::to_string(i)}}},
         {"spec",
          {{"driver", kDriver},
           {"pool", {{"name", pool}, {"generation", generation}, {"resourceSliceCount", count}}},
           {"allNodes", true},
           {"devices", part}}}});
  }
  return slices;
}

}  // namespace tendril::kubernetes
