// SPDX-License-Identifier: Apache-2.0
// The store's thread: elections, recovery, batches in order, and a store that fails.
#include "scheduler/store_thread.h"

#include <gtest/gtest.h>
#include <time.h>
#include <unistd.h>

#include <functional>
#include <map>

#include "store/open.h"
#include "store/testing/etcd_cluster.h"
#include "store/testing/faulty.h"
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
  bool await(const std::function<bool()>& reached, int seconds = 10) {
    std::unique_lock<std::mutex> hold(mutex);
    return changed.wait_for(hold, std::chrono::seconds(seconds), reached);
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

// What is old goes, in pieces, and a store that fails loses nothing else.
TEST_F(StoreThreadTest, OldRecordsAndOldChunksAreErased) {
  const int64_t now_s = time(nullptr);
  const auto record_of = [](int64_t ended_at) {
    pool::UsedRecord record;
    record.server = "gpu1";
    record.ended_at = ended_at;
    return pool::used_json(record);
  };
  std::vector<pool::Write> writes = {{"used/damaged", "{"}, {"used/new", record_of(now_s)}};
  const auto chunk = [&](const std::string& tier, int64_t age_s) {
    writes.push_back({pool::chunk_key(tier, uint64_t(now_s - age_s) * 1'000'000'000), "chunk"});
  };
  for (int i = 0; i < 30; ++i) {
    writes.push_back({"used/gpu1-0-" + std::to_string(i) + "-0", record_of(1'600'500'000)});
    chunk(pool::keys::kSeconds, 3700 + i);
  }
  for (const int64_t age_s : {3500, 10}) chunk(pool::keys::kSeconds, age_s);
  for (const int64_t age_s : {32 * 86'400, 30 * 86'400}) chunk(pool::keys::kMinutes, age_s);
  chunk(pool::keys::kHours, int64_t(9) * 365 * 86'400);
  auto faulty =
      std::make_unique<store::FaultyStore>(std::make_unique<store::MemoryStore>(state_), 5);
  store::Faults faults;
  faults.unavailable = faults.lost = 2;
  store::FaultyStore* const failing = faulty.get();
  StoreThreadOptions options = quick("pool1 a:1");
  options.thin_pause_ms = options.thin_first_ms = 0;
  options.thin_leases_every_ms = options.thin_history_every_ms = 20;
  Ears ears;
  StoreThread thread(std::move(faulty), options, &ears);
  thread.start();
  ASSERT_TRUE(ears.await([&] { return !ears.terms.empty(); }));
  failing->set(faults);
  thread.write(ears.terms[0], batch(1, std::move(writes)));
  std::map<std::string, size_t> left;
  for (int i = 0; i < 1000 && left["used/"] + left["hist"] != 6; ++i) {
    usleep(10'000);
    left.clear();
    std::lock_guard<std::mutex> hold(state_->mutex);
    for (const auto& [key, entry] : state_->entries) {
      ++left[key.substr(0, key[0] == 'u' ? 5 : 4)];
      ++left[key.substr(0, 10)];
    }
  }
  EXPECT_EQ(left["used/"], 2u);  // a damaged one, and one that is new
  EXPECT_EQ(left["history/s/"], 2u);
  EXPECT_EQ(left["history/m/"], 1u);
  EXPECT_EQ(left["history/h/"], 1u);
}

// A real etcd of three members: batches, a quorum that is lost and comes back.
TEST(StoreThreadOnEtcd, WhatWasAcknowledgedOutlivesTheLossOfTheQuorum) {
  if (!store::EtcdCluster::is_available()) GTEST_SKIP() << "no etcd on this machine";
  store::EtcdCluster cluster(3);
  std::string address = "etcd://";
  for (const std::string& member : cluster.members())
    address += (address.back() == '/' ? "" : ",") + member;
  StoreThreadOptions options = quick("pool1 a:1");
  options.ttl_ms = 5000;
  options.call_ms = 1000;
  Ears ears, other_ears;
  auto first = std::make_unique<StoreThread>(store::open_store(address).take(), options, &ears);
  first->start();
  ASSERT_TRUE(ears.await([&] { return !ears.terms.empty(); }, 20));
  first->write(ears.terms[0], batch(1, {{"pool/a", "1"}}));
  ASSERT_TRUE(ears.await([&] { return ears.last_stored == 1; }));
  cluster.kill(1);
  cluster.kill(2);
  first->write(ears.terms[0], batch(2, {{"pool/b", "2"}}));
  ASSERT_TRUE(ears.await([&] { return ears.failures >= 1; }, 20));
  EXPECT_EQ(ears.last_stored, 1u);
  EXPECT_GT(first->failures(), 0u);
  cluster.start(1);
  cluster.start(2);
  // In the same term the batch is written yet; in a later one its Scheduler decides anew.
  ASSERT_TRUE(ears.await([&] { return ears.last_stored == 2 || ears.terms.size() == 2; }, 30));
  const bool same_term = ears.terms.size() == 1;
  first.reset();
  StoreThread second(store::open_store(address).take(), options, &other_ears);
  second.start();
  ASSERT_TRUE(other_ears.await([&] { return !other_ears.terms.empty(); }, 20));
  EXPECT_GT(other_ears.terms[0], ears.terms.back());
  std::map<std::string, std::string> records(other_ears.recovered.begin(),
                                             other_ears.recovered.end());
  EXPECT_EQ(records["pool/a"], "1");
  if (same_term) {
    EXPECT_EQ(records["pool/b"], "2");
  }
}

}  // namespace
}  // namespace tendril::scheduler
