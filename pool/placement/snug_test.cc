// SPDX-License-Identifier: Apache-2.0
// What strategy Snug prefers, and that its index agrees with a look at every server.
#include <cmath>

#include "pool/placement/gap_waste.h"
#include "pool/placement/server_index.h"
#include "pool/placement/test_fleets.h"

namespace tendril::pool {
namespace {

using testing::server;
using testing::slices;

Demand halves_and_wholes() {
  Demand demand;
  for (int i = 0; i < 10; ++i) demand.add(slices(1, 500'000, 4000));
  for (int i = 0; i < 10; ++i) demand.add(slices(1, kWholeGpu, 8000));
  return demand;
}

TEST(GapWaste, IsLeastWhereCommonRequestsFit) {
  const GapWaste waste = gap_waste(halves_and_wholes());
  EXPECT_EQ(waste[0], 0);
  EXPECT_EQ(waste[400], 400);
  EXPECT_LT(waste[500], 1);
  EXPECT_NEAR(waste[700], 200, 1);
  EXPECT_LT(waste[1000], 1);
  EXPECT_LT(gap_waste(Demand())[50], gap_waste(Demand())[40]) << "twentieths, until more is known";
}

TEST(Snug, FillsTheGapThatFits) {
  Placer placer(make_snug());
  ASSERT_TRUE(placer.add_server(server(3)));
  Demand demand;
  for (uint32_t share : {300'000, 500'000, 700'000}) demand.add(slices(1, share));
  placer.learn(demand);
  ASSERT_EQ(placer.place(slices(1, 300'000))->pieces[0].gpus[0], 0U);
  EXPECT_EQ(placer.place(slices(1, 500'000))->pieces[0].gpus[0], 1U)
      << "700 less 500 would leave 200, which nobody asks for";
  EXPECT_EQ(placer.place(slices(1, 500'000))->pieces[0].gpus[0], 1U);
  EXPECT_EQ(placer.place(slices(1, 700'000))->pieces[0].gpus[0], 0U);
}

TEST(Snug, GivesProcessorsToThoseWhoNeedThem) {
  Placer placer(make_snug());
  ASSERT_TRUE(placer.add_server(server(8, 32'000)));   // half of what its GPUs usually need
  ASSERT_TRUE(placer.add_server(server(8, 192'000)));  // three times that
  placer.learn(halves_and_wholes());
  EXPECT_EQ(placer.place(slices(1, kWholeGpu, 24'000))->pieces[0].server, 1U);
  EXPECT_EQ(placer.place(slices(1, kWholeGpu, 4'000))->pieces[0].server, 0U);
  EXPECT_EQ(placer.place(slices(0, 0, 20'000))->pieces[0].server, 1U) << "processors only";
}

TEST(Snug, KeepsLargeSetsOfGpusTogether) {
  Placer placer(make_snug());
  for (uint32_t gpus : {8U, 2U, 4U}) ASSERT_TRUE(placer.add_server(server(gpus, 8000 * gpus)));
  placer.learn(halves_and_wholes());
  EXPECT_EQ(placer.place(slices(2, kWholeGpu, 16'000))->pieces[0].server, 1U);
  EXPECT_EQ(placer.place(slices(3, kWholeGpu, 24'000))->pieces[0].server, 2U);
  EXPECT_EQ(placer.place(slices(8, kWholeGpu, 64'000))->pieces[0].server, 0U);
}

// Every entry of the index, and none besides, after many changes.
void expect_index(const ServerIndex& index, const Fleet& fleet, double cpu_milli_per_gpu) {
  ServerIndex fresh;
  fresh.rebuild(fleet, cpu_milli_per_gpu);
  const auto expect_same = [](const ServerList& left, const ServerList& right) {
    EXPECT_EQ(left.by_free.keys(), right.by_free.keys());
    EXPECT_EQ(left.by_balance.keys(), right.by_balance.keys());
  };
  ASSERT_EQ(index.model_count(), fresh.model_count());
  for (size_t i = 0; i < index.model_count(); ++i) {
    const ServerIndex::Model& model = index.model(i);
    EXPECT_EQ(model.gaps_present, fresh.model(i).gaps_present);
    for (size_t gap = 0; gap <= kGapSteps; ++gap)
      expect_same(model.by_gap[gap], fresh.model(i).by_gap[gap]);
    for (size_t whole = 0; whole <= kMostGpus; ++whole)
      expect_same(model.by_whole[whole], fresh.model(i).by_whole[whole]);
    expect_same(model.all, fresh.model(i).all);
  }
}

TEST(ServerIndex, FollowsEveryChange) {
  std::mt19937_64 dice(3);
  Fleet fleet;
  ServerIndex index;
  index.rebuild(fleet, 8000);
  for (uint32_t i = 0; i < 20; ++i) {
    ASSERT_TRUE(fleet.add(server(1 + dice() % 8, 96'000, dice() % 2 ? "A" : "B")));
    index.update(fleet, i);
  }
  for (int step = 0; step < 300; ++step) {
    const auto number = static_cast<uint32_t>(dice() % 20);
    if (step % 40 == 39) fleet.set_open(number, !fleet.server(number).open);
    Request request = slices(1 + dice() % 2, (1 + dice() % 1000) * 1000, dice() % 4000);
    if (fleet.server(number).fits(request))
      fleet.take(Piece{number, fleet.server(number).first_gpus(request, true), request.host},
                 request.share_millionths, 0);
    index.update(fleet, number);
    if (step % 10 == 0) expect_index(index, fleet, 8000);
    if (::testing::Test::HasFailure()) return;
  }
}

}  // namespace
}  // namespace tendril::pool
