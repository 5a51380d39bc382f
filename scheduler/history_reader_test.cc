// SPDX-License-Identifier: Apache-2.0
// Questions about the past, on a store in memory: every second once from whichever tier still has
// it, nobody's rows but the asker's own, and no more questions at once than may wait.
#include "scheduler/history_reader.h"

#include <gtest/gtest.h>

#include <condition_variable>
#include <future>
#include <nlohmann/json.hpp>

#include "store/testing/memory.h"

namespace tendril::scheduler {
namespace {

using Json = nlohmann::json;
constexpr uint64_t kSecond = pool::kNsOfSecond;

// A store whose lists wait until they may go on.
class SlowStore final : public store::MemoryStore {
 public:
  using MemoryStore::MemoryStore;
  base::Result<store::Page> list(const std::string& prefix, const std::string& after,
                                 size_t entries, const base::Deadline& deadline) override {
    std::unique_lock<std::mutex> hold(mutex_);
    changed_.wait(hold, [this] { return !stops_; });
    return MemoryStore::list(prefix, after, entries, deadline);
  }
  void stop(bool stops) {
    {
      const std::lock_guard<std::mutex> hold(mutex_);
      stops_ = stops;
    }
    changed_.notify_all();
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool stops_ = false;
};

class Reader : public testing::Test {
 protected:
  void SetUp() override {
    term_ = store_.campaign("test", 60'000, base::Deadline(1000))->term;
    reader_.start(&store_);
  }
  void TearDown() override {
    store_.stop(false);
    reader_.stop();
  }

  // One GPU for one user from then to then, told when it was over.
  void put(const std::string& tier, uint64_t from_s, uint64_t to_s,
           const std::string& owner = "ann") {
    pool::HistoryChunk chunk;
    chunk.upto_ns = to_s * kSecond;
    pool::HistoryRow row;
    row.who.owner = owner;
    row.who.owner_id = "id of " + owner;
    row.who.server = "gpu1";
    if (tier != pool::keys::kHours) row.who.lease = row.who.server_lease = 7;
    row.from_ns = from_s * kSecond;
    row.to_ns = to_s * kSecond;
    row.sums.given_gpu_ns = row.sums.held_ns = (to_s - from_s) * kSecond;
    chunk.rows = {row};
    write(pool::chunk_key(tier, chunk.upto_ns), pool::pack_chunk(chunk));
  }
  void put_tier(const std::string& tier, uint64_t from_s, uint64_t to_s, uint64_t step_s) {
    for (uint64_t at_s = from_s; at_s < to_s; at_s += step_s) put(tier, at_s, at_s + step_s);
  }
  void write(const std::string& key, const std::string& value) {
    ASSERT_TRUE(store_.write(term_, {{key, value, std::nullopt}}, base::Deadline(1000)).ok());
  }

  static pool::Asker everybody() {
    pool::Asker who;
    who.id = "admin";
    who.sees_all = true;
    return who;
  }
  base::Result<std::string> ask(std::vector<std::string> words, pool::Asker who = everybody()) {
    std::promise<base::Result<std::string>> answer;
    reader_.ask(std::move(words), who,
                [&](base::Result<std::string> json) { answer.set_value(std::move(json)); });
    return answer.get_future().get();
  }
  Json asked(std::vector<std::string> words, pool::Asker who = everybody()) {
    auto json = ask(std::move(words), std::move(who));
    EXPECT_TRUE(json.ok()) << json.status().message();
    return json.ok() ? Json::parse(*json) : Json();
  }

  SlowStore store_{std::make_shared<store::MemoryState>()};
  uint64_t term_ = 0;
  HistoryReader reader_;
};

std::string word(const char* name, uint64_t value) {
  return std::string(name) + "=" + std::to_string(value);
}

// The oldest seconds have just been erased: that minute has them.
TEST_F(Reader, TheLastHourIsWholeWhereItsOldestSecondsAreGone) {
  const uint64_t now_s = uint64_t(time(nullptr)), minute_s = (now_s - 7200) / 60 * 60;
  put_tier(pool::keys::kMinutes, minute_s, now_s / 60 * 60, 60);
  put_tier(pool::keys::kSeconds, now_s - 3600 + 25, now_s, 1);
  const Json answer =
      asked({word("from", now_s - 3600), word("to", now_s), "series=gpus", "points=500"});
  EXPECT_EQ(answer["step_s"], 10);
  const Json& rows = answer["charts"][0]["rows"];
  ASSERT_GE(rows.size(), 359u);
  for (const Json& row : rows) EXPECT_NEAR(row[2].get<double>(), 1, 1e-5) << row.dump();
  EXPECT_EQ(asked({word("from", now_s - 3600), word("to", now_s), "step=10"})["rows"].size(),
            rows.size());
}

TEST_F(Reader, TiersFollowEachOtherWithoutAnOverlap) {
  const uint64_t now_s = uint64_t(time(nullptr)), hour_s = now_s / 3600 * 3600;
  put_tier(pool::keys::kHours, hour_s - 40 * 86'400, hour_s - 3600, 3600);
  put_tier(pool::keys::kMinutes, hour_s - 7200, now_s / 60 * 60 - 120, 60);
  put_tier(pool::keys::kSeconds, now_s - 3500, now_s, 1);
  for (const uint64_t ago_s : {40 * 86'400, 3 * 86'400}) {
    const uint64_t from_s = hour_s - ago_s;
    const Json answer = asked({word("from", from_s), word("to", now_s)});
    ASSERT_EQ(answer["rows"].size(), 1u);
    EXPECT_EQ(answer["rows"][0]["given_gpu_ns"], (now_s - from_s) * kSecond) << ago_s;
  }
}

TEST_F(Reader, WhoSeesOnlyItsOwnGetsItsOwn) {
  const uint64_t now_s = uint64_t(time(nullptr));
  put(pool::keys::kSeconds, now_s - 20, now_s - 10, "ann");
  put(pool::keys::kSeconds, now_s - 10, now_s - 5, "bob");
  pool::Asker bob;
  bob.id = "id of bob";
  for (const char* const by : {"by=user", "by=server", "by=lease"}) {
    const Json answer = asked({by, "series=gpus"}, bob);
    ASSERT_EQ(answer["totals"].size(), 1u) << by;
    EXPECT_EQ(answer["totals"][0]["given_gpu_ns"], 5 * kSecond) << by;
  }
  EXPECT_EQ(asked({"by=user", "series=gpus"})["totals"].size(), 2u);
  // Nobody in particular does not see everybody.
  EXPECT_EQ(ask({}, pool::Asker()).status().code(), base::Code::kRefused);
}

TEST_F(Reader, WhatIsDamagedIsLeftOut) {
  const uint64_t now_s = uint64_t(time(nullptr));
  write(pool::chunk_key(pool::keys::kSeconds, (now_s - 15) * kSecond), "no chunk");
  write(pool::keys::kSeconds + "no moment", "");
  put(pool::keys::kSeconds, now_s - 10, now_s - 5);
  EXPECT_EQ(asked({})["rows"][0]["held_ns"], 5 * kSecond);
}

TEST_F(Reader, SomeMayWaitAndTheOthersAreRefused) {
  store_.stop(true);
  std::mutex mutex;
  size_t refused = 0, answered = 0;
  const auto count = [&](const base::Result<std::string>& json) {
    const std::lock_guard<std::mutex> hold(mutex);
    if (json.ok()) ++answered;
    if (json.status().code() == base::Code::kExhausted) ++refused;
  };
  for (int i = 0; i < 40; ++i) reader_.ask({}, everybody(), count);
  {
    const std::lock_guard<std::mutex> hold(mutex);
    EXPECT_GE(refused, 23u);
    EXPECT_LE(refused, 24u);  // one may be in work
    EXPECT_EQ(answered, 0u);
  }
  // Somebody else is not kept out by that.
  std::promise<bool> other;
  pool::Asker bob;
  bob.id = "id of bob";
  reader_.ask({}, bob, [&](base::Result<std::string> json) { other.set_value(json.ok()); });
  store_.stop(false);
  EXPECT_TRUE(other.get_future().get());
}

}  // namespace
}  // namespace tendril::scheduler
