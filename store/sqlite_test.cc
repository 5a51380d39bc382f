// SPDX-License-Identifier: Apache-2.0
// The suite of all stores on SQLite, and what only a file can suffer: a full disk, damage, a killed
// process.
#include "store/sqlite.h"

#include <signal.h>
#include <sqlite3/sqlite3.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <fstream>

#include "store/store_suite.h"
#include "store/testing/folder.h"

namespace tendril::store {

using base::Code;
using base::Deadline;

namespace {

class SqliteWorld : public World {
 public:
  std::unique_ptr<Store> open() override {
    auto opened = open_sqlite(folder_ / "pool.db");
    EXPECT_TRUE(opened.ok()) << opened.status().message();
    return opened.ok() ? opened.take() : nullptr;
  }

 private:
  Folder folder_;
};

std::unique_ptr<Store> opened(const std::string& path, const SqliteOptions& options = {}) {
  auto store = open_sqlite(path, options);
  EXPECT_TRUE(store.ok()) << store.status().message();
  return store.ok() ? store.take() : nullptr;
}

uint64_t elected(Store& store) {
  const auto now = store.campaign("one", 5000, Deadline(1000));
  EXPECT_TRUE(now.ok() && now.value().mine) << now.status().message();
  return now.ok() ? now.value().term : 0;
}

// Writes batches of two equal keys until one is refused, and gives the number of each that was
// acknowledged to `acknowledged`. Answers why it ended.
template <typename Acknowledged>
base::Status write_batches(Store& store, uint64_t term, size_t bytes, Acknowledged acknowledged) {
  for (uint32_t number = 0;; ++number) {
    const std::string name = std::to_string(10'000'000 + number);
    const std::string value(bytes, char('a' + number % 26));
    const base::Status done = store.write(
        term, {{"left/" + name, value, {}}, {"right/" + name, value, {}}}, Deadline(5000));
    if (!done.ok()) return done;
    acknowledged(number + 1);
  }
}

// The number of batches in the store, which must be whole.
size_t whole_batches(Store& store) {
  const auto left = list_all(store, "left/", Deadline(5000));
  const auto right = list_all(store, "right/", Deadline(5000));
  EXPECT_TRUE(left.ok() && right.ok()) << left.status().message();
  if (!left.ok() || !right.ok()) return 0;
  EXPECT_EQ(left.value().size(), right.value().size());
  for (size_t i = 0; i < left.value().size() && i < right.value().size(); ++i)
    EXPECT_EQ(left.value()[i].value, right.value()[i].value);
  return left.value().size();
}

void sql(const std::string& path, const char* text) {
  sqlite3* database = nullptr;
  ASSERT_EQ(sqlite3_open(path.c_str(), &database), SQLITE_OK);
  EXPECT_EQ(sqlite3_exec(database, text, nullptr, nullptr, nullptr), SQLITE_OK);
  sqlite3_close(database);
}

}  // namespace

INSTANTIATE_TEST_SUITE_P(Sqlite, StoreSuite,
                         testing::Values(Kind{"sqlite",
                                              [] { return std::make_unique<SqliteWorld>(); }}),
                         kind_name);

TEST(Sqlite, OutlivesItsProcess) {
  const Folder folder;
  const std::string path = folder / "pool.db";
  uint64_t term = 0;
  {
    const auto store = opened(path);
    term = elected(*store);
    ASSERT_TRUE(store->write(term, {{"a", "1", {}}}, Deadline(1000)).ok());
  }
  const auto store = opened(path);
  EXPECT_EQ(store->get("a", Deadline(1000))->value, "1");
  EXPECT_FALSE(store->leader(Deadline(1000))->held);
  EXPECT_GT(elected(*store), term);
  struct stat found;
  ASSERT_EQ(stat(path.c_str(), &found), 0);
  EXPECT_EQ(found.st_mode & 0777, 0600u);
  ASSERT_EQ(stat((path + "-wal").c_str(), &found), 0);
  EXPECT_EQ(found.st_mode & 0777, 0600u);
}

TEST(Sqlite, AKilledProcessLosesNothingAcknowledgedAndFreesTheLock) {
  const Folder folder;
  const std::string path = folder / "pool.db";
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  const pid_t child = fork();
  if (child == 0) {
    close(ends[0]);
    const auto store = open_sqlite(path);
    if (!store.ok()) _exit(1);
    const uint64_t term = elected(*store.value());
    (void)write_batches(*store.value(), term, 300, [&](uint32_t count) {
      if (write(ends[1], &count, sizeof count) != sizeof count) _exit(2);
    }).ok();
    _exit(3);
  }
  close(ends[1]);
  uint32_t acknowledged = 0;
  while (acknowledged < 50 && read(ends[0], &acknowledged, sizeof acknowledged) > 0) continue;
  {
    const auto other = opened(path);  // meanwhile the lock is the child's
    const auto now = other->campaign("two", 5000, Deadline(1000));
    ASSERT_TRUE(now.ok());
    EXPECT_FALSE(now.value().mine);
    EXPECT_EQ(now.value().holder, "one");
  }
  kill(child, SIGKILL);
  ASSERT_EQ(waitpid(child, nullptr, 0), child);
  while (read(ends[0], &acknowledged, sizeof acknowledged) > 0) continue;
  close(ends[0]);
  const auto store = opened(path);
  const size_t kept = whole_batches(*store);
  EXPECT_GE(kept, acknowledged);
  EXPECT_LE(kept, acknowledged + 1);
  EXPECT_EQ(elected(*store), 2u);
}

TEST(Sqlite, AFullStoreSaysSoAndLosesNothing) {
  const Folder folder;
  const std::string path = folder / "pool.db";
  {
    const auto store = opened(path, {.pages_max = 60});
    const uint64_t term = elected(*store);
    size_t acknowledged = 0;
    const base::Status full =
        write_batches(*store, term, 3000, [&](uint32_t count) { acknowledged = count; });
    EXPECT_EQ(full.code(), Code::kExhausted);
    EXPECT_NE(full.message().find("the disk is full"), std::string::npos) << full.message();
    EXPECT_TRUE(worth_repeating(full));
    EXPECT_EQ(whole_batches(*store), acknowledged);
    EXPECT_TRUE(store->keep(term, Deadline(1000)).ok());
    // With room it goes on.
    ASSERT_TRUE(
        store->write(term, {{"left/10000000", {}, {}}, {"right/10000000", {}, {}}}, Deadline(1000))
            .ok());
    EXPECT_TRUE(store->write(term, {{"small", "x", {}}}, Deadline(1000)).ok());
  }
  EXPECT_EQ(opened(path)->get("small", Deadline(1000))->value, "x");
}

// The system refuses to make any file larger than 200 KB, in the middle of a commit.
TEST(Sqlite, AWriteThatFailsHalfWayLeavesNothing) {
  const Folder folder;
  const std::string path = folder / "pool.db";
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  const pid_t child = fork();
  if (child == 0) {
    signal(SIGXFSZ, SIG_IGN);
    const rlimit most{200'000, 200'000};
    setrlimit(RLIMIT_FSIZE, &most);
    const auto store = open_sqlite(path);
    if (!store.ok()) _exit(1);
    const uint64_t term = elected(*store.value());
    uint32_t acknowledged = 0;
    const base::Status failed =
        write_batches(*store.value(), term, 3000, [&](uint32_t count) { acknowledged = count; });
    if (!worth_repeating(failed)) _exit(2);
    if (whole_batches(*store.value()) != acknowledged) _exit(3);
    if (write(ends[1], &acknowledged, sizeof acknowledged) != sizeof acknowledged) _exit(4);
    _exit(testing::Test::HasFailure() ? 5 : 0);
  }
  close(ends[1]);
  uint32_t acknowledged = 0;
  ASSERT_EQ(read(ends[0], &acknowledged, sizeof acknowledged), ssize_t{sizeof acknowledged});
  close(ends[0]);
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  EXPECT_GT(acknowledged, 5u);
  EXPECT_EQ(whole_batches(*opened(path)), acknowledged);
}

TEST(Sqlite, DamageIsToldWithWhatToDo) {
  const Folder folder;
  const std::string path = folder / "pool.db";
  {
    const auto store = opened(path);
    const uint64_t term = elected(*store);
    for (int i = 0; i < 40; ++i)
      ASSERT_TRUE(
          store->write(term, {{std::to_string(i), std::string(900, 'x'), {}}}, Deadline(1000))
              .ok());
  }
  {
    std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(4096 * 3);
    file << std::string(8192, '\x5a');
  }
  const auto damaged = open_sqlite(path);
  ASSERT_FALSE(damaged.ok());
  EXPECT_EQ(damaged.status().code(), Code::kInternal);
  EXPECT_NE(damaged.status().message().find(".recover"), std::string::npos);
  EXPECT_NE(damaged.status().message().find(path), std::string::npos);
  EXPECT_FALSE(worth_repeating(damaged.status()));

  std::ofstream(folder / "text") << std::string(5000, 'x');
  EXPECT_EQ(open_sqlite(folder / "text").status().code(), Code::kInternal);
}

TEST(Sqlite, WhatIsNotOursIsLeftAlone) {
  const Folder folder;
  sql(folder / "other.db", "CREATE TABLE guests (name)");
  const auto other = open_sqlite(folder / "other.db");
  EXPECT_EQ(other.status().code(), Code::kUnsupported);
  EXPECT_NE(other.status().message().find("another program"), std::string::npos);
  opened(folder / "newer.db");
  sql(folder / "newer.db", "PRAGMA user_version = 2");
  const auto newer = open_sqlite(folder / "newer.db");
  EXPECT_EQ(newer.status().code(), Code::kUnsupported);
  EXPECT_NE(newer.status().message().find("newer Tendril"), std::string::npos);
  EXPECT_EQ(open_sqlite(folder / "no/such/folder.db").status().code(), Code::kNotFound);
  EXPECT_EQ(open_sqlite(folder.path()).status().code(), Code::kInvalid);
}

TEST(Sqlite, AFileThatIsTakenAwayIsMissed) {
  const Folder folder;
  const std::string path = folder / "pool.db";
  const auto store = opened(path);
  const uint64_t term = elected(*store);
  ASSERT_EQ(rename(path.c_str(), (folder / "elsewhere").c_str()), 0);
  const base::Status gone = store->write(term, {{"a", "1", {}}}, Deadline(1000));
  EXPECT_EQ(gone.code(), Code::kInternal);
  EXPECT_NE(gone.message().find("taken away"), std::string::npos) << gone.message();
  EXPECT_FALSE(store->keep(term, Deadline(1000)).ok());
}

}  // namespace tendril::store
