// SPDX-License-Identifier: Apache-2.0
// SQLite's objects with owners, and its errors as Status. For sqlite.cc, and for other files of
// ours (observe/). One thread at a time.
#pragma once

#include <sqlite3/sqlite3.h>

#include <cstdint>
#include <string>

#include "base/clock.h"
#include "base/result.h"

namespace tendril::store {

// What a file is opened for.
enum class SqliteUse : uint8_t {
  kStore,    // a journal that lets others read at once; made if it is not there
  kRecords,  // one file that may be copied elsewhere; made if it is not there
  kRead,     // it must be there, and is not changed
};

// What to do about a store's file that is damaged.
inline constexpr char kStoreAdvice[] =
    "Stop the scheduler and keep a copy of the file. Then put a backup in its place, or what "
    "`sqlite3 FILE .recover` makes of it, or move it away: an empty store has no policy, queue or "
    "accounting, and programs go on";

// An open database. It is set up for its use; knows no tables.
class SqliteFile {
 public:
  // `advice` must outlive it.
  explicit SqliteFile(const char* advice = kStoreAdvice) : advice_(advice) {}
  SqliteFile(const SqliteFile&) = delete;
  SqliteFile& operator=(const SqliteFile&) = delete;
  ~SqliteFile();

  base::Status open(const std::string& path, SqliteUse use = SqliteUse::kStore);
  // Runs text that has no answer, one statement or several.
  base::Status run(const char* text);
  // SQLite waits until then for other processes that use the file.
  void wait_at_most(const base::Deadline& deadline);
  // What a result code other than SQLITE_OK, SQLITE_ROW and SQLITE_DONE means.
  base::Status failure(int code) const;
  // Whether the file is still at its path. SQLite would go on with a file that was deleted, and
  // lose everything.
  base::Status still_there() const;

  sqlite3* get() const { return database_; }
  const std::string& path() const { return path_; }

 private:
  const char* advice_;
  std::string path_;
  sqlite3* database_ = nullptr;
  uint64_t device_ = 0, inode_ = 0;
};

// One prepared statement. Bound text and bytes must live until the last step.
class Statement {
 public:
  Statement(SqliteFile& file, const char* text);
  Statement(const Statement&) = delete;
  Statement& operator=(const Statement&) = delete;
  ~Statement();

  Statement& bind(int at, const std::string& bytes);
  Statement& bind(int at, uint64_t number);
  // True: a row is there. False: no more rows.
  base::Result<bool> step();
  // For a statement without rows: runs it, and may run again with other values.
  base::Status run();

  std::string bytes(int column) const;
  uint64_t number(int column) const;

 private:
  SqliteFile& file_;
  sqlite3_stmt* statement_ = nullptr;
  int code_ = SQLITE_OK;  // the first failure
};

// A transaction that is rolled back unless it was committed.
class Transaction {
 public:
  explicit Transaction(SqliteFile& file) : file_(file) {}
  Transaction(const Transaction&) = delete;
  Transaction& operator=(const Transaction&) = delete;
  ~Transaction();

  base::Status begin();
  // After kTimeout it may count or not.
  base::Status commit();

 private:
  SqliteFile& file_;
  bool open_ = false;
};

}  // namespace tendril::store
