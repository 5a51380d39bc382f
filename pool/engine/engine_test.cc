// SPDX-License-Identifier: Apache-2.0
// What starts, what waits and why, rule by rule.
#include "pool/engine/engine.h"

#include <gtest/gtest.h>

namespace tendril::pool {
namespace {

constexpr uint64_t kGigabyte = uint64_t{1} << 30;

EngineServer server(const std::string& name, uint32_t gpus, uint32_t gpu_class = 0) {
  return EngineServer{
      name, std::vector<EngineGpu>(gpus, EngineGpu{"H200", gpu_class, 140 * kGigabyte, 0})};
}

Ask ask(uint64_t id, uint32_t slices = 1, uint32_t share_millionths = kWholeGpu) {
  Ask ask;
  ask.id = id;
  ask.user = "ada";
  ask.gpu_classes = {0};
  ask.slices = slices;
  ask.share_millionths = share_millionths;
  return ask;
}

TEST(Engine, StartsWhatFits) {
  Engine engine;
  engine.set_policy(default_policy(), 0, 0);
  ASSERT_TRUE(engine.add_server(server("gpu1", 2)));
  ASSERT_TRUE(engine.submit(ask(1, 2, 500'000), 0));
  const EnginePlan plan = engine.plan(0);
  ASSERT_EQ(plan.starts.size(), 1U);
  EXPECT_EQ(plan.starts[0].slices.size(), 2U);
  EXPECT_EQ(plan.starts[0].slices[0].memory_bytes, 70 * kGigabyte);
  ASSERT_TRUE(engine.submit(ask(2), 0));
  EXPECT_TRUE(engine.plan(1).starts.empty());
  EXPECT_EQ(engine.waiting(1).size(), 1U);
  engine.ended(1, 2);
  EXPECT_EQ(engine.plan(2).starts.size(), 1U);
}

}  // namespace
}  // namespace tendril::pool
