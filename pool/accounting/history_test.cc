// SPDX-License-Identifier: Apache-2.0
// The history: each nanosecond is in each tier once, over deaths of schedulers, and written at a
// bounded rate. What is asked of it.
#include "pool/accounting/history.h"

#include <gtest/gtest.h>

#include <map>
#include <nlohmann/json.hpp>
#include <random>

#include "pool/accounting/history_query.h"

namespace tendril::pool {
namespace {

constexpr uint64_t kSecond = 1'000'000'000;
constexpr uint64_t kStart = 1'790'000'000 * kSecond;  // not the beginning of a minute

using Store = std::map<std::string, std::string>;
using Records = std::vector<std::pair<std::string, std::string>>;

void write(const std::vector<HistoryWrites>& batches, Store* store) {
  for (const HistoryWrites& batch : batches) {
    size_t bytes = 0;
    for (const auto& [key, value] : batch) {
      (*store)[key] = value;
      bytes += key.size() + value.size();
    }
    EXPECT_LE(bytes, 1u << 20);
    EXPECT_LE(batch.size(), 100u);
  }
}

Records read(const Store& store) {
  Records records;
  const auto list = [&](const std::vector<HistoryRead>& reads) {
    for (const HistoryRead& each : reads) {
      for (const auto& [key, value] : store) {
        if (key.compare(0, each.prefix.size(), each.prefix) == 0 && key > each.after)
          records.emplace_back(key, value);
      }
    }
  };
  list(first_history_reads());
  list(later_history_reads(records));
  return records;
}

HistoryWho who(uint64_t lease, const std::string& owner = "ann") {
  HistoryWho who;
  who.lease = lease;
  who.server_lease = lease;
  who.boot = 77;
  who.server = "gpu" + std::to_string(lease % 3);
  who.owner_id = who.owner = owner;
  who.account = "vision";
  who.gpu_class = "top";
  return who;
}

UsedSums used(uint64_t held_ns, uint64_t used_ns) {
  UsedSums sums;
  sums.leases = 1;
  sums.held_ns = held_ns;
  sums.used_ns = used_ns;
  return sums;
}

// Rows from a tier on, as a reader composes them.
std::vector<HistoryRow> rows(const Store& store, size_t first) {
  std::vector<HistoryRow> all;
  uint64_t after_ns = 0;
  const std::string tiers[] = {keys::kHours, keys::kMinutes, keys::kSeconds};
  for (size_t tier = first; tier < 3; ++tier) {
    uint64_t last_ns = after_ns;
    for (const auto& [key, value] : store) {
      if (key.compare(0, tiers[tier].size(), tiers[tier]) != 0) continue;
      HistoryChunk chunk;
      EXPECT_TRUE(unpack_chunk(value, &chunk));
      if (chunk.upto_ns <= after_ns) continue;
      last_ns = std::max(last_ns, chunk.upto_ns);
      all.insert(all.end(), chunk.rows.begin(), chunk.rows.end());
    }
    after_ns = last_ns;
  }
  return all;
}

UsedSums total(const Store& store, size_t first) {
  UsedSums sums;
  for (const HistoryRow& row : rows(store, first)) sums.add(row.sums);
  return sums;
}

TEST(History, AChunkIsReadAsItWasWritten) {
  HistoryChunk chunk;
  chunk.upto_ns = kStart;
  chunk.gaps = {{5, 9}};
  for (uint64_t i = 1; i < 4; ++i) {
    HistoryRow row;
    row.who = who(i, i == 2 ? "bob" : "ann");
    row.from_ns = kStart - i * kHourNs;
    row.to_ns = kStart - i;
    row.sums = used(i * kSecond, UINT64_MAX);
    row.last = i == 2;
    chunk.rows.push_back(row);
  }
  const std::string bytes = pack_chunk(chunk);
  HistoryChunk again;
  ASSERT_TRUE(unpack_chunk(bytes, &again));
  EXPECT_EQ(pack_chunk(again), bytes);
  ASSERT_EQ(again.rows.size(), 3u);
  EXPECT_TRUE(again.rows[1].who == chunk.rows[1].who);
  EXPECT_TRUE(again.rows[1].sums == chunk.rows[1].sums);
  EXPECT_TRUE(again.rows[1].last);
  EXPECT_EQ(again.gaps.at(0).to_ns, 9u);
  for (size_t i = 0; i < bytes.size(); ++i) EXPECT_FALSE(unpack_chunk(bytes.substr(0, i), &again));
}

TEST(History, PartsOfARowAreTheRow) {
  std::mt19937_64 random(3);
  for (int i = 0; i < 200; ++i) {
    HistoryRow row;
    row.from_ns = kStart + random() % kHourNs;
    row.to_ns = row.from_ns + (i % 5 == 0 ? 0 : random() % (3 * kHourNs));
    row.sums = used(random() % (8 * kHourNs), random());
    row.sums.waited_ns = random();
    UsedSums sums;
    const uint64_t step_ns = 1 + random() % kHourNs;
    for (uint64_t at_ns = kStart - 7; at_ns <= row.to_ns; at_ns += step_ns)
      sums.add(part_of(row, at_ns, at_ns + step_ns));
    EXPECT_TRUE(sums == row.sums) << i;
    EXPECT_TRUE(part_of(row, 0, row.from_ns) == UsedSums());
  }
}

// Leases that work a bit, for some hours, with schedulers that die.
TEST(History, EveryNanosecondIsInEachTierOnce) {
  for (uint64_t seed = 1; seed <= 6; ++seed) {
    std::mt19937_64 random(seed);
    Store store;
    auto history = std::make_unique<History>(HistoryLimits());
    history->recover({}, kStart);
    std::map<uint64_t, UsedSums> living;  // by place
    std::map<uint64_t, uint64_t> numbers;
    UsedSums ended;
    uint64_t monotonic_ns = 5, deaths = 0, next = 1;
    for (uint64_t second = 0; second < 9'000; ++second) {
      monotonic_ns += kSecond;
      const uint64_t now_ns = history->clock(monotonic_ns, int64_t(kStart / kSecond + second));
      for (uint64_t place = 1; place <= 8; ++place) {
        UsedSums& sums = living[place];
        if (sums.leases == 0) numbers[place] = next++;
        sums.leases = 1;
        sums.held_ns += kSecond;
        sums.used_ns += random() % kSecond;
        if (place == 4 && second % 1000 < 300) continue;  // its server is cut off
        const bool last = second == 8'999 || random() % 2000 == 0;
        const HistoryRow& told = history->heard(
            who(numbers[place]), sums, {1ull << 30, 1 << 20, 1'000'000}, now_ns - sums.held_ns,
            now_ns, last ? LeaseEnd::kTold : LeaseEnd::kLives);
        EXPECT_EQ(told.sums.used_ns, sums.used_ns);
        if (!last) continue;
        ended.add(sums);
        sums = UsedSums();
        write({history->ended()}, &store);
      }
      if (now_ns >= history->due_ns()) write(history->cut(now_ns), &store);
      if (second > 8'800 || random() % 700 != 0) continue;
      ++deaths;
      second += random() % 100;
      history = std::make_unique<History>(HistoryLimits());
      EXPECT_TRUE(history->recover(read(store), kStart + second * kSecond).empty());
      monotonic_ns = 5;
    }
    EXPECT_GT(deaths, 3u);
    for (const size_t first : {0, 1, 2}) {
      const UsedSums sums = total(store, first);
      EXPECT_EQ(sums.held_ns, ended.held_ns) << seed << " tier " << first;
      EXPECT_EQ(sums.used_ns, ended.used_ns) << seed << " tier " << first;
      EXPECT_EQ(sums.leases, ended.leases) << seed << " tier " << first;
      EXPECT_GT(sums.memory_held_mib_ms, 1000u);
    }
  }
}

// A kill loses nothing that servers still know, and what is not known any finer is said.
// What the rows have of each hour.
std::map<uint64_t, UsedSums> by_hour(const Store& store, const std::string& tier) {
  std::map<uint64_t, UsedSums> sums;
  for (const auto& [key, value] : store) {
    if (key.compare(0, tier.size(), tier) != 0) continue;
    HistoryChunk chunk;
    EXPECT_TRUE(unpack_chunk(value, &chunk));
    for (const HistoryRow& row : chunk.rows)
      for (uint64_t hour = row.from_ns / kHourNs; hour <= row.to_ns / kHourNs; ++hour)
        sums[hour].add(part_of(row, hour * kHourNs, (hour + 1) * kHourNs));
  }
  std::erase_if(sums, [](const auto& each) { return each.second == UsedSums(); });
  return sums;
}

// So many rows in one minute, over the end of an hour, that they lose their leases and become one
// row for each owner: the hours have what the minutes have, as they were written.
TEST(History, HoursHaveWhatTheMinutesHave) {
  constexpr uint64_t kOwners = 40, kLeases = 40'000;
  const uint64_t hour_ns = (kStart / kHourNs + 1) * kHourNs;
  Store store;
  History history{HistoryLimits()};
  history.recover({}, hour_ns - 100 * kSecond);
  const auto now = [&](int64_t after_s) {
    return history.clock(kHourNs + uint64_t(after_s) * kSecond,
                         int64_t(hour_ns / kSecond) + after_s);
  };
  write(history.cut(now(-100)), &store);
  for (const int64_t after_s : {-30, 20}) {
    const uint64_t now_ns = now(after_s);
    for (uint64_t lease = 1; lease <= kLeases; ++lease) {
      const uint64_t held_ns = uint64_t(after_s + 31) * 7 * (lease + 12'345);
      history.heard(who(lease, "owner" + std::to_string(lease % kOwners)),
                    used(held_ns, held_ns / 3), {}, now_ns - held_ns, now_ns, LeaseEnd::kLives);
    }
  }
  write(history.cut(now(21)), &store);
  write(history.cut(now(61)), &store);
  write(history.cut(now(3700)), &store);
  size_t leases = 0;
  for (const HistoryRow& row : rows(store, 1)) leases += row.who.lease != 0 ? 1 : 0;
  EXPECT_EQ(leases, 0u) << "the rows fitted, and the test shows nothing";
  EXPECT_TRUE(by_hour(store, keys::kMinutes) == by_hour(store, keys::kHours));
  EXPECT_TRUE(total(store, 0) == total(store, 2)) << "an hour without anything keeps the last one";
}

TEST(History, AGapIsSaidAndSpreadEvenly) {
  Store store;
  History first{HistoryLimits()};
  first.recover({}, kStart);
  first.clock(1, int64_t(kStart / kSecond));
  first.heard(who(1), used(10 * kSecond, 4 * kSecond), {}, kStart, kStart, LeaseEnd::kLives);
  write(first.cut(kStart + kSecond), &store);
  first.heard(who(1), used(11 * kSecond, 5 * kSecond), {}, kStart, kStart + kSecond,
              LeaseEnd::kLives);
  // It is killed here, before that second is written.
  History second{HistoryLimits()};
  second.recover(read(store), kStart + 101 * kSecond);
  ASSERT_TRUE(second.gap());
  EXPECT_EQ(second.gap()->from_ns, kStart + kSecond);
  const uint64_t now_ns = second.clock(9, int64_t(kStart / kSecond) + 101);
  second.heard(who(1), used(111 * kSecond, 54 * kSecond), {}, 0, now_ns, LeaseEnd::kLives);
  write(second.cut(now_ns), &store);
  HistoryQuery query;
  query.from_s = int64_t(kStart / kSecond);
  query.to_s = query.from_s + 102;
  query.step_s = 1;
  HistorySums sums(query);
  for (const auto& [key, value] : store) {
    HistoryChunk chunk;
    if (key.find(keys::kSeconds) == 0 && unpack_chunk(value, &chunk)) sums.add(chunk);
  }
  const auto json = nlohmann::json::parse(sums.json());
  ASSERT_EQ(json["gaps"].size(), 1u);
  EXPECT_EQ(json["rows"][20]["used_ns"], 50 * kSecond / 101);
  EXPECT_EQ(total(store, 2).used_ns, 54 * kSecond);
}

// A kill between any two of the writes of a minute loses nothing, and doubles nothing.
TEST(History, AKillBetweenTheWritesOfAMinuteIsHarmless) {
  for (size_t written = 0;; ++written) {
    Store store;
    History first{HistoryLimits()};
    first.recover({}, kStart);
    first.clock(1, int64_t(kStart / kSecond));
    first.heard(who(1), used(10 * kSecond, 4 * kSecond), {}, kStart, kStart, LeaseEnd::kLives);
    uint64_t now_ns = first.clock(1 + 61 * kSecond, int64_t(kStart / kSecond) + 61);
    std::vector<HistoryWrites> batches = first.cut(now_ns);
    ASSERT_GE(batches.size(), 3u);
    if (written > batches.size()) break;
    batches.resize(written);
    write(batches, &store);
    History second{HistoryLimits()};
    second.recover(read(store), now_ns);
    now_ns = second.clock(9, int64_t(now_ns / kSecond) + 5);
    second.heard(who(1), used(20 * kSecond, 5 * kSecond), {}, kStart, now_ns, LeaseEnd::kTold);
    now_ns = second.clock(9 + kHourNs, int64_t((now_ns + kHourNs) / kSecond));
    write(second.cut(now_ns), &store);
    for (const size_t tier : {0, 1, 2}) {
      EXPECT_EQ(total(store, tier).held_ns, 20 * kSecond) << written << " tier " << tier;
      EXPECT_EQ(total(store, tier).leases, 1u) << written << " tier " << tier;
    }
  }
}

// A server that was taken to be lost comes back with its lease: that goes on where it was, over a
// restart of the scheduler too. Once the server has begun anew, it is over.
TEST(History, ALeaseOfALostServerComesBack) {
  for (const bool reboots : {false, true}) {
    Store store;
    History first{HistoryLimits()};
    first.recover({}, kStart);
    first.clock(1, int64_t(kStart / kSecond));
    first.heard(who(1), used(10 * kSecond, 4 * kSecond), {}, kStart, kStart, LeaseEnd::kLives);
    first.heard(who(1), used(10 * kSecond, 4 * kSecond), {}, kStart, kStart, LeaseEnd::kConcluded);
    uint64_t now_ns = first.clock(1 + 3 * kHourNs, int64_t((kStart + 3 * kHourNs) / kSecond));
    write(first.cut(now_ns), &store);
    History second{HistoryLimits()};
    second.recover(read(store), now_ns);
    now_ns = second.clock(9, int64_t(now_ns / kSecond));
    if (reboots) {
      second.told_all(who(1).server, who(1).boot + 1, now_ns);
      now_ns = second.clock(9 + 2 * kHourNs, int64_t((now_ns + 2 * kHourNs) / kSecond));
      write(second.cut(now_ns), &store);
    }
    const HistoryRow& row = second.heard(who(1), used(50 * kSecond, 6 * kSecond), {},
                                         now_ns - 50 * kSecond, now_ns, LeaseEnd::kTold);
    EXPECT_EQ(row.sums.held_ns, 50 * kSecond);
    write(second.cut(now_ns), &store);
    EXPECT_EQ(total(store, 2).held_ns, (reboots ? 60 : 50) * kSecond);
    EXPECT_EQ(total(store, 2).leases, reboots ? 2u : 1u);
  }
}

// The link broke before the server heard that the end was stored.
TEST(History, ASilentServerSaysAnEndAgain) {
  Store store;
  History history(HistoryLimits{});
  history.recover({}, kStart);
  uint64_t now_ns = kStart;
  const auto pass_to = [&](uint64_t to_ns) {
    for (; now_ns < to_ns; now_ns += 30 * kSecond) {
      history.clock(now_ns, int64_t(now_ns / kSecond));
      write(history.cut(now_ns), &store);
    }
  };
  const auto says_the_end = [&] {
    history.heard(who(1), used(9 * kSecond, kSecond), {}, kStart, now_ns, LeaseEnd::kTold);
    write({history.ended()}, &store);
  };
  pass_to(kStart + kMinuteNs);
  says_the_end();
  history.lost(who(1).server);
  pass_to(kStart + kHourNs / 2);
  says_the_end();
  EXPECT_EQ(total(store, 0).leases, 1u);
  // It is back, and has heard it.
  history.told_all(who(1).server, who(1).boot, now_ns);
  pass_to(kStart + 2 * kHourNs);
  EXPECT_TRUE(history.unheard_since(now_ns).empty());
  EXPECT_EQ(total(store, 0).leases, 1u);
}

// Nothing was written for an hour, so no server heard in that time that an end is stored.
TEST(History, AnEndThatIsSaidAgainAfterTheStoreWasSlowCountsOnce) {
  Store store;
  History history(HistoryLimits{});
  history.recover({}, kStart);
  uint64_t now_ns = kStart + kMinuteNs;
  const auto says_the_end = [&] {
    history.clock(now_ns, int64_t(now_ns / kSecond));
    history.heard(who(1), used(9 * kSecond, kSecond), {}, kStart, now_ns, LeaseEnd::kTold);
  };
  const auto writes = [&] {
    history.clock(now_ns, int64_t(now_ns / kSecond));
    write(history.cut(now_ns), &store);
  };
  says_the_end();
  now_ns += kHourNs;
  history.clock(now_ns, int64_t(now_ns / kSecond));
  history.store_is_back();
  writes();
  now_ns += 5 * kMinuteNs;  // the server started again before it heard it
  writes();
  says_the_end();
  writes();
  EXPECT_EQ(total(store, 0).leases, 1u);
}

HistoryWho request(uint64_t number) {
  HistoryWho who;
  who.lease = number;
  who.owner_id = who.owner = "user " + std::to_string(number);
  return who;
}

// They take the room of one shard, which a server shares with them.
TEST(History, RequestsPushNoLeaseOutOfTheMarks) {
  Store store;
  History first{HistoryLimits()};
  first.recover({}, kStart);
  uint64_t now_ns = first.clock(1, int64_t(kStart / kSecond));
  for (uint64_t lease = 1; lease <= 16; ++lease) {
    HistoryWho lives = who(lease);
    lives.server = "gpu" + std::to_string(lease);  // in all shards
    first.heard(lives, used(10 * kSecond, kSecond), {}, now_ns, now_ns, LeaseEnd::kLives);
  }
  UsedSums waits;
  waits.queued_ns = kSecond;
  for (uint64_t number = 1; number <= 30'000; ++number)
    first.heard(request(1'000 + number), waits, {}, now_ns, now_ns, LeaseEnd::kLives);
  write(first.cut(now_ns), &store);
  now_ns = first.clock(1 + kMinuteNs, int64_t((kStart + kMinuteNs) / kSecond));
  write(first.cut(now_ns), &store);
  History second{HistoryLimits()};
  second.recover(read(store), now_ns);
  size_t leases = 0;
  for (const HistoryRow& row : second.unheard_since(now_ns + kSecond))
    leases += row.who.server_lease != 0;
  EXPECT_EQ(leases, 16u);
}

// Nobody says it again.
TEST(History, TheEndOfARequestIsSoonForgotten) {
  Store store;
  History first{HistoryLimits()};
  first.recover({}, kStart);
  uint64_t now_ns = first.clock(1, int64_t(kStart / kSecond));
  UsedSums waited;
  waited.queued_ns = kSecond;
  first.heard(request(1), waited, {}, now_ns, now_ns, LeaseEnd::kTold);
  write(first.cut(now_ns), &store);
  History second{HistoryLimits()};
  second.recover(read(store), now_ns);
  const auto marks = [&store] {
    size_t rows = 0;
    for (const auto& [key, value] : store) {
      HistoryChunk chunk;
      if (key.rfind(keys::kHistoryMarks, 0) == 0 && unpack_chunk(value, &chunk))
        rows += chunk.rows.size();
    }
    return rows;
  };
  for (uint64_t minutes = 0; minutes <= 12; ++minutes) {
    now_ns = second.clock(1 + minutes * kMinuteNs, int64_t(kStart / kSecond + 60 * minutes));
    write(second.cut(now_ns), &store);
    if (minutes == 5) {
      EXPECT_EQ(marks(), 1u);
    }
  }
  EXPECT_EQ(marks(), 0u);
}

TEST(History, TheClockNeverRunsBackwards) {
  History history{HistoryLimits()};
  history.recover({}, 1000 * kSecond);
  uint64_t last_ns = history.clock(1, 1000);
  for (uint64_t second = 1; second < 100; ++second) {
    const int64_t wall_s = int64_t(1000 + second) - (second > 50 ? 30 : 0);
    const uint64_t now_ns = history.clock(1 + second * kSecond, wall_s);
    EXPECT_GE(now_ns, last_ns + kSecond / 2);
    last_ns = now_ns;
  }
  EXPECT_LT(last_ns, 1100 * kSecond - 20 * kSecond);
  EXPECT_EQ(history.clock(200 * kSecond, 5000), 5000 * kSecond);
}

// More leases than the limit has room for: the steps become longer.
TEST(History, TheRateOfWritingIsBounded) {
  HistoryLimits limits;
  limits.second_bytes = 32u << 20;
  Store store;
  History history{limits};
  history.recover({}, kStart);
  size_t bytes = 0, writes = 0;
  for (uint64_t second = 1; second <= 120; ++second) {
    const uint64_t now_ns = history.clock(1 + second * kSecond, int64_t(kStart / kSecond + second));
    for (uint64_t lease = 1; lease <= 1'500; ++lease)
      history.heard(who(lease), used(second * kSecond, second * 345'678'901), {1, 1}, now_ns,
                    now_ns, LeaseEnd::kLives);
    if (now_ns < history.due_ns()) continue;
    const auto batches = history.cut(now_ns);
    write(batches, &store);
    for (const HistoryWrites& batch : batches) {
      for (const auto& [key, value] : batch) {
        if (key.find(keys::kSeconds) == 0) bytes += value.size();
      }
      ++writes;
    }
  }
  EXPECT_LT(bytes * 3600 / 120, limits.second_bytes * 11 / 10);
  EXPECT_LT(writes, 240u);
  EXPECT_EQ(total(store, 1).leases, 1'500u);
}

TEST(History, QueriesAreChecked) {
  const auto parse = [](std::vector<std::string> words) {
    return parse_history_query(words, 1'800'000'000);
  };
  for (const char* const bad :
       {"from", "from=x", "by=colour", "series=all", "series=", "by=,", "from=1800000000",
        "colour=7", "step=-1", "lines=x", "to=18446744073709551615"})
    EXPECT_FALSE(parse({bad}).ok()) << bad;
  auto query = parse({"from=1799990005", "step=60", "by=account,user,account"});
  ASSERT_TRUE(query.ok());
  EXPECT_EQ(query->from_s, 1'799'989'980);
  EXPECT_EQ(query->by.size(), 2u);
  const auto long_one = parse({"from=1700000000", "step=1"});
  ASSERT_FALSE(long_one.ok());
  EXPECT_NE(long_one.status().message().find("step=86400 fits"), std::string::npos)
      << long_one.status().message();
  auto series = parse({"series=gpus", "points=100"});
  ASSERT_TRUE(series.ok());
  EXPECT_EQ(series->step_s, 60u);
}

TEST(History, ASeriesHasMeansAndNothingWhereNothingWas) {
  HistoryQuery query;
  query.from_s = 1000;
  query.to_s = 1180;
  query.step_s = 60;
  query.series = {"gpus", "utilisation", "waits"};
  query.by = {"account"};
  HistorySums sums(query);
  HistoryRow row;
  row.who = who(1);
  row.from_ns = 1030 * kSecond;
  row.to_ns = 1060 * kSecond;
  row.sums = used(30 * kSecond, 15 * kSecond);
  row.sums.given_gpu_ns = 60 * kSecond;
  row.sums.leases = 2;
  row.sums.waited_ns = 7 * kSecond;
  sums.add(row);
  const auto json = nlohmann::json::parse(sums.json());
  const auto& charts = json["charts"];
  EXPECT_EQ(charts[0]["lines"].dump(), R"([{"kind":"given","name":"vision","others":false},)"
                                       R"({"kind":"used","name":"vision","others":false}])");
  EXPECT_EQ(charts[0]["rows"].dump(), "[[1000,1,0.25],[1060,null,null],[1120,null,null]]")
      << "what is not there is not known";
  EXPECT_EQ(charts[1]["rows"][0].dump(), "[1000,0.25]");
  EXPECT_EQ(charts[2]["rows"][0].dump(), "[1000,3.5]");
  EXPECT_EQ(json["totals"][0]["account"], "vision");
  EXPECT_EQ(json["totals"][0]["used_ns"], 15 * kSecond);
}

// A server's clock may run fast, and one that was cut off gave what nobody saw.
TEST(History, NoMoreThanAllIsUtilised) {
  HistoryQuery query;
  query.from_s = 1000;
  query.to_s = 1060;
  query.step_s = 60;
  query.series = {"utilisation", "gpus"};
  HistorySums sums(query);
  HistoryRow row;
  row.who.server = "gpu1";
  row.from_ns = 1000 * kSecond;
  row.to_ns = 1060 * kSecond;
  row.sums.capacity_gpu_ns = 60 * kSecond;
  sums.add(row);
  row.who = who(1);
  row.sums = used(66 * kSecond, 33 * kSecond);
  row.sums.given_gpu_ns = 66 * kSecond;
  sums.add(row);
  const auto json = nlohmann::json::parse(sums.json());
  EXPECT_EQ(json["charts"][0]["rows"].dump(), "[[1000,1,0.55]]");
  EXPECT_EQ(json["totals"][0]["given_gpu_ns"], 66 * kSecond) << "sums stay as they were counted";
}

TEST(History, ASeriesEndsWhereTheHistoryEnds) {
  HistoryQuery query;
  query.from_s = 1000;
  query.to_s = 1180;
  query.step_s = 60;
  query.series = {"gpus"};
  HistorySums sums(query);
  HistoryRow row;
  row.who.server = "gpu1";
  row.from_ns = 1000 * kSecond;
  row.to_ns = 1100 * kSecond;
  row.sums.capacity_gpu_ns = 400 * kSecond;
  sums.add(row);
  const auto rows = [&] { return nlohmann::json::parse(sums.json())["charts"][0]["rows"]; };
  EXPECT_EQ(rows().size(), 3u);
  sums.set_known_until(1100 * kSecond);  // the mean is over what is known
  EXPECT_EQ(rows().dump(), "[[1000,4,0,0,0],[1060,4,0,0,0]]");
  sums.set_known_until(1065 * kSecond);  // of that step too little is known
  EXPECT_EQ(rows().size(), 1u);
  sums.set_known_until(0);
  EXPECT_TRUE(rows().empty());
}

// However many names there are, an answer has some lines, and its sums are whole.
TEST(History, NamesWithoutALineAreOneTogether) {
  HistoryQuery query;
  query.to_s = 100;
  query.step_s = 10;
  query.by = {"user"};
  HistoryQuery all = query;
  all.step_s = 0;
  query.series = {"gpus"};
  query.lines = 2;
  HistorySums whole(all);
  const auto fill = [&](HistorySums* sums) {
    for (uint64_t user = 1; user <= 500; ++user) {
      HistoryRow row;
      row.who = who(user, std::to_string(user));
      row.to_ns = 100 * kSecond;
      row.sums.given_gpu_ns = user * kSecond;
      sums->add(row);
    }
  };
  fill(&whole);
  HistorySums sums(query, whole);
  fill(&sums);
  const auto json = nlohmann::json::parse(sums.json());
  EXPECT_EQ(json["others"], 498);
  ASSERT_EQ(json["totals"].size(), 3u);
  EXPECT_EQ(json["totals"][0]["user"], "500");
  EXPECT_EQ(json["totals"][1]["user"], "499");
  EXPECT_EQ(json["totals"][2]["others"], true);
  EXPECT_EQ(json["totals"][2]["given_gpu_ns"], 498ull * 499 / 2 * kSecond);
  EXPECT_EQ(json["charts"][0]["lines"].size(), 6u);
  EXPECT_EQ(json["charts"][0]["rows"][3][5].get<double>(), 498.0 * 499 / 2 / 100);
}

TEST(History, OnlyTheOwnersRowsAreAnswered) {
  HistoryQuery query;
  query.to_s = 100;
  query.owner_id = "ann";
  query.by = {"user"};
  HistorySums sums(query);
  for (const char* owner : {"ann", "bob"}) {
    HistoryRow row;
    row.who = who(1, owner);
    row.to_ns = kSecond;
    row.sums = used(5, 5);
    sums.add(row);
  }
  EXPECT_EQ(nlohmann::json::parse(sums.json())["rows"].size(), 1u);
}

}  // namespace
}  // namespace tendril::pool
