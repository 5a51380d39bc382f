// SPDX-License-Identifier: Apache-2.0
// The suite of all stores on the one in memory, and that its lock expires.
#include "store/testing/memory.h"

#include "store/store_suite.h"

namespace tendril::store {

namespace {

class MemoryWorld : public World {
 public:
  std::unique_ptr<Store> open() override { return std::make_unique<MemoryStore>(state_); }

 private:
  std::shared_ptr<MemoryState> state_ = std::make_shared<MemoryState>();
};

}  // namespace

INSTANTIATE_TEST_SUITE_P(Memory, StoreSuite,
                         testing::Values(Kind{"memory",
                                              [] { return std::make_unique<MemoryWorld>(); }}),
                         kind_name);

TEST(Memory, TheLockExpires) {
  const auto state = std::make_shared<MemoryState>();
  uint64_t now_ns = 1;
  state->now_ns = [&now_ns] { return now_ns; };
  MemoryStore one(state), two(state);
  const base::Deadline soon(1000);
  const uint64_t term = one.campaign("one", 2000, soon)->term;
  now_ns += 1'999'000'000;
  EXPECT_TRUE(one.keep(term, soon).ok());
  now_ns += 1'999'000'000;
  EXPECT_FALSE(two.campaign("two", 2000, soon)->mine);
  now_ns += 1'000'000;
  EXPECT_EQ(one.keep(term, soon).status().code(), base::Code::kRefused);
  EXPECT_TRUE(two.campaign("two", 2000, soon)->mine);
  EXPECT_EQ(one.write(term, {{"a", "1", {}}}, soon).code(), base::Code::kRefused);
}

}  // namespace tendril::store
