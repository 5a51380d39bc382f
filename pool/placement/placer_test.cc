// SPDX-License-Identifier: Apache-2.0
// What holds for every strategy: nothing is promised twice, all slices or none, and a request is
// refused only if it fits nowhere.
#include "pool/placement/placer.h"

#include "pool/placement/test_fleets.h"

namespace tendril::pool {
namespace {

using testing::server;
using testing::slices;

class EveryStrategy : public ::testing::TestWithParam<const char*> {
 protected:
  Placer placer() { return Placer(make_strategy(GetParam(), 7)); }
};

INSTANTIATE_TEST_SUITE_P(Placer, EveryStrategy,
                         ::testing::Values("random", "bestfit", "fgd", "snug"),
                         [](const auto& each) { return std::string(each.param); });

TEST_P(EveryStrategy, KeepsItsPromisesWhateverIsAskedAndEnded) {
  for (uint64_t seed = 1; seed <= 6; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937_64 dice(seed);
    Placer placer = this->placer();
    const char* models[] = {"H100", "T4", "A10"};
    for (int i = 0; i < 12; ++i)
      ASSERT_TRUE(placer.add_server(
          server(dice() % 9, 8'000 * (1 + dice() % 8), models[dice() % 3], dice() % 2 ? 80 : 0)));
    for (const char* model : models) (void)placer.model_id(model);
    Demand demand;
    std::vector<Placement> held;
    for (int step = 0; step < 400; ++step) {
      if (step % 100 == 0) placer.learn(demand);
      if (step % 50 == 25) placer.set_open(dice() % 12, step % 100 == 75);
      if (!held.empty() && dice() % 3 == 0) {
        std::swap(held[dice() % held.size()], held.back());
        placer.release(held.back());
        held.pop_back();
      }
      const Request request = testing::any_request(dice, 3);
      demand.add(request);
      const bool fits = testing::fits_somewhere(placer.fleet(), request);
      base::Result<Placement> placed = placer.place(request);
      if (placed) {
        testing::expect_as_asked(placer.fleet(), request, *placed);
        held.push_back(placed.take());
      } else {
        EXPECT_EQ(placed.status().code(), base::Code::kUnavailable);
        EXPECT_FALSE(fits) << "step " << step;
      }
      if (placed && request.spread == Spread::kOneServer) {
        EXPECT_TRUE(fits);
      }
      testing::expect_sums(placer.fleet(), held);
      if (HasFailure()) return;
    }
    for (const Placement& placement : held) placer.release(placement);
    EXPECT_EQ(placer.fleet().share_free(), placer.fleet().share_total());
  }
}

TEST_P(EveryStrategy, TakesAllSlicesOrNone) {
  Placer placer = this->placer();
  for (int i = 0; i < 64; ++i) ASSERT_TRUE(placer.add_server(server(1)));
  Request request = slices(64, 500'000, 64 * 1000);
  request.spread = Spread::kAnyServers;
  base::Result<Placement> first = placer.place(request);
  ASSERT_TRUE(first);
  EXPECT_EQ(first->pieces.size(), 64U);
  ASSERT_TRUE(placer.place(slices(1, 600'000)).status().code() == base::Code::kUnavailable);
  ASSERT_TRUE(placer.place(slices(1, 500'000)));
  const uint64_t free = placer.fleet().share_free();
  base::Result<Placement> second = placer.place(request);
  ASSERT_FALSE(second);
  EXPECT_NE(second.status().message().find("63 of 64"), std::string::npos)
      << second.status().message();
  EXPECT_EQ(placer.fleet().share_free(), free);
}

TEST_P(EveryStrategy, PutsThreeThirdsOnAGpu) {
  Placer placer = this->placer();
  ASSERT_TRUE(placer.add_server(server(1)));
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(placer.place(slices(1, 333'333)));
  EXPECT_FALSE(placer.place(slices(1, 333'333)));
}

TEST_P(EveryStrategy, LooksAtMemoryAsWellAsShare) {
  Placer placer = this->placer();
  ASSERT_TRUE(placer.add_server(server(1)));
  Request request = slices(1, 100'000);
  request.gpu_memory_bytes = 60;
  ASSERT_TRUE(placer.place(request));
  EXPECT_FALSE(placer.place(request));
  request.gpu_memory_bytes = 20;
  EXPECT_TRUE(placer.place(request));
  request.gpu_memory_bytes = 0;
  request.share_millionths = 800'000;
  EXPECT_TRUE(placer.place(request)) << "no memory is left, and none is asked for";
}

TEST(Placer, RefusesWhatCanNeverBe) {
  Placer placer(make_snug());
  EXPECT_EQ(placer.place(slices(kMostSlices + 1, 1)).status().code(), base::Code::kInvalid);
  EXPECT_EQ(placer.place(slices(1, 0)).status().code(), base::Code::kInvalid);
  EXPECT_EQ(placer.place(slices(1, kWholeGpu + 1)).status().code(), base::Code::kInvalid);
  EXPECT_EQ(placer.add_server(server(kMostGpus + 1)).status().code(), base::Code::kInvalid);
  EXPECT_EQ(make_strategy("none", 0), nullptr);
}

TEST(Demand, CountsKindsAndForgets) {
  Demand demand;
  for (int i = 0; i < 3; ++i) demand.add(slices(1, 500'000, 2000));
  demand.add(slices(2, kWholeGpu, 16'000));
  const std::vector<DemandKind> all = demand.typical(1);
  ASSERT_EQ(all.size(), 2U);
  EXPECT_EQ(all[0].share_millionths, 500'000U);
  EXPECT_DOUBLE_EQ(all[0].weight, 0.75);
  EXPECT_EQ(demand.typical(0.7).size(), 1U);
  EXPECT_DOUBLE_EQ(demand.cpu_milli_per_gpu(), 22'000 / 3.5);
  demand.fade(0.005);
  EXPECT_EQ(demand.typical(1).size(), 1U);
}

}  // namespace
}  // namespace tendril::pool
