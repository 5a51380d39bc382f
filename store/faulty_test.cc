// SPDX-License-Identifier: Apache-2.0
// The suite of all stores through one that loses questions and answers, with a caller that repeats.
// TENDRIL_STORE_SEED replays a failure.
#include "store/testing/faulty.h"

#include <cstdio>

#include "base/text.h"
#include "store/sqlite.h"
#include "store/store_suite.h"
#include "store/testing/folder.h"
#include "store/testing/memory.h"

namespace tendril::store {

using base::Code;
using base::Deadline;

namespace {

uint64_t seed() {
  static const uint64_t chosen = [] {
    uint32_t other = 0;
    (void)base::random_bytes(&other, sizeof other);
    const uint32_t used = base::env_u32("TENDRIL_STORE_SEED", other);
    printf("TENDRIL_STORE_SEED=%u\n", used);
    return uint64_t{used};
  }();
  return chosen;
}

std::unique_ptr<Store> repeating(std::unique_ptr<Store> inner) {
  auto faulty = std::make_unique<FaultyStore>(std::move(inner), seed());
  Faults faults;
  faults.unavailable = faults.lost = 30;
  faulty->set(faults);
  return std::make_unique<RepeatingStore>(std::move(faulty));
}

class FaultyMemory : public World {
 public:
  std::unique_ptr<Store> open() override {
    return repeating(std::make_unique<MemoryStore>(state_));
  }

 private:
  std::shared_ptr<MemoryState> state_ = std::make_shared<MemoryState>();
};

class FaultySqlite : public World {
 public:
  std::unique_ptr<Store> open() override {
    auto opened = open_sqlite(folder_ / "pool.db");
    EXPECT_TRUE(opened.ok()) << opened.status().message();
    return opened.ok() ? repeating(opened.take()) : nullptr;
  }

 private:
  Folder folder_;
};

}  // namespace

INSTANTIATE_TEST_SUITE_P(
    Faulty, StoreSuite,
    testing::Values(Kind{"memory", [] { return std::make_unique<FaultyMemory>(); }},
                    Kind{"sqlite", [] { return std::make_unique<FaultySqlite>(); }}),
    kind_name);

TEST(Faulty, FailsAsItIsTold) {
  const auto state = std::make_shared<MemoryState>();
  FaultyStore store(std::make_unique<MemoryStore>(state), seed());
  const uint64_t term = store.campaign("one", 5000, Deadline(1000))->term;
  const auto write = [&](const char* key) {
    return store.write(term, {{key, "1", {}}}, Deadline(10));
  };
  Faults faults;
  faults.full = true;
  store.set(faults);
  EXPECT_EQ(write("a").code(), Code::kExhausted);
  EXPECT_TRUE(store.keep(term, Deadline(10)).ok());
  faults = {.away = true};
  store.set(faults);
  EXPECT_EQ(write("a").code(), Code::kUnavailable);
  EXPECT_EQ(store.keep(term, Deadline(10)).status().code(), Code::kUnavailable);
  faults = {.damaged = true};
  store.set(faults);
  EXPECT_EQ(write("a").code(), Code::kInternal);
  faults = {.lost = 100};
  store.set(faults);
  EXPECT_EQ(write("b").code(), Code::kTimeout);
  faults = {.late = 100, .late_ms = 30};
  store.set(faults);
  EXPECT_EQ(write("c").code(), Code::kTimeout);  // later than its deadline
  store.set({});
  EXPECT_EQ(store.get("a", Deadline(10)).status().code(), Code::kNotFound);
  EXPECT_TRUE(store.get("b", Deadline(10)).ok());
  EXPECT_TRUE(store.get("c", Deadline(10)).ok());
  EXPECT_EQ(store.calls(), 11u);
}

}  // namespace tendril::store
