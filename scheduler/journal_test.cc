// SPDX-License-Identifier: Apache-2.0
// Events in the store: over restarts and other schedulers, within their bounds, and whose they are.
#include "scheduler/journal.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "store/testing/memory.h"

namespace tendril::scheduler {
namespace {

using Json = nlohmann::json;
constexpr uint64_t kSecondMs = 1000;

class JournalTest : public testing::Test {
 protected:
  JournalTest() : store_(std::make_shared<store::MemoryState>()) {
    auto lock = store_.campaign("test", 60'000, base::Deadline(5000));
    EXPECT_TRUE(lock.ok());
    term_ = lock->term;
  }
  static void note(access::AuditLog* log, const std::string& who, const std::string& what,
                   const std::string& rule) {
    access::AuditEntry entry;
    entry.who.id = entry.who.name = who;
    entry.what = what;
    entry.decision = {true, rule, ""};
    log->note(entry);
  }
  void keep(Journal* journal, const access::AuditLog& log, uint64_t now_ms = 0) {
    std::vector<store::Change> changes;
    for (const pool::Write& write : journal->cut(log, now_ms).writes)
      changes.push_back({write.key, write.value, std::nullopt});
    ASSERT_LE(changes.size(), store::kChangesMax);
    if (changes.empty()) return;
    const base::Status status = store_.write(term_, changes, base::Deadline(5000));
    ASSERT_TRUE(status.ok()) << status.message();
  }
  std::vector<store::Entry> stored() {
    return store::list_all(store_, "events/", base::Deadline(5000)).value();
  }
  void recover(Journal* journal) {
    std::vector<std::pair<std::string, std::string>> records;
    for (const store::Entry& entry : stored()) records.emplace_back(entry.key, entry.value);
    journal->recover(records);
  }
  Json read(const EventsQuery& query = {}) {
    auto answer = read_events(&store_, query);
    EXPECT_TRUE(answer.ok()) << answer.status().message();
    return Json::parse(answer.ok() ? *answer : "{}");
  }
  static std::vector<std::string> whats(const Json& answer) {
    std::vector<std::string> all;
    for (const Json& event : answer["events"]) all.push_back(event["what"]);
    return all;
  }

  store::MemoryStore store_;
  uint64_t term_ = 0;
};

TEST_F(JournalTest, AnotherSchedulerGoesOn) {
  EXPECT_TRUE(read()["events"].empty());
  {
    access::AuditLog log("", "pool1");
    Journal first("pool1");
    recover(&first);
    note(&log, "ada", "drain", "role");
    note(&log, "pool1", "grant", "pool");
    keep(&first, log);
    keep(&first, log);  // nothing new
    note(&log, "bob", "release", "owner");
    keep(&first, log);
  }
  access::AuditLog log("", "pool2");
  Journal second("pool2");
  recover(&second);
  note(&log, "ada", "undrain", "role");
  keep(&second, log);
  const Json all = read();
  EXPECT_TRUE(all["before"].is_null());
  EXPECT_EQ(all["events"].size(), 4u);
  EventsQuery query;
  query.pool = false;
  EXPECT_EQ(whats(read(query)), (std::vector<std::string>{"undrain", "release", "drain"}));
  EXPECT_EQ(read(query)["events"][0]["server"], "pool2");
  query.pool = true;
  query.people = false;
  EXPECT_EQ(whats(read(query)), std::vector<std::string>{"grant"});
  query.pool = false;
  query.people = true;
  query.id = "ada";
  EXPECT_EQ(whats(read(query)), (std::vector<std::string>{"undrain", "drain"}));
  query.id = "eve";
  EXPECT_TRUE(read(query)["events"].empty());
}

TEST_F(JournalTest, OlderOnesFollowPageByPage) {
  access::AuditLog log("", "pool1");
  Journal journal("pool1");
  recover(&journal);
  for (int i = 0; i < 300; ++i) {
    note(&log, "pool1", std::to_string(i), "pool");
    if (i % 50 == 49) keep(&journal, log);
  }
  EventsQuery query;
  query.limit = 7;
  std::vector<std::string> seen;
  for (int pages = 0; pages < 1000; ++pages) {
    const Json page = read(query);
    for (const std::string& what : whats(page)) seen.push_back(what);
    if (page["before"].is_null()) break;
    query.before_ms = page["before"];
  }
  ASSERT_EQ(seen.size(), 300u);
  for (int i = 0; i < 300; ++i) EXPECT_EQ(seen[size_t(i)], std::to_string(299 - i));
}

TEST_F(JournalTest, TheStoreDoesNotGrow) {
  access::AuditLog log("", "pool1");
  Journal journal("pool1");
  recover(&journal);
  const std::string padding(400, 'x');
  size_t lines = 0;
  while (lines * padding.size() < (kJournalRecords + 50) * kJournalRecordBytes) {
    for (size_t i = 0; i < kJournalLinesAtOnce; ++i)
      note(&log, "pool1", std::to_string(lines++) + padding, "pool");
    keep(&journal, log);
  }
  EXPECT_EQ(stored().size(), kJournalRecords + 1);
  size_t bytes = 0;
  for (const store::Entry& entry : stored()) bytes += entry.value.size();
  EXPECT_LT(bytes, kJournalRecords * (kJournalRecordBytes + 4096));
  EventsQuery query;
  query.limit = 1;
  EXPECT_EQ(whats(read(query))[0].substr(0, 6), (std::to_string(lines - 1) + padding).substr(0, 6));
}

TEST_F(JournalTest, WhoMakesTooManyIsCountedAndPushesNobodyOut) {
  access::AuditLog log("", "pool1");
  Journal journal("pool1");
  recover(&journal);
  note(&log, "ada", "apply", "role");
  for (int second = 0; second < 100; ++second) {
    for (int i = 0; i < 50; ++i) note(&log, "eve", "request", "role");
    keep(&journal, log, second * kSecondMs);
  }
  EventsQuery query;
  query.limit = 1000;
  query.id = "eve";
  EXPECT_LE(read(query)["events"].size(), kJournalBurst + 100);
  EXPECT_GE(read(query)["events"].size(), kJournalBurst);
  // Where all have one name, because one secret is all that they prove, other acts are there.
  note(&log, "eve", "drain", "role");
  for (int i = 0; i < 50; ++i) note(&log, "eve", "request", "role");
  keep(&journal, log, 100 * kSecondMs);
  EXPECT_EQ(whats(read(query))[1], "drain");
  query.id = "ada";
  EXPECT_EQ(read(query)["events"].size(), 1u);
  query.id = "pool1";
  const Json left_out = read(query)["events"][0];
  EXPECT_EQ(left_out["what"], "left out");
  EXPECT_EQ(left_out["object"], "49 lines");
}

TEST_F(JournalTest, WhatIsDamagedIsLeftOut) {
  access::AuditLog log("", "pool1");
  Journal journal("pool1");
  recover(&journal);
  const std::string padding(400, 'x');
  for (int i = 0; i < 100; ++i) {
    note(&log, "pool1", "line " + padding, "pool");
    if (i % 20 == 19) keep(&journal, log);
  }
  const size_t all = read()["events"].size();
  const std::vector<store::Entry> entries = stored();
  ASSERT_GE(entries.size(), 4u);
  pool::EventsRecord spoilt;
  spoilt.number = 2;
  spoilt.events = {{1, "pool1", "{\"what\":"}};
  ASSERT_TRUE(store_
                  .write(term_,
                         {{entries[0].key, "x", std::nullopt},
                          {entries[1].key, pool::pack(spoilt), std::nullopt}},
                         base::Deadline(5000))
                  .ok());
  const size_t left = read()["events"].size();
  EXPECT_LT(left, all);
  EXPECT_GT(left, 0u);
}

TEST(EventsQuery, SaysWhatItTakes) {
  auto query = parse_events_query({"kind=people", "before=17", "limit=5000"});
  ASSERT_TRUE(query.ok());
  EXPECT_FALSE(query->pool);
  EXPECT_EQ(query->before_ms, 17u);
  EXPECT_EQ(query->limit, 1000u);
  for (const char* const odd : {"kind=", "before=x", "limit=0", "limit=-1", "x=1", ""})
    EXPECT_FALSE(parse_events_query({odd}).ok()) << odd;
}

}  // namespace
}  // namespace tendril::scheduler
