// SPDX-License-Identifier: Apache-2.0
// See store_suite.h.
#include "store/store_suite.h"

namespace tendril::store {

using base::Code;

namespace {

Change put(const std::string& key, const std::string& value) { return {key, value, {}}; }
Change erase(const std::string& key) { return {key, {}, {}}; }

std::string keys(const Page& page) {
  std::string all;
  for (const Entry& entry : page.entries) all += (all.empty() ? "" : " ") + entry.key;
  return all + (page.more ? " ..." : "");
}

}  // namespace

void StoreSuite::SetUp() {
  world_ = GetParam().make();
  if (world_ == nullptr) GTEST_SKIP() << GetParam().name << " cannot be had on this machine";
}

uint64_t StoreSuite::elect(Store& store, const std::string& holder) {
  auto found = store.campaign(holder, 5000, soon());
  EXPECT_TRUE(found.ok()) << found.status().message();
  if (!found.ok()) return 0;
  EXPECT_TRUE(found->held && found->mine) << found->holder;
  EXPECT_EQ(found->holder, holder);
  EXPECT_GT(found->certain_until_ns, base::now_ns());
  return found->term;
}

TEST_P(StoreSuite, KeepsWhatWasWritten) {
  const auto store = world_->open();
  EXPECT_EQ(store->get("a", soon()).status().code(), Code::kNotFound);
  const uint64_t term = elect(*store);
  std::string every_byte;
  for (int byte = 0; byte < 256; ++byte) every_byte += char(byte);
  ASSERT_TRUE(
      store->write(term, {put("a", "1"), put("b\xff", every_byte), put("c", "")}, soon()).ok());
  const auto other = world_->open();  // what one writes, another reads at once
  auto a = other->get("a", soon());
  ASSERT_TRUE(a.ok()) << a.status().message();
  EXPECT_EQ(a->value, "1");
  EXPECT_GT(a->revision, 0u);
  EXPECT_EQ(other->get("b\xff", soon())->value, every_byte);
  EXPECT_EQ(other->get("c", soon())->value, "");

  ASSERT_TRUE(store->write(term, {put("a", "2"), erase("c"), erase("never there")}, soon()).ok());
  EXPECT_EQ(store->get("a", soon())->value, "2");
  EXPECT_GT(store->get("a", soon())->revision, a->revision);
  EXPECT_EQ(store->get("c", soon()).status().code(), Code::kNotFound);
}

TEST_P(StoreSuite, ListsByPrefixInPages) {
  const auto store = world_->open();
  const uint64_t term = elect(*store);
  std::vector<Change> changes = {put("lease", "x"), put("lease0", "x"), put("leas", "x")};
  for (const char* key : {"lease/1", "lease/2", "lease/20", "lease/3", "lease/\xff"})
    changes.push_back(put(key, key));
  ASSERT_TRUE(store->write(term, changes, soon()).ok());
  EXPECT_EQ(keys(*store->list("lease/", "", 10, soon())),
            "lease/1 lease/2 lease/20 lease/3 lease/\xff");
  EXPECT_EQ(keys(*store->list("lease/", "", 2, soon())), "lease/1 lease/2 ...");
  EXPECT_EQ(keys(*store->list("lease/", "lease/2", 2, soon())), "lease/20 lease/3 ...");
  EXPECT_EQ(keys(*store->list("lease/", "lease/3", 2, soon())), "lease/\xff");
  EXPECT_EQ(keys(*store->list("lease/", "a", 1, soon())), "lease/1 ...");
  EXPECT_EQ(keys(*store->list("lease/", "z", 1, soon())), "");
  EXPECT_EQ(keys(*store->list("none/", "", 1, soon())), "");
  EXPECT_EQ(store->list("", "", 1000, soon())->entries.size(), 8u);
  EXPECT_EQ(store->list("lease/", "", 1, soon())->entries[0].value, "lease/1");
  EXPECT_EQ(store->list("", "", 0, soon()).status().code(), Code::kInvalid);
  auto all = list_all(*store, "lease/", soon());
  ASSERT_TRUE(all.ok());
  EXPECT_EQ(all->size(), 5u);
}

TEST_P(StoreSuite, WritesAllOrNothing) {
  const auto store = world_->open();
  const uint64_t term = elect(*store);
  ASSERT_TRUE(store->write(term, {put("policy", "one")}, soon()).ok());
  const uint64_t revision = store->get("policy", soon())->revision;
  const auto change = [&](uint64_t expected, const std::string& value) {
    return store->write(term, {put("side", value), {"policy", value, expected}}, soon());
  };
  EXPECT_EQ(change(revision + 1, "two").code(), Code::kMismatch);
  EXPECT_EQ(change(0, "two").code(), Code::kMismatch);
  EXPECT_EQ(store->get("side", soon()).status().code(), Code::kNotFound);
  EXPECT_EQ(store->get("policy", soon())->value, "one");
  EXPECT_TRUE(change(revision, "two").ok());
  EXPECT_EQ(store->get("side", soon())->value, "two");
  EXPECT_TRUE(store->write(term, {{"new", "x", 0}}, soon()).ok());
  EXPECT_EQ(store->write(term, {{"new", "y", 0}}, soon()).code(), Code::kMismatch);
  EXPECT_EQ(store->get("new", soon())->value, "x");
}

TEST_P(StoreSuite, AWriteMayBeRepeated) {
  const auto store = world_->open();
  const uint64_t term = elect(*store);
  ASSERT_TRUE(store->write(term, {put("old", "x")}, soon()).ok());
  const uint64_t revision = store->get("old", soon())->revision;
  const std::vector<Change> changes = {{"a", "1", 0}, {"old", {}, revision}, put("b", "2")};
  EXPECT_TRUE(store->write(term, changes, soon()).ok());
  EXPECT_TRUE(store->write(term, changes, soon()).ok());
  EXPECT_EQ(store->list("", "", 10, soon())->entries.size(), 2u);
}

TEST_P(StoreSuite, OneHolderAtATime) {
  const auto one = world_->open(), two = world_->open();
  EXPECT_FALSE(one->leader(soon())->held);
  const uint64_t first = elect(*one, "one:7201");
  EXPECT_GT(first, 0u);
  auto seen = two->campaign("two:7201", 5000, soon());
  ASSERT_TRUE(seen.ok()) << seen.status().message();
  EXPECT_TRUE(seen->held);
  EXPECT_FALSE(seen->mine);
  EXPECT_EQ(seen->holder, "one:7201");
  EXPECT_EQ(seen->term, first);
  EXPECT_EQ(two->leader(soon())->holder, "one:7201");

  auto again = one->campaign("one:7201", 5000, soon());
  ASSERT_TRUE(again.ok());
  EXPECT_TRUE(again->mine);
  EXPECT_EQ(again->term, first);
  auto kept = one->keep(first, soon());
  ASSERT_TRUE(kept.ok()) << kept.status().message();
  EXPECT_TRUE(kept->mine);
  EXPECT_GE(kept->certain_until_ns, again->certain_until_ns);

  ASSERT_TRUE(one->resign(first, soon()).ok());
  EXPECT_TRUE(one->resign(first, soon()).ok());  // a second time changes nothing
  EXPECT_FALSE(two->leader(soon())->held);
  const uint64_t second = elect(*two, "two:7201");
  EXPECT_GT(second, first);
}

TEST_P(StoreSuite, WhoWasDeposedCannotWrite) {
  const auto one = world_->open(), two = world_->open();
  EXPECT_EQ(one->write(1, {put("a", "1")}, soon()).code(), Code::kRefused);
  const uint64_t first = elect(*one, "one");
  ASSERT_TRUE(one->write(first, {put("a", "1")}, soon()).ok());
  ASSERT_TRUE(one->resign(first, soon()).ok());
  EXPECT_EQ(one->write(first, {put("a", "2")}, soon()).code(), Code::kRefused);
  const uint64_t second = elect(*two, "two");
  const auto refused = one->write(first, {put("a", "3")}, soon());
  EXPECT_EQ(refused.code(), Code::kRefused);
  EXPECT_NE(refused.message().find("two"), std::string::npos) << refused.message();
  EXPECT_EQ(one->keep(first, soon()).status().code(), Code::kRefused);
  EXPECT_TRUE(one->resign(first, soon()).ok());
  EXPECT_TRUE(two->keep(second, soon()).ok());
  EXPECT_TRUE(two->write(second, {put("b", "1")}, soon()).ok());
  EXPECT_EQ(two->get("a", soon())->value, "1");
}

TEST_P(StoreSuite, AStoreThatIsClosedGivesTheLockBack) {
  auto one = world_->open();
  const uint64_t first = elect(*one);
  one.reset();
  const auto two = world_->open();
  EXPECT_GT(elect(*two, "two"), first);
}

TEST_P(StoreSuite, KeepsTheLimits) {
  const auto store = world_->open();
  const uint64_t term = elect(*store);
  std::vector<Change> changes;
  for (size_t i = 0; i < kChangesMax; ++i)
    changes.push_back(put("many/" + std::to_string(1000 + i), std::string(500, 'x')));
  EXPECT_TRUE(store->write(term, changes, soon()).ok());
  auto page = store->list("many/", "", kPageEntriesMax, soon());
  ASSERT_TRUE(page.ok()) << page.status().message();
  EXPECT_EQ(page->entries.size(), kChangesMax);
  changes.push_back(put("one more", "x"));
  EXPECT_EQ(store->write(term, changes, soon()).code(), Code::kInvalid);
  const std::string large(kValueBytesMax, '\xff');
  EXPECT_TRUE(
      store->write(term, {put("l1", large), put("l2", large.substr(0, 200'000))}, soon()).ok());
  EXPECT_EQ(store->get("l1", soon())->value, large);
  EXPECT_EQ(store->write(term, {put("l3", large + "x")}, soon()).code(), Code::kInvalid);
  EXPECT_EQ(store->write(term, {put("l1", large), put("l2", large)}, soon()).code(),
            Code::kInvalid);
  const std::string long_key(kKeyBytesMax, 'k');
  EXPECT_TRUE(store->write(term, {put(long_key, "x")}, soon()).ok());
  EXPECT_EQ(store->get(long_key, soon())->value, "x");
  EXPECT_EQ(store->write(term, {put(long_key + "k", "x")}, soon()).code(), Code::kInvalid);
  EXPECT_EQ(store->write(term, {}, soon()).code(), Code::kInvalid);
  EXPECT_EQ(store->write(term, {put("a", "1"), erase("a")}, soon()).code(), Code::kInvalid);
  EXPECT_EQ(store->get("", soon()).status().code(), Code::kInvalid);
  EXPECT_EQ(store->campaign("x", 100, soon()).status().code(), Code::kInvalid);
}

}  // namespace tendril::store
