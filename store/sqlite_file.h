// SPDX-License-Identifier: Apache-2.0
// Private to sqlite.cc: SQLite's objects with owners, and its errors as Status. One thread at a
// time.
#pragma once

#include <sqlite3/sqlite3.h>

#include <cstdint>
#include <string>

#include "base/clock.h"
#include "base/result.h"

namespace tendril::store {

// An open database. Prepared and set up as the store wants it; knows no tables.
class SqliteFile {
 public:
  SqliteFile() = default;
  SqliteFile(const SqliteFile&) = delete;
  SqliteFile& operator=(const SqliteFile&) = delete;
  ~SqliteFile();

  base::Status open(const std::string& path);
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
