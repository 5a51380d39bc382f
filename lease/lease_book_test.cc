// SPDX-License-Identifier: Apache-2.0
// The lease book: what it grants, what it says if it refuses, and random sequences against a simple
// model.
#include "lease/lease_book.h"

#include <gtest/gtest.h>

#include <random>

#include "config/quantity.h"

namespace tendril::lease {
namespace {

constexpr uint64_t kGib = 1ull << 30, kPage = 2ull << 20;

wire::LeaseRequest ask(uint32_t count, uint32_t share, uint64_t memory) {
  wire::LeaseRequest request;
  request.count = count;
  request.slice.share_millionths = share;
  request.slice.memory_bytes = memory;
  return request;
}

LeaseBook two_gpus() { return LeaseBook("box", {{16 * kGib, 0}, {16 * kGib, 0}}); }

TEST(LeaseBook, DerivesMemoryFromShareAndShareFromMemory) {
  LeaseBook book = two_gpus();
  auto by_share = book.grant(1, ask(1, 250'000, 0));
  ASSERT_TRUE(by_share.ok());
  EXPECT_EQ((*by_share)[0].memory_bytes, 4 * kGib);
  auto by_memory = book.grant(2, ask(1, 0, 4 * kGib));
  ASSERT_TRUE(by_memory.ok());
  EXPECT_EQ((*by_memory)[0].share_millionths, 250'000u);
  auto both = book.grant(3, ask(1, 100'000, 8 * kGib));
  ASSERT_TRUE(both.ok());
  EXPECT_EQ((*both)[0].memory_bytes, 8 * kGib);
  EXPECT_EQ((*both)[0].share_millionths, 100'000u);
}

TEST(LeaseBook, AGpuIsPackedOrNotWhileAnybodyIsOnIt) {
  LeaseBook book("box", {{16 * kGib, 0}});
  wire::LeaseRequest packed = ask(1, 100'000, 0);
  packed.slice.packed = true;
  ASSERT_TRUE(book.grant(1, packed).ok());
  auto refused = book.grant(2, ask(1, 100'000, 0));
  ASSERT_FALSE(refused.ok());
  EXPECT_NE(refused.status().message().find("for packed slices only"), std::string::npos)
      << refused.status().message();
  auto another = book.grant(3, packed);
  ASSERT_TRUE(another.ok());
  EXPECT_TRUE((*another)[0].packed);
  book.release(1);
  book.release(3);
  EXPECT_TRUE(book.grant(4, ask(1, 100'000, 0)).ok());
  refused = book.grant(5, packed);
  ASSERT_FALSE(refused.ok());
  EXPECT_NE(refused.status().message().find("for slices that are not packed"), std::string::npos);
}

std::vector<uint32_t> packed_together(uint32_t processors, const std::vector<uint32_t>& shares) {
  LeaseBook book("box", {{64 * kGib, 0, 0, processors}});
  std::vector<uint32_t> got;
  for (size_t i = 0; i < shares.size(); ++i) {
    wire::LeaseRequest packed = ask(1, shares[i], 0);
    packed.slice.packed = true;
    EXPECT_TRUE(book.grant(i, packed).ok());
    got.push_back(book.packed_processors(i, 0));
  }
  return got;
}

TEST(LeaseBook, PackedSlicesShareNoProcessorWhereAPairIsLittle) {
  EXPECT_EQ(packed_together(132, {500'000, 500'000}), (std::vector<uint32_t>{66, 66}));
  EXPECT_EQ(packed_together(132, {250'000, 250'000, 250'000, 250'000}),
            (std::vector<uint32_t>{34, 32, 34, 32}));
  EXPECT_EQ(packed_together(132, {200'000, 200'000, 200'000}), (std::vector<uint32_t>{28, 26, 26}));
  EXPECT_EQ(packed_together(132, {100'000, 900'000}), (std::vector<uint32_t>{14, 118}));
  EXPECT_EQ(packed_together(132, {100'000, 100'000, 100'000}), (std::vector<uint32_t>{14, 14, 14}));
  // If small slices have more than their share, a large one that comes later makes up for it.
  EXPECT_EQ(packed_together(132, {50'000, 500'000}), (std::vector<uint32_t>{8, 66}));
  EXPECT_EQ(packed_together(132, {50'000, 50'000, 500'000}), (std::vector<uint32_t>{8, 8, 64}));
  for (const uint32_t processors : {132u, 188u, 108u}) {
    for (uint32_t parts = 2; parts <= 20; ++parts) {
      const uint32_t share = 1'000'000 / parts;
      uint32_t sum = 0;
      bool nobody_has_less = true;
      for (const uint32_t got : packed_together(processors, std::vector<uint32_t>(parts, share))) {
        const double points = 100.0 * got / processors - share / 10'000.0;
        EXPECT_GE(points, -100.0 / parts / 25 - 1e-4) << parts << " parts of " << processors;
        EXPECT_LT(points, 200.0 / processors) << parts << " parts of " << processors;
        EXPECT_EQ(got % 2, 0u);
        sum += got;
        nobody_has_less &= points > -1e-4;
      }
      // A pair is too large a part of a small slice. So none has less, and some processors have two
      // tenants.
      EXPECT_TRUE(sum <= processors || nobody_has_less) << parts << " parts of " << processors;
    }
  }
}

TEST(LeaseBook, PackedSlicesOfFewProcessorsHaveNoLessThanTheirShare) {
  EXPECT_EQ(packed_together(20, {250'000, 250'000, 250'000, 250'000}),
            (std::vector<uint32_t>{6, 6, 6, 6}));
  EXPECT_EQ(packed_together(13, {500'000, 500'000}), (std::vector<uint32_t>{0, 0}));
  EXPECT_EQ(packed_together(0, {500'000}), (std::vector<uint32_t>{0}));
}

TEST(LeaseBook, ProcessorsOfAPackedLeaseThatEndsAreGivenAgain) {
  LeaseBook book("box", {{64 * kGib, 0, 0, 132}});
  wire::LeaseRequest packed = ask(1, 250'000, 0);
  packed.slice.packed = true;
  for (uint64_t lease = 0; lease < 40; ++lease) {
    if (lease >= 4) book.release(lease - 4);
    ASSERT_TRUE(book.grant(lease, packed).ok());
    uint32_t sum = 0;
    for (uint64_t held = lease < 3 ? 0 : lease - 3; held <= lease; ++held)
      sum += book.packed_processors(held, 0);
    EXPECT_LE(sum, 132u);
    EXPECT_GE(sum + 2, 33 * std::min<uint64_t>(lease + 1, 4));
  }
  EXPECT_EQ(book.packed_processors(0, 0), 0u);
}

TEST(LeaseBook, PartsOfOneGpuAlwaysFit) {
  for (uint32_t parts = 2; parts <= 20; ++parts) {
    LeaseBook book("box", {{16 * kGib - 12345, 0}});
    const auto share = config::parse_fraction("1/" + std::to_string(parts));
    for (uint32_t i = 0; i < parts; ++i) {
      EXPECT_TRUE(book.grant(i, ask(1, share.value(), 0)).ok()) << parts << " parts, number " << i;
    }
  }
}

TEST(LeaseBook, SlicesOfOneLeaseAreOnDifferentGpus) {
  LeaseBook book = two_gpus();
  auto two = book.grant(1, ask(2, 500'000, 0));
  ASSERT_TRUE(two.ok());
  EXPECT_EQ((*two)[0].gpu_index, 0u);
  EXPECT_EQ((*two)[1].gpu_index, 1u);
  const auto three = book.grant(2, ask(3, 100'000, 0));
  EXPECT_EQ(three.status().code(), base::Code::kRefused);
  EXPECT_NE(three.status().message().find("2 GPUs"), std::string::npos);
}

TEST(LeaseBook, TakesTheFullestGpuThatFits) {
  LeaseBook book = two_gpus();
  ASSERT_TRUE(book.grant(1, ask(1, 500'000, 0)).ok());
  auto second = book.grant(2, ask(1, 300'000, 0));
  ASSERT_TRUE(second.ok());
  EXPECT_EQ((*second)[0].gpu_index, 0u);
  auto whole = book.grant(3, ask(1, config::kWholeGpu, 0));
  ASSERT_TRUE(whole.ok());
  EXPECT_EQ((*whole)[0].gpu_index, 1u);
}

TEST(LeaseBook, RefusalNamesWhatIsFree) {
  LeaseBook book("box", {{16 * kGib, 0}});
  ASSERT_TRUE(book.grant(1, ask(1, 700'000, 0)).ok());
  const auto refused = book.grant(2, ask(1, 500'000, 0));
  ASSERT_FALSE(refused.ok());
  const std::string text = refused.status().message();
  EXPECT_NE(text.find("host box"), std::string::npos) << text;
  EXPECT_NE(text.find("0.50 GPU"), std::string::npos) << text;
  EXPECT_NE(text.find("GPU 0 has 0.30 of 1.00"), std::string::npos) << text;
  EXPECT_NE(text.find("GiB free"), std::string::npos) << text;
}

TEST(LeaseBook, MemoryAloneCanBeWhatDoesNotFit) {
  LeaseBook book("box", {{16 * kGib, 0}});
  ASSERT_TRUE(book.grant(1, ask(1, 100'000, 12 * kGib)).ok());
  EXPECT_FALSE(book.grant(2, ask(1, 100'000, 5 * kGib)).ok());
  EXPECT_TRUE(book.grant(3, ask(1, 100'000, 4 * kGib)).ok());
}

TEST(LeaseBook, ASliceMustHoldAnEmptyContext) {
  LeaseBook book("box", {{16 * kGib, 600ull << 20}});
  const auto small = book.grant(1, ask(1, 0, 512ull << 20));
  ASSERT_FALSE(small.ok());
  EXPECT_NE(small.status().message().find("before it allocates anything"), std::string::npos);
  EXPECT_TRUE(book.grant(2, ask(1, 0, kGib)).ok());
}

TEST(LeaseBook, ASliceMustHoldWhatCodeTakesToo) {
  LeaseBook book("box", {{16 * kGib, 500ull << 20, 125ull << 20}});
  EXPECT_EQ(book.process_bytes(0), 625ull << 20);
  EXPECT_FALSE(book.grant(1, ask(1, 0, 625ull << 20)).ok());
  EXPECT_TRUE(book.grant(1, ask(1, 0, 627ull << 20)).ok());
}

TEST(LeaseBook, MoreThanAGpuLendsIsRefusedAsSuch) {
  LeaseBook book("box", {{16 * kGib, 0}});
  const auto refused = book.grant(1, ask(1, 0, 17 * kGib));
  ASSERT_FALSE(refused.ok());
  const std::string text = refused.status().message();
  EXPECT_NE(text.find("even when nobody uses it: it lends 16.0 GiB"), std::string::npos) << text;
  EXPECT_EQ(text.find("who holds the rest"), std::string::npos) << text;
  LeaseBook unlike("box", {{80 * kGib, 0}, {16 * kGib, 0}});
  const std::string largest = unlike.grant(1, ask(1, 0, 100 * kGib)).status().message();
  EXPECT_NE(largest.find("it lends 80.0 GiB"), std::string::npos) << largest;
}

TEST(LeaseBook, AGpuThatCanNeverHaveTheSliceLeavesItToTheOthers) {
  LeaseBook book("box", {{16 * kGib, kGib}, {160 * kGib, kGib}});
  // of the first GPU, less than a process needs
  auto small_part = book.grant(1, ask(1, 20'000, 0));
  ASSERT_TRUE(small_part.ok()) << small_part.status().message();
  EXPECT_EQ((*small_part)[0].gpu_index, 1u);
  auto large = book.grant(2, ask(1, 0, 100 * kGib));
  ASSERT_TRUE(large.ok()) << large.status().message();
  EXPECT_EQ((*large)[0].gpu_index, 1u);
  const auto both = book.grant(3, ask(2, 0, 20 * kGib));
  ASSERT_FALSE(both.ok());
  EXPECT_NE(both.status().message().find("GPU 0"), std::string::npos) << both.status().message();
}

TEST(LeaseBook, RejectsNonsense) {
  LeaseBook book = two_gpus();
  EXPECT_EQ(book.grant(1, ask(0, config::kWholeGpu, 0)).status().code(), base::Code::kInvalid);
  EXPECT_EQ(book.grant(1, ask(1, 0, 0)).status().code(), base::Code::kInvalid);
  EXPECT_EQ(book.grant(1, ask(1, config::kWholeGpu + 1, 0)).status().code(), base::Code::kInvalid);
  EXPECT_EQ(book.grant(1, ask(UINT32_MAX, 1, 0)).status().code(), base::Code::kInvalid);
  EXPECT_FALSE(book.grant(1, ask(1, 1000, UINT64_MAX)).ok());
  EXPECT_EQ(book.share_used(0), 0u);
}

TEST(LeaseBook, AShareChangesWithinWhatIsFree) {
  LeaseBook book("box", {{16 * kGib, 0}, {16 * kGib, 0}});
  ASSERT_TRUE(book.grant(1, ask(2, 300'000, 0)).ok());
  ASSERT_TRUE(book.grant(2, ask(1, 500'000, 0)).ok());
  const auto refused = book.change(1, 600'000, 0);
  ASSERT_FALSE(refused.ok());
  EXPECT_NE(refused.status().message().find("at most 0.50"), std::string::npos)
      << refused.status().message();
  EXPECT_EQ(book.share_used(0), 800'000u);
  EXPECT_EQ(book.share_used(1), 300'000u);
  auto changed = book.change(1, 500'000, 0);
  ASSERT_TRUE(changed.ok());
  EXPECT_EQ((*changed)[1].share_millionths, 500'000u);
  EXPECT_EQ((*changed)[1].memory_bytes, 16 * kGib * 3 / 10 / (2 << 20) * (2 << 20));
  EXPECT_EQ(book.share_used(0), config::kWholeGpu);
  EXPECT_EQ(book.change(1, 0, 0).status().code(), base::Code::kInvalid);
  EXPECT_EQ(book.change(1, config::kWholeGpu + 1, 0).status().code(), base::Code::kInvalid);
  ASSERT_TRUE(book.change(2, 1, 0).ok());
  book.release(1);
  book.release(2);
  EXPECT_EQ(book.share_used(0) + book.share_used(1), 0u);
}

TEST(LeaseBook, MemoryChangesWithinWhatIsFree) {
  LeaseBook book("box", {{16 * kGib, kGib}, {16 * kGib, kGib}});
  ASSERT_TRUE(book.grant(1, ask(2, 300'000, 4 * kGib)).ok());
  ASSERT_TRUE(book.grant(2, ask(1, 500'000, 6 * kGib)).ok());
  const auto refused = book.change(1, 0, 11 * kGib);
  ASSERT_FALSE(refused.ok());
  EXPECT_NE(refused.status().message().find("at most 10"), std::string::npos)
      << refused.status().message();
  EXPECT_EQ(book.memory_promised(0) + book.memory_promised(1), 14 * kGib) << "all or none";
  EXPECT_EQ(book.change(1, 0, kGib).status().code(), base::Code::kInvalid) << "less than a process";
  EXPECT_FALSE(book.change(1, 600'000, 5 * kGib).ok()) << "the share does not fit";
  auto changed = book.change(1, 0, 10 * kGib);
  ASSERT_TRUE(changed.ok());
  EXPECT_EQ((*changed)[1].memory_bytes, 10 * kGib);
  EXPECT_EQ((*changed)[1].share_millionths, 300'000u);
  EXPECT_EQ(book.memory_promised(0), 16 * kGib);
  ASSERT_TRUE(book.change(1, 0, 3 * kGib).ok());
  EXPECT_TRUE(book.grant(3, ask(1, 100'000, 7 * kGib)).ok()) << "what it gave up is free";
  for (const uint64_t lease : {1, 2, 3}) book.release(lease);
  EXPECT_EQ(book.memory_promised(0) + book.memory_promised(1), 0u);
}

TEST(LeaseBook, TermsAreChecked) {
  LeaseBook book = two_gpus();
  wire::LeaseRequest request = ask(1, 300'000, 0);
  request.terms.priority = wire::kPriorityMax + 1;
  EXPECT_EQ(book.grant(1, request).status().code(), base::Code::kInvalid);
  request.terms.priority = INT32_MIN;
  EXPECT_EQ(book.grant(1, request).status().code(), base::Code::kInvalid);
  request.terms = {static_cast<wire::SharePolicy>(9), 0};
  EXPECT_EQ(book.grant(1, request).status().code(), base::Code::kInvalid);
  request.terms = {wire::SharePolicy::kCap, -wire::kPriorityMax};
  EXPECT_TRUE(book.grant(1, request).ok());
}

// Grants and releases at random. The sums never exceed what there is. A refused request really had
// no room.
TEST(LeaseBook, RandomSequencesAgainstAModel) {
  std::mt19937 random(7433);
  for (int round = 0; round < 50; ++round) {
    const uint32_t gpus = 1 + random() % 8;
    std::vector<GpuCapacity> capacities;
    for (uint32_t gpu = 0; gpu < gpus; ++gpu) {
      capacities.push_back({(4 + random() % 60) * kGib, random() % 3 * kGib / 2});
    }
    LeaseBook book("box", capacities);
    std::map<uint64_t, std::vector<wire::SliceGrant>> held;
    for (uint64_t id = 1; id < 200; ++id) {
      if (!held.empty() && random() % 3 == 0) {
        const auto victim = std::next(held.begin(), random() % held.size());
        book.release(victim->first);
        held.erase(victim);
      }
      const wire::LeaseRequest request = ask(1 + random() % gpus, 1 + random() % config::kWholeGpu,
                                             random() % 2 * (1 + random() % 20) * kGib);
      auto granted = book.grant(id, request);
      if (granted.ok()) held[id] = granted.take();
      std::vector<uint64_t> shares(gpus), memory(gpus);
      for (const auto& [lease, slices] : held) {
        std::vector<bool> seen(gpus);
        for (const wire::SliceGrant& slice : slices) {
          EXPECT_FALSE(seen[slice.gpu_index]);
          seen[slice.gpu_index] = true;
          shares[slice.gpu_index] += slice.share_millionths;
          memory[slice.gpu_index] += slice.memory_bytes;
        }
      }
      uint32_t room = 0;
      for (uint32_t gpu = 0; gpu < gpus; ++gpu) {
        ASSERT_LE(shares[gpu], config::kWholeGpu);
        ASSERT_LE(memory[gpu], capacities[gpu].memory_usable_bytes);
        ASSERT_EQ(book.share_used(gpu), shares[gpu]);
        ASSERT_EQ(book.memory_promised(gpu), memory[gpu]);
        const uint64_t share = request.slice.share_millionths,
                       usable = capacities[gpu].memory_usable_bytes;
        uint64_t wanted = request.slice.memory_bytes;
        if (wanted == 0)
          wanted = share == config::kWholeGpu ? usable
                                              : usable * share / config::kWholeGpu / kPage * kPage;
        room += shares[gpu] + share <= config::kWholeGpu && memory[gpu] + wanted <= usable &&
                wanted >= capacities[gpu].context_bytes + kPage;
      }
      if (!granted.ok()) {
        ASSERT_LT(room, request.count);
      }
    }
    for (const auto& [lease, slices] : held) book.release(lease);
    for (uint32_t gpu = 0; gpu < gpus; ++gpu)
      EXPECT_EQ(book.share_used(gpu) + book.memory_promised(gpu), 0u);
  }
}

}  // namespace
}  // namespace tendril::lease
