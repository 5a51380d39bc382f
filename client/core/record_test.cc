// SPDX-License-Identifier: Apache-2.0
// Handles lead to their records, and to nothing once the records are gone, for any API's kinds.
#include "client/core/record.h"

#include <gtest/gtest.h>

#include <vector>

namespace tendril::client::core {
namespace {

enum class Kind : uint8_t { kNone, kThing, kOther };

struct Thing : Record {
  int value = 0;
};

// Tables free nothing. This list keeps them reachable, so that they do not count as leaked.
Table<Thing>* new_table() {
  static std::vector<Table<Thing>*>* const all = new std::vector<Table<Thing>*>;
  all->push_back(new Table<Thing>);
  return all->back();
}

Thing* create(Table<Thing>* table, int value) {
  return table->create(Kind::kThing, 3, [&](Thing* thing) { thing->value = value; });
}

TEST(Table, FindsByHandleAndKind) {
  Table<Thing>* table = new_table();
  Thing* thing = create(table, 7);
  ASSERT_NE(thing, nullptr);
  EXPECT_EQ(thing->wire_id, thing->handle.load());
  EXPECT_EQ(table->find(Kind::kThing, thing->handle.load()), thing);
  EXPECT_EQ(table->find(Kind::kOther, thing->handle.load()), nullptr);
  EXPECT_EQ(table->find(Kind::kThing, 0), nullptr);
  EXPECT_EQ(table->find(Kind::kThing, ~uint64_t{0}), nullptr);
}

TEST(Table, AnOldHandleFindsNothingAfterReuse) {
  Table<Thing>* table = new_table();
  Thing* thing = create(table, 1);
  const uint64_t old = thing->handle.load();
  table->destroy(thing);
  EXPECT_EQ(table->find(Kind::kThing, old), nullptr);
  Thing* next = create(table, 2);
  EXPECT_EQ(next, thing);  // the record is used again
  EXPECT_NE(next->handle.load(), old);
  EXPECT_EQ(table->find(Kind::kThing, old), nullptr);
}

TEST(Table, VisitsTheLiving) {
  Table<Thing>* table = new_table();
  for (int value = 0; value < 600; ++value) create(table, value);  // more than one chunk
  table->for_each([&](Thing* thing) {
    if (thing->value % 2 == 0) table->destroy(thing);
  });
  int living = 0;
  table->for_each([&](Thing* thing) { living += thing->value % 2; });
  EXPECT_EQ(living, 300);
}

}  // namespace
}  // namespace tendril::client::core
