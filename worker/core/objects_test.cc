// SPDX-License-Identifier: Apache-2.0
// Tables of objects against hostile ids, what ends with what, and a session's part of the machine.
#include "worker/core/objects.h"

#include <gtest/gtest.h>

#include <map>
#include <random>

#include "worker/core/host_use.h"

namespace tendril::worker {
namespace {

enum class Kind : uint8_t { kNone, kPlain, kReturned, kEnding, kCount };
constexpr api::KindTraits kTraits[] = {{nullptr, false, false},
                                       {"plain", false, false},
                                       {"returned", true, false},
                                       {"ending", true, true}};
using Tables = ObjectTables<Kind>;

uint64_t id(Kind kind, uint32_t index, uint32_t generation = 1) {
  return api::make_id(kind, 0, generation, index);
}
void* object(uint64_t number) { return reinterpret_cast<void*>(number << 4); }

TEST(Objects, TakesNoMemoryForTheNumbersThatAClientChooses) {
  ObjectTable table;
  uint32_t bound = 0;
  for (uint32_t index = api::kIndexMax - 1; index > 1000; index /= 2, ++bound)
    EXPECT_TRUE(table.bind(kTraits[1], id(Kind::kPlain, index), object(index)));
  EXPECT_LE(table.room(), 5000u) << bound << " objects";
  for (uint32_t index = api::kIndexMax - 1; index > 1000; index /= 2)
    EXPECT_EQ(table.find(id(Kind::kPlain, index)), object(index));
}

TEST(Objects, FindsWhatAClientThatCountsUpHasBound) {
  ObjectTable table;
  EXPECT_TRUE(table.bind(kTraits[1], id(Kind::kPlain, 300'000), object(7))) << "far ahead";
  for (uint32_t index = 1; index < 200'000; ++index)
    ASSERT_TRUE(table.bind(kTraits[1], id(Kind::kPlain, index), object(index)));
  EXPECT_EQ(table.find(id(Kind::kPlain, 300'000)), object(7));
  EXPECT_FALSE(table.bind(kTraits[1], id(Kind::kPlain, 300'000, 2), object(8)));
  EXPECT_EQ(table.taken_by(id(Kind::kPlain, 300'000, 2)), id(Kind::kPlain, 300'000));
  for (uint32_t index = 1; index < 200'000; ++index)
    ASSERT_EQ(table.find(id(Kind::kPlain, index)), object(index));
}

TEST(Objects, AnswersLikeAMapForAnyOrderOfCalls) {
  std::mt19937 random(11);
  Tables tables(kTraits);
  std::map<uint64_t, void*> model;
  for (int i = 0; i < 200'000; ++i) {
    const uint32_t wide = random() % 3 == 0 ? api::kIndexMax - 1 : 64;
    const uint64_t one = id(Kind::kPlain, 1 + random() % wide, 1 + random() % 2);
    const auto known = model.find(one);
    if (random() % 2 == 0) {
      const uint64_t twin = id(Kind::kPlain, api::id_index(one), 3 - (one >> 32 & 3));
      const bool may = known == model.end() && model.count(twin) == 0;
      ASSERT_EQ(tables.may_bind(Kind::kPlain, one), may);
      ASSERT_EQ(tables.bind(Kind::kPlain, one, object(i + 1u)), may);
      if (may) model[one] = object(i + 1u);
    } else {
      ASSERT_EQ(tables.unbind(Kind::kPlain, one), known != model.end() ? known->second : nullptr);
      if (known != model.end()) model.erase(known);
    }
    ASSERT_EQ(tables.find(Kind::kPlain, one), model.count(one) != 0 ? model[one] : nullptr);
  }
}

TEST(Objects, RefusesMoreThanItsBound) {
  Tables tables(kTraits, 3);
  EXPECT_TRUE(tables.bind(Kind::kPlain, id(Kind::kPlain, 1), object(1)));
  EXPECT_TRUE(tables.bind(Kind::kReturned, id(Kind::kReturned, 1), object(2)));
  EXPECT_NE(tables.id_of(Kind::kReturned, object(3)), 0u);
  EXPECT_TRUE(tables.full());
  EXPECT_FALSE(tables.bind(Kind::kPlain, id(Kind::kPlain, 2), object(4)));
  EXPECT_EQ(tables.id_of(Kind::kReturned, object(5)), 0u);
  EXPECT_NE(tables.id_of(Kind::kReturned, object(3)), 0u) << "it has one";
  EXPECT_FALSE(tables.add_nameless());
  tables.unbind(Kind::kPlain, id(Kind::kPlain, 1));
  EXPECT_TRUE(tables.add_nameless());
  EXPECT_TRUE(tables.full());
}

TEST(Objects, EndsWhatAnObjectOwns) {
  Tables tables(kTraits);
  const uint64_t graph = id(Kind::kReturned, 1), node = id(Kind::kReturned, 2),
                 other = id(Kind::kReturned, 3);
  tables.bind(Kind::kReturned, graph, object(1), object(1));
  tables.bind(Kind::kReturned, node, object(2), object(1));
  const uint64_t child = tables.id_of(Kind::kReturned, object(3), object(2));
  const uint64_t inner = tables.id_of(Kind::kReturned, object(4), object(3));
  tables.bind(Kind::kReturned, other, object(5), object(6));
  std::map<uint64_t, void*> ended;
  tables.unbind(Kind::kReturned, graph);
  tables.end(object(1), [&](Kind, uint64_t gone, void* what) { ended[gone] = what; });
  EXPECT_EQ(ended,
            (std::map<uint64_t, void*>{{node, object(2)}, {child, object(3)}, {inner, object(4)}}));
  EXPECT_EQ(tables.find(Kind::kReturned, inner), nullptr);
  EXPECT_FALSE(tables.knows(Kind::kReturned, object(4))) << "the driver may use the handle again";
  EXPECT_EQ(tables.find(Kind::kReturned, other), object(5));
  EXPECT_EQ(tables.owner(other), object(6));
}

TEST(Objects, CountsWhatHasLostItsNameUntilItsOwnerEnds) {
  Tables tables(kTraits, 4);
  for (uint32_t generation = 1; generation <= 4; ++generation)
    EXPECT_TRUE(tables.bind(Kind::kEnding, id(Kind::kEnding, 1, generation), object(generation),
                            object(9)));
  EXPECT_FALSE(tables.bind(Kind::kEnding, id(Kind::kEnding, 1, 5), object(5), object(9)));
  int ended = 0;
  tables.end(object(9), [&](Kind, uint64_t, void*) { ++ended; });
  EXPECT_EQ(ended, 1);
  for (uint32_t index = 1; index <= 4; ++index)
    EXPECT_TRUE(tables.bind(Kind::kPlain, id(Kind::kPlain, index), object(index)));
}

TEST(Objects, EndsWhatBelongsToOneThatHasLostItsName) {
  Tables tables(kTraits);
  tables.bind(Kind::kEnding, id(Kind::kEnding, 1), object(1), object(9));
  const uint64_t level = tables.id_of(Kind::kReturned, object(2), object(1));
  tables.bind(Kind::kEnding, id(Kind::kEnding, 1, 2), object(3), object(9));
  EXPECT_EQ(tables.find(Kind::kReturned, level), object(2));
  tables.end(object(9), [](Kind, uint64_t, void*) {});
  EXPECT_EQ(tables.find(Kind::kReturned, level), nullptr);
}

TEST(HostUse, ASliceHasItsPartOfTheMachine) {
  wire::Assignment assignment{};
  assignment.slice_count = 1;
  assignment.slices[0].share_millionths = 250'000;
  const uint64_t gib = uint64_t{1} << 30;
  EXPECT_EQ(host_bounds(assignment, 8, 1024 * gib).bytes >> 30, 15u);  // rounded down
  EXPECT_EQ(host_bounds(assignment, 8, 8 * gib).bytes, gib / 2) << "enough for staging";
  EXPECT_GT(host_bounds(assignment, 0, 0).bytes, 1024 * gib) << "unknown";
  EXPECT_EQ(host_bounds(assignment, 1, gib).objects, (256u << 10) + (512u << 10));
  assignment.slice_count = wire::kSlicesMax + 7;  // made up
  host_bounds(assignment, 1, gib);

  HostUse use(100);
  EXPECT_TRUE(use.take(60));
  EXPECT_FALSE(use.take(41));
  EXPECT_FALSE(use.take(UINT64_MAX));
  EXPECT_TRUE(use.take(40));
  use.give_back(100);
  EXPECT_TRUE(use.take(100));
}

}  // namespace
}  // namespace tendril::worker
