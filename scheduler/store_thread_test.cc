// SPDX-License-Identifier: Apache-2.0
// The store's thread: elections, recovery, batches in order, and a store that fails.
#include "scheduler/store_thread.h"

#include <gtest/gtest.h>

#include <functional>

#include "store/testing/memory.h"

namespace tendril::scheduler {
namespace {

using base::Code;
using base::Status;

// Notes what it hears.
class Ears final : public StoreEvents {
 public:
  void elected(uint64_t term, uint64_t, Records records) override {
    std::lock_guard<std::mutex> hold(mutex);
    terms.push_back(term);
    recovered = std::move(records);
    changed.notify_all();
  }
  void certain(uint64_t, uint64_t) override {
    std::lock_guard<std::mutex> hold(mutex);
    ++certainties;
    changed.notify_all();
  }
  void deposed(uint64_t, const std::string&) override {
    std::lock_guard<std::mutex> hold(mutex);
    ++depositions;
    changed.notify_all();
  }
  void other(const std::string& text) override {
    std::lock_guard<std::mutex> hold(mutex);
    holder = text;
    changed.notify_all();
  }
  void stored(uint64_t, uint64_t batch, const Status& status) override {
    std::lock_guard<std::mutex> hold(mutex);
    if (status.ok())
      last_stored = batch;
    else
      ++failures;
    changed.notify_all();
  }
  bool await(const std::function<bool()>& reached) {
    std::unique_lock<std::mutex> hold(mutex);
    return changed.wait_for(hold, std::chrono::seconds(10), reached);
  }

  std::mutex mutex;
  std::condition_variable changed;
  std::vector<uint64_t> terms;
  Records recovered;
  std::string holder;
  int certainties = 0, depositions = 0, failures = 0;
  uint64_t last_stored = 0;
};

// Fails writes while it is told to.
class Moody final : public store::MemoryStore {
 public:
  Moody(std::shared_ptr<store::MemoryState> state, std::atomic<int>* failures)
      : MemoryStore(std::move(state)), failures_(failures) {}
  Status write(uint64_t term, const std::vector<store::Change>& changes,
               const base::Deadline& deadline) override {
    if (failures_->fetch_sub(1) > 0) return Status(Code::kUnavailable, "no quorum");
    return MemoryStore::write(term, changes, deadline);
  }

 private:
  std::atomic<int>* const failures_;
};

StoreThreadOptions quick(const char* holder) {
  StoreThreadOptions options;
  options.holder = holder;
  options.ttl_ms = 2000;
  options.campaign_every_ms = 10;
  options.retry_first_ms = 5;
  options.retry_most_ms = 20;
  return options;
}

pool::Batch batch(uint64_t number, std::vector<pool::Write> writes) {
  pool::Batch batch;
  batch.number = number;
  batch.writes = std::move(writes);
  return batch;
}

class StoreThreadTest : public testing::Test {
 protected:
  std::string value(const std::string& key) {
    std::lock_guard<std::mutex> hold(state_->mutex);
    const auto found = state_->entries.find(key);
    return found == state_->entries.end() ? "(none)" : found->second.value;
  }

  std::shared_ptr<store::MemoryState> state_ = std::make_shared<store::MemoryState>();
};

TEST_F(StoreThreadTest, OneIsElectedAndTheNextOneRecovers) {
  Ears first_ears, second_ears;
  StoreThread first(std::make_unique<store::MemoryStore>(state_), quick("pool1 a:1"), &first_ears);
  first.start();
  ASSERT_TRUE(first_ears.await([&] { return first_ears.terms.size() == 1; }));
  StoreThread second(std::make_unique<store::MemoryStore>(state_), quick("pool2 b:2"),
                     &second_ears);
  second.start();
  ASSERT_TRUE(second_ears.await([&] { return second_ears.holder == "pool1 a:1"; }));
  first.write(first_ears.terms[0], batch(1, {{"pool/a", "1"}, {"used/x", "{}"}}));
  ASSERT_TRUE(first_ears.await([&] { return first_ears.last_stored == 1; }));
  first.stop();
  ASSERT_TRUE(second_ears.await([&] { return second_ears.terms.size() == 1; }));
  EXPECT_GT(second_ears.terms[0], first_ears.terms[0]);
  ASSERT_EQ(second_ears.recovered.size(), 1u);  // what is below used/ is not read back
  EXPECT_EQ(second_ears.recovered[0].first, "pool/a");
}

TEST_F(StoreThreadTest, BatchesKeepTheirOrderAlsoWhenTheStoreFails) {
  std::atomic<int> failures{0};
  Ears ears;
  StoreThread thread(std::make_unique<Moody>(state_, &failures), quick("pool1 a:1"), &ears);
  thread.start();
  ASSERT_TRUE(ears.await([&] { return !ears.terms.empty(); }));
  failures = 3;
  for (uint64_t number = 1; number <= 300; ++number) {
    const std::string text = std::to_string(number);
    thread.write(ears.terms[0], batch(number, {{"pool/last", text}, {"pool/" + text, text}}));
  }
  ASSERT_TRUE(ears.await([&] { return ears.last_stored == 300; }));
  EXPECT_GE(ears.failures, 3);
  EXPECT_EQ(value("pool/last"), "300");
  EXPECT_EQ(value("pool/1"), "1");
  thread.write(ears.terms[0], batch(301, {{"pool/1", std::nullopt}}));
  ASSERT_TRUE(ears.await([&] { return ears.last_stored == 301; }));
  EXPECT_EQ(value("pool/1"), "(none)");
}

TEST_F(StoreThreadTest, WhoWasDeposedWritesNothingAndCampaignsAgain) {
  Ears ears;
  StoreThread thread(std::make_unique<store::MemoryStore>(state_), quick("pool1 a:1"), &ears);
  thread.start();
  ASSERT_TRUE(ears.await([&] { return ears.terms.size() == 1; }));
  {
    std::lock_guard<std::mutex> hold(state_->mutex);
    state_->holder_id = 999;  // another has it
    ++state_->term;
    state_->holder = "pool2 b:2";
    state_->expires_ns = base::now_ns() + 300'000'000;
  }
  thread.write(ears.terms[0], batch(1, {{"pool/a", "late"}}));
  ASSERT_TRUE(ears.await([&] { return ears.depositions == 1; }));
  EXPECT_EQ(value("pool/a"), "(none)");
  ASSERT_TRUE(ears.await([&] { return ears.terms.size() == 2; }));
  thread.write(ears.terms[0], batch(2, {{"pool/a", "old"}}));
  thread.write(ears.terms[1], batch(1, {{"pool/a", "new"}}));
  ASSERT_TRUE(ears.await([&] { return ears.last_stored == 1; }));
  EXPECT_EQ(value("pool/a"), "new");
}

TEST_F(StoreThreadTest, KeepsTheLock) {
  Ears ears;
  StoreThread thread(std::make_unique<store::MemoryStore>(state_), quick("pool1 a:1"), &ears);
  thread.start();
  EXPECT_TRUE(ears.await([&] { return ears.certainties >= 2; }));
  EXPECT_EQ(ears.terms.size(), 1u);
}

}  // namespace
}  // namespace tendril::scheduler
