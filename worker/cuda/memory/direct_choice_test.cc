// SPDX-License-Identifier: Apache-2.0
// GPUDirect's rules, on facts and figures that are made up.
#include "worker/cuda/memory/direct_choice.h"

#include <gtest/gtest.h>

namespace tendril::worker::cuda {
namespace {

DirectFacts hopper() { return {true, true, false, CU_GPU_DIRECT_RDMA_WRITES_ORDERING_OWNER, true}; }

TEST(DirectChoice, ReadsItsSetting) {
  EXPECT_EQ(direct_mode(nullptr), DirectMode::kAuto);
  EXPECT_EQ(direct_mode("auto"), DirectMode::kAuto);
  EXPECT_EQ(direct_mode("on"), DirectMode::kOn);
  EXPECT_EQ(direct_mode("off"), DirectMode::kOff);
  EXPECT_EQ(direct_mode("perhaps"), DirectMode::kOff) << "what nobody understands is not on";
}

TEST(DirectChoice, TriesWhatDriverAndKernelHave) {
  const DirectPlan plan = plan_direct(hopper());
  EXPECT_EQ(plan.why_not, "");
  EXPECT_TRUE(plan.by_dma_buf);
  EXPECT_FALSE(plan.by_peer_module);
  EXPECT_FALSE(plan.flushes);
  DirectFacts facts = hopper();
  facts.gives_dma_buf = false;
  EXPECT_NE(plan_direct(facts).why_not.find("nvidia-peermem"), std::string::npos);
  facts.has_peer_module = true;
  EXPECT_EQ(plan_direct(facts).why_not, "");
  EXPECT_TRUE(plan_direct(facts).by_peer_module);
  facts.gpu_can = false;
  EXPECT_NE(plan_direct(facts).why_not, "");
}

TEST(DirectChoice, WritesThatNobodyOrdersAreFlushedOrNotMade) {
  DirectFacts facts = hopper();
  facts.ordering = CU_GPU_DIRECT_RDMA_WRITES_ORDERING_NONE;
  EXPECT_EQ(plan_direct(facts).why_not, "");
  EXPECT_TRUE(plan_direct(facts).flushes);
  facts.can_flush = false;
  EXPECT_NE(plan_direct(facts).why_not.find("cannot tell"), std::string::npos);
}

TEST(DirectChoice, TakesTheBetterOneOfTwoEquals) {
  // A card of 12.5 GB/s and a GPU of 50 GB/s, a MiB: staging runs at the card's rate.
  DirectTrial trial{84'000, 84'000, 84'000, 21'000, 21'000};
  DirectChoice choice = choose_direct(trial, DirectMode::kAuto);
  EXPECT_TRUE(choice.to_device && choice.to_host) << "alike, and it spares the host's memory";
  EXPECT_DOUBLE_EQ(choice.gain_to_device, 1);
  trial.card_to_host_ns = 100'000;  // reading the GPU's memory is slow over a bridge
  choice = choose_direct(trial, DirectMode::kAuto);
  EXPECT_TRUE(choice.to_device);
  EXPECT_FALSE(choice.to_host);
  EXPECT_TRUE(choose_direct(trial, DirectMode::kOn).to_host) << "somebody wants it";
  EXPECT_FALSE(choose_direct(trial, DirectMode::kOff).to_device);
  trial.card_to_host_ns = 92'000;
  EXPECT_TRUE(choose_direct(trial, DirectMode::kAuto).to_host) << "within a tenth";
  EXPECT_FALSE(choose_direct({}, DirectMode::kOn).to_device) << "nothing was measured";
  // The GPU's own copies are what is slow.
  trial = {84'000, 84'000, 84'000, 400'000, 21'000};
  EXPECT_GT(choose_direct(trial, DirectMode::kAuto).gain_to_device, 4.7);
}

TEST(DirectChoice, KnowsHowFarACardIsFromAGpu) {
  const PciPlace gpu{"/sys/devices/pci0000:00/0000:00:01.0/0000:01:00.0/0000:02:01.0/0000:03:00.0",
                     0};
  const PciPlace beside{
      "/sys/devices/pci0000:00/0000:00:01.0/0000:01:00.0/0000:02:02.0/0000:04:00.0", 0};
  const PciPlace root{"/sys/devices/pci0000:00/0000:00:11.0/0000:05:00.0", 0};
  const PciPlace node{"/sys/devices/pci0000:40/0000:40:01.0/0000:41:00.0", 0};
  const PciPlace far{"/sys/devices/pci0000:80/0000:80:01.0/0000:81:00.0", 1};
  EXPECT_EQ(closeness(gpu, beside), Closeness::kSwitch);
  EXPECT_EQ(closeness(gpu, root), Closeness::kRoot) << "0000:00:1 is no bridge";
  EXPECT_EQ(closeness(gpu, node), Closeness::kNode);
  EXPECT_EQ(closeness(gpu, far), Closeness::kFar);
  EXPECT_EQ(closeness(gpu, {}), Closeness::kUnknown);
  const std::vector<size_t> wanted = {3, 4, 2, 0, 1};
  EXPECT_EQ(nearest_first(gpu, {far, {}, node, beside, root}), wanted);
  EXPECT_EQ(read_pci_place("/no such device").path, "");
  EXPECT_STREQ(text_of(Closeness::kFar), "other memory node");
}

TEST(DirectChoice, CutsBlocksIntoParts) {
  constexpr uint64_t kBlock = 7ull << 40, kBytes = 5 * kDirectPartBytes / 2;
  EXPECT_TRUE(parts_of(kBlock, kBytes, kBlock - 1, 10).empty());
  EXPECT_TRUE(parts_of(kBlock, kBytes, kBlock + kBytes - 5, 6).empty());
  EXPECT_TRUE(parts_of(kBlock, kBytes, kBlock, UINT64_MAX).empty());
  EXPECT_TRUE(parts_of(kBlock, kBytes, kBlock, 0).empty());
  const auto one = parts_of(kBlock, kBytes, kBlock + 9, kDirectPartBytes - 9);
  ASSERT_EQ(one.size(), 1u);
  EXPECT_EQ(one[0].begin, kBlock);
  EXPECT_EQ(one[0].bytes, kDirectPartBytes);
  const auto two = parts_of(kBlock, kBytes, kBlock + kDirectPartBytes + 9, kBytes / 2);
  ASSERT_EQ(two.size(), 2u);
  EXPECT_EQ(two[1].begin, kBlock + 2 * kDirectPartBytes);
  EXPECT_EQ(two[1].bytes, kDirectPartBytes / 2) << "the block ends";
}

}  // namespace
}  // namespace tendril::worker::cuda
