// SPDX-License-Identifier: Apache-2.0
// See claim.h.
#include "packaging/kubernetes/claim.h"

#include <algorithm>
#include <cmath>
#include <stdexcept>

namespace tendril::kubernetes {
namespace {

using Error = std::runtime_error;

struct Suffix {
  const char* text;
  long double factor;
};
constexpr Suffix kSuffixes[] = {
    {"", 1.0L},
    {"n", 1e-9L},
    {"u", 1e-6L},
    {"m", 1e-3L},
    {"k", 1e3L},
    {"M", 1e6L},
    {"G", 1e9L},
    {"T", 1e12L},
    {"P", 1e15L},
    {"E", 1e18L},
    {"Ki", 1024.0L},
    {"Mi", 1048576.0L},
    {"Gi", 1073741824.0L},
    {"Ti", 1099511627776.0L},
    {"Pi", 1125899906842624.0L},
};

// The device in the newest of the slices that have it.
const Json* find_device(const std::vector<Json>& slices, const Allocated& wanted) {
  const Json* found = nullptr;
  int64_t newest = -1;
  for (const Json& slice : slices) {
    const Json& spec = slice.at("spec");
    const Json& pool = spec.at("pool");
    const auto generation = pool.at("generation").get<int64_t>();
    if (spec.at("driver") != kDriver || pool.at("name") != wanted.pool || generation <= newest)
      continue;
    if (!spec.contains("devices")) continue;
    for (const Json& device : spec.at("devices")) {
      if (device.at("name") != wanted.device) continue;
      found = &device;
      newest = generation;
    }
  }
  return found;
}

std::string quoted(const std::string& text) {
  // The filter's language has no sign that would stand for a quotation mark.
  if (text.find_first_of("\"\\\n") != std::string::npos)
    throw Error("a server's name cannot be said in a filter");
  return "\"" + text + "\"";
}

// Names of capacities have the driver in front of them, or not.
std::string consumed(const Json& result, const char* name) {
  const Json all = result.value("consumedCapacity", Json::object());
  for (const std::string& key : {std::string(kDriver) + "/" + name, std::string(name)})
    if (all.contains(key)) return all.at(key).get<std::string>();
  return "";
}

struct Size {
  int64_t percent = 100, memory_mib = 0;
  bool operator==(const Size&) const = default;
};

Size size_of(const Json& result, const Json& device) {
  Size size;
  const std::string compute = consumed(result, "compute"), memory = consumed(result, "memory");
  if (!compute.empty()) size.percent = (thousandths(compute) + 9) / 10;
  if (size.percent < 1 || size.percent > 100)
    throw Error("the claim has " + compute + " of a GPU's time; a device has between 10m and 1");
  const auto whole = device.at("capacity").at("memory").at("value").get<std::string>();
  if (!memory.empty() && thousandths(memory) < thousandths(whole))
    size.memory_mib = (thousandths(memory) / 1000 + (1 << 20) - 1) >> 20;
  return size;
}

void add(const Json& result, const std::vector<Json>& slices, Wanted* wanted) {
  const Allocated one = {result.at("request"), result.at("pool"), result.at("device")};
  const Json* const device = find_device(slices, one);
  if (device == nullptr) throw Error("the GPU " + one.device + " is not in the pool any more");
  for (const Allocated& other : wanted->devices)
    if (other.pool == one.pool && other.device == one.device)
      throw Error(
          "the claim has two parts of the GPU " + one.device +
          "; ask for one larger part, or add the constraint distinctAttribute: gpu.tendril.io/gpu");
  const Size size = size_of(result, *device);
  if (!wanted->devices.empty() && size != Size{wanted->percent, wanted->memory_mib})
    throw Error("the devices of a claim must all be of one size");
  wanted->percent = size.percent;
  wanted->memory_mib = size.memory_mib;
  const Json& facts = device->at("attributes");
  wanted->filter += (wanted->filter.empty() ? "" : " or ") + std::string("(server = ") +
                    quoted(facts.at("server").at("string").get<std::string>()) +
                    " and index = " + std::to_string(facts.at("index").at("int").get<int64_t>()) +
                    ")";
  wanted->devices.push_back(one);
}

}  // namespace

int64_t thousandths(const std::string& quantity) {
  size_t end = 0;
  long double number = 0;
  try {
    number = std::stold(quantity, &end);
  } catch (const std::exception&) {
    end = 0;
  }
  const bool plain =
      end != 0 && quantity.find_first_not_of("+-.0123456789eE") >= std::min(end, quantity.size());
  for (const Suffix& suffix : kSuffixes) {
    if (!plain || quantity.substr(end) != suffix.text) continue;
    const long double scaled = std::ceil(number * suffix.factor * 1000 - 1e-9L);
    if (scaled >= 0 && scaled <= 1e18L) return static_cast<int64_t>(scaled);
  }
  throw Error("'" + quantity.substr(0, 40) + "' is no quantity of a device");
}

std::string Wanted::share_text() const {
  const std::string hundredths = std::to_string(percent % 100);
  return std::to_string(percent / 100) + "." + (hundredths.size() < 2 ? "0" : "") + hundredths;
}

std::string Wanted::memory_text() const { return std::to_string(memory_mib) + "M"; }

Wanted wanted_of(const Json& claim, const std::string& uid, const std::vector<Json>& slices) {
  try {
    if (claim.at("metadata").at("uid") != uid)
      throw Error("there is another claim of that name now");
    const Json* allocation = &claim;
    for (const char* const part : {"status", "allocation", "devices", "results"}) {
      if (!allocation->contains(part)) throw Error("the claim is not allocated");
      allocation = &allocation->at(part);
    }
    Wanted wanted;
    for (const Json& result : *allocation)
      if (result.at("driver") == kDriver) add(result, slices, &wanted);
    if (wanted.devices.empty()) throw Error("the claim has no device of " + std::string(kDriver));
    return wanted;
  } catch (const Json::exception& wrong) {
    throw Error(std::string("the claim is not understood: ") + wrong.what());
  }
}

}  // namespace tendril::kubernetes
