// SPDX-License-Identifier: Apache-2.0
// Tests of inventory.h, claim.h and binding.h.
#include <gtest/gtest.h>

#include <set>
#include <stdexcept>

#include "packaging/kubernetes/binding.h"
#include "packaging/kubernetes/claim.h"

namespace tendril::kubernetes {
namespace {

Json status(int gpus, const std::string& server = "GPU1.lab:7433") {
  Json list = Json::array();
  for (int i = 0; i < gpus; ++i)
    list.push_back({{"index", i}, {"model", "NVIDIA H200"}, {"memory_bytes", 100ull << 30}});
  const Json one = {{"name", server}, {"state", "up"}, {"draining", false}, {"gpus", list}};
  return {{"servers", Json::array({one})}};
}

Json claim(const Json& results) {
  return {{"metadata", {{"uid", "u1"}}},
          {"status", {{"allocation", {{"devices", {{"results", results}}}}}}}};
}

Json result(const std::string& device, const Json& capacity) {
  return {{"driver", kDriver},
          {"request", "gpu"},
          {"pool", "tendril"},
          {"device", device},
          {"consumedCapacity", capacity}};
}

std::string refusal(const Json& one, const std::vector<Json>& slices) {
  try {
    wanted_of(one, "u1", slices);
  } catch (const std::runtime_error& error) {
    return error.what();
  }
  return "";
}

TEST(Quantity, IsInThousandths) {
  EXPECT_EQ(thousandths("500m"), 500);
  EXPECT_EQ(thousandths("1"), 1000);
  EXPECT_EQ(thousandths("0.333"), 333);
  EXPECT_EQ(thousandths("1e1"), 10'000);
  EXPECT_EQ(thousandths("10Gi"), (10ll << 30) * 1000);
  EXPECT_EQ(thousandths("1G"), 1'000'000'000'000);
  EXPECT_EQ(thousandths("1n"), 1) << "rounded up";
  for (const char* const wrong : {"", "x", "1x", "-1", "nan", "inf", "0x10", "1e40", "1 Gi"})
    EXPECT_THROW(thousandths(wrong), std::runtime_error) << wrong;
}

TEST(Inventory, NamesAreLabelsAndDiffer) {
  std::set<std::string> names;
  for (const char* const server : {"GPU1.lab:7433", "gpu1-lab-7433", "gpu1.lab:7433", "a"})
    for (int index = 0; index < 3; ++index) names.insert(device_name(server, index));
  EXPECT_EQ(names.size(), 12u);
  names.insert(device_name(std::string(300, 'x'), 1'000'000));
  for (const std::string& name : names) {
    EXPECT_LE(name.size(), 63u);
    EXPECT_EQ(name.find_first_not_of("abcdefghijklmnopqrstuvwxyz0123456789-"), std::string::npos);
  }
}

TEST(Inventory, OnlyServersThatTakePrograms) {
  Json two = status(2);
  Json draining = two["servers"][0], away = two["servers"][0];
  draining["draining"] = true;
  away["state"] = "away";
  two["servers"].push_back(draining);
  two["servers"].push_back(away);
  EXPECT_EQ(devices_of(two).size(), 2u);
  EXPECT_THROW(devices_of({{"error", "no"}}), std::runtime_error);
  EXPECT_THROW(devices_of("text"), std::runtime_error);
}

TEST(Inventory, SlicesHaveAtMost128Devices) {
  const std::vector<Json> slices = slices_of("tendril", devices_of(status(300)), 7);
  ASSERT_EQ(slices.size(), 3u);
  EXPECT_EQ(slices[2]["spec"]["devices"].size(), 44u);
  EXPECT_EQ(slices[1]["spec"]["pool"]["resourceSliceCount"], 3);
  EXPECT_EQ(slices[1]["spec"]["pool"]["generation"], 7);
  EXPECT_EQ(slices_of("tendril", Json::array(), 1).size(), 1u);
}

TEST(Claim, IsAskedOfTheNamedGpus) {
  const Json devices = devices_of(status(2));
  const std::vector<Json> slices = slices_of("tendril", devices, 1);
  const Json half = {{"compute", "500m"}, {"memory", "10Gi"}};
  const Wanted wanted = wanted_of(
      claim({result(devices[0]["name"], half), result(devices[1]["name"], half)}), "u1", slices);
  EXPECT_EQ(wanted.filter,
            "(server = \"GPU1.lab:7433\" and index = 0) or "
            "(server = \"GPU1.lab:7433\" and index = 1)");
  EXPECT_EQ(wanted.percent, 50);
  EXPECT_EQ(wanted.memory_mib, 10'240);
  EXPECT_EQ(wanted.devices.size(), 2u);
  const Json whole = {{"gpu.tendril.io/compute", "1"}, {"gpu.tendril.io/memory", "102400Mi"}};
  const Wanted all =
      wanted_of(claim(Json::array({result(devices[0]["name"], whole)})), "u1", slices);
  EXPECT_EQ(all.percent, 100);
  EXPECT_EQ(all.memory_mib, 0) << "the whole GPU's memory needs no number";
}

TEST(Claim, WhatCannotBeServedIsSaid) {
  const Json devices = devices_of(status(2));
  const std::vector<Json> slices = slices_of("tendril", devices, 1);
  const Json half = {{"compute", "500m"}};
  const Json first = result(devices[0]["name"], half), second = result(devices[1]["name"], {});
  EXPECT_NE(refusal(claim({first, first}), slices).find("two parts"), std::string::npos);
  EXPECT_NE(refusal(claim({first, second}), slices).find("one size"), std::string::npos);
  EXPECT_NE(refusal(claim(Json::array({result("gone", half)})), slices).find("any more"),
            std::string::npos);
  EXPECT_NE(refusal(claim(Json::array()), slices).find("no device"), std::string::npos);
  EXPECT_NE(refusal({{"metadata", {{"uid", "u1"}}}}, slices).find("not allocated"),
            std::string::npos);
  EXPECT_NE(refusal({{"metadata", {{"uid", "u2"}}}}, slices).find("another claim"),
            std::string::npos);
  EXPECT_NE(refusal("text", slices).find("not understood"), std::string::npos);
  const Json far = result(devices[0]["name"], {{"compute", "2"}});
  EXPECT_NE(refusal(claim(Json::array({far})), slices).find("between"), std::string::npos);
}

TEST(Claim, TheNewestSliceSaysWhichGpuItIs) {
  const Json devices = devices_of(status(1));
  Json moved = devices;
  moved[0]["attributes"]["index"]["int"] = 5;
  std::vector<Json> slices = slices_of("tendril", moved, 2);
  slices.push_back(slices_of("tendril", devices, 1)[0]);
  const Wanted wanted =
      wanted_of(claim(Json::array({result(devices[0]["name"], {})})), "u1", slices);
  EXPECT_NE(wanted.filter.find("index = 5"), std::string::npos);
}

Json waiting_claim() {
  Json one = claim({{{"driver", kDriver},
                     {"request", "gpu"},
                     {"pool", "tendril"},
                     {"device", "a"},
                     {"shareID", "s1"},
                     {"bindingConditions", {kLeased}}},
                    {{"driver", "other"}, {"device", "a"}, {"bindingConditions", {kLeased}}},
                    {{"driver", kDriver}, {"pool", "tendril"}, {"device", "b"}}});
  return one;
}

TEST(Binding, ConcernsTheDevicesThatHaveTheCondition) {
  EXPECT_FALSE(waits_for_lease({{"metadata", {{"uid", "u1"}}}})) << "not allocated";
  Json one = waiting_claim();
  EXPECT_TRUE(waits_for_lease(one));
  EXPECT_FALSE(is_leased(one));
  one = with_condition(one, {kLeased, false, "Waiting", "position 3"}, "2026-01-01T00:00:00Z");
  ASSERT_EQ(one["status"]["devices"].size(), 1u);
  Json device = one["status"]["devices"][0];
  EXPECT_EQ(device["device"], "a");
  EXPECT_EQ(device["shareID"], "s1");
  EXPECT_FALSE(device.contains("request"));
  EXPECT_FALSE(is_leased(one));
  one = with_condition(one, {kLeased, true, "Granted", "now"}, "2026-01-02T00:00:00Z");
  device = one["status"]["devices"][0];
  ASSERT_EQ(device["conditions"].size(), 1u);
  EXPECT_EQ(device["conditions"][0]["lastTransitionTime"], "2026-01-02T00:00:00Z");
  EXPECT_TRUE(is_leased(one));
  one = with_condition(one, {kRefused, true, "Refused", "no"}, "2026-01-03T00:00:00Z");
  device = one["status"]["devices"][0];
  EXPECT_EQ(device["conditions"].size(), 2u);
  EXPECT_EQ(device["conditions"][0]["lastTransitionTime"], "2026-01-02T00:00:00Z");
}

TEST(Binding, WhatOthersSaidStays) {
  Json one = waiting_claim();
  const Json said = {{"driver", kDriver}, {"pool", "tendril"}, {"device", "a"}, {"shareID", "s2"}};
  one["status"]["devices"] = Json::array({said});
  one = with_condition(one, {kLeased, true, "Granted", ""}, "2026-01-01T00:00:00Z");
  ASSERT_EQ(one["status"]["devices"].size(), 2u) << "another part of that GPU is another device";
  EXPECT_EQ(one["status"]["devices"][0], said);
}

TEST(Binding, ANewAllocationIsAnother) {
  const Json one = waiting_claim();
  Json other = one;
  EXPECT_EQ(allocation_of(one), allocation_of(other));
  other["status"]["devices"] = Json::array();
  EXPECT_EQ(allocation_of(one), allocation_of(other));
  other["status"]["allocation"]["allocationTimestamp"] = "2026-01-01T00:00:00Z";
  EXPECT_NE(allocation_of(one), allocation_of(other));
}

}  // namespace
}  // namespace tendril::kubernetes
