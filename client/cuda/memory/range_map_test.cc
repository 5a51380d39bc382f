// SPDX-License-Identifier: Apache-2.0
// The map of ranges: overlaps, and reservations with mappings in them.
#include "client/cuda/memory/range_map.h"

#include <gtest/gtest.h>

namespace tendril::client::cuda {
namespace {

Range range(uint64_t base, uint64_t bytes, RangeKind kind = RangeKind::kDevice) {
  Range r;
  r.base = base;
  r.bytes = bytes;
  r.kind = kind;
  return r;
}

TEST(RangeMap, RefusesOverlaps) {
  RangeMap map;
  EXPECT_TRUE(map.insert(range(100, 50)));
  EXPECT_FALSE(map.insert(range(149, 1)));
  EXPECT_FALSE(map.insert(range(50, 51)));
  EXPECT_FALSE(map.insert(range(50, 200)));
  EXPECT_TRUE(map.insert(range(150, 10)));
  EXPECT_TRUE(map.insert(range(50, 50)));
  Range found;
  EXPECT_TRUE(map.find(149, &found));
  EXPECT_EQ(found.base, 100u);
  EXPECT_FALSE(map.find(160, &found));
}

TEST(RangeMap, MappingsLieInReservations) {
  RangeMap map;
  ASSERT_TRUE(map.insert(range(1000, 400, RangeKind::kReserved)));
  EXPECT_FALSE(map.insert(range(1100, 10)));  // an allocation does not
  ASSERT_TRUE(map.insert(range(1100, 100, RangeKind::kMapped)));
  ASSERT_TRUE(map.insert(range(1200, 100, RangeKind::kMapped)));
  EXPECT_FALSE(map.insert(range(1250, 10, RangeKind::kMapped)));
  Range found;
  ASSERT_TRUE(map.find(1150, &found));
  EXPECT_EQ(found.kind, RangeKind::kMapped);
  ASSERT_TRUE(map.find(1050, &found));
  EXPECT_EQ(found.kind, RangeKind::kReserved);
  EXPECT_TRUE(map.find_reserved(1300, 100, &found));
  EXPECT_FALSE(map.find_reserved(1300, 101, &found));
  EXPECT_FALSE(map.remove(1000, &found));  // a reservation goes by its own name
  EXPECT_FALSE(map.remove_reserved(1000));
  std::vector<Range> pieces;
  EXPECT_TRUE(map.mapped(1100, 200, &pieces));
  EXPECT_EQ(pieces.size(), 2u);
  EXPECT_FALSE(map.mapped(1100, 150, &pieces));
  EXPECT_FALSE(map.mapped(1000, 200, &pieces));
  EXPECT_FALSE(map.mapped(1100, 300, &pieces));
  EXPECT_TRUE(map.remove(1100, &found));
  EXPECT_TRUE(map.remove(1200, &found));
  EXPECT_TRUE(map.remove_reserved(1000));
  EXPECT_FALSE(map.find(1000, &found));
}

TEST(RangeMap, MappingsOutliveAContext) {
  RangeMap map;
  Context* const gone = reinterpret_cast<Context*>(16);
  Context* const primary = reinterpret_cast<Context*>(32);
  Range plain = range(100, 10), mapped = range(200, 10, RangeKind::kMapped);
  plain.context = mapped.context = gone;
  ASSERT_TRUE(map.insert(plain));
  ASSERT_TRUE(map.insert(mapped));
  map.remove_context(gone, primary);
  Range found;
  EXPECT_FALSE(map.find(100, &found));
  ASSERT_TRUE(map.find(200, &found));
  EXPECT_EQ(found.context, primary);
}

// A driver uses addresses of graphs again, whole or in parts; what else lies in the way stays.
TEST(RangeMap, MemoryOfGraphsGivesWay) {
  RangeMap map;
  Session* const session = reinterpret_cast<Session*>(16);
  Range first = range(1000, 100, RangeKind::kGraph), second = range(1050, 20, RangeKind::kGraph);
  first.session = second.session = session;
  ASSERT_TRUE(map.insert_graph(first));
  ASSERT_TRUE(map.insert_graph(second));
  Range found;
  EXPECT_FALSE(map.find(1000, &found));
  ASSERT_TRUE(map.find(1060, &found));
  EXPECT_EQ(found.base, 1050u);
  ASSERT_TRUE(map.insert(range(1200, 10)));
  first.base = 1150;
  EXPECT_FALSE(map.insert_graph(first));
  map.remove_graph(reinterpret_cast<Session*>(32), 0, 2000);  // of another server
  EXPECT_TRUE(map.find(1060, &found));
  map.remove_graph(session, 1065, 1);
  EXPECT_FALSE(map.find(1060, &found));
  EXPECT_TRUE(map.find(1205, &found));
}

TEST(RangeMap, OnlyPartsLieInAPage) {
  RangeMap map;
  constexpr uint64_t kPage = 0x200000;
  ASSERT_TRUE(map.insert_page(kPage, kPage));
  EXPECT_FALSE(map.insert_page(kPage + 0x1000, 0x1000));
  EXPECT_FALSE(map.insert(range(kPage + 0x1000, 0x1000))) << "memory of another server";
  Range part = range(kPage + 0x1000, 0x1000);
  part.part = true;
  EXPECT_TRUE(map.insert(part));
  EXPECT_FALSE(map.insert(part)) << "parts do not overlap";
  Range found;
  EXPECT_FALSE(map.find(kPage, &found)) << "a page is no memory of the program's";
  map.remove_page(kPage);
  EXPECT_TRUE(map.insert(range(kPage, 0x1000)));
}

}  // namespace
}  // namespace tendril::client::cuda
