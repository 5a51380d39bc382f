// SPDX-License-Identifier: Apache-2.0
// See sqlite_file.h.
#include "store/sqlite_file.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>

#include <cmath>
#include <cstring>

#include "base/fd.h"
#include "base/text.h"

// SQLite's functions exp, log and pow of SQL, which the store never calls, would need a younger C
// library than the oldest that we run on. store/CMakeLists.txt gives them these names.
extern "C" {
double tendril_sqlite_exp(double);
double tendril_sqlite_log(double);
double tendril_sqlite_pow(double, double);
double tendril_sqlite_exp(double) { return NAN; }
double tendril_sqlite_log(double) { return NAN; }
double tendril_sqlite_pow(double, double) { return NAN; }
}

namespace tendril::store {

using base::Code;
using base::Deadline;
using base::Result;
using base::Status;

namespace {

// Makes an empty file that only this user can read. An existing one is not opened: closing it would
// end the locks that SQLite has on it in this process.
Status make_file(const std::string& path) {
  struct stat found;
  if (stat(path.c_str(), &found) == 0) {
    if (S_ISREG(found.st_mode)) return Status();
    return Status(Code::kInvalid, "sqlite:" + path + ": this is no file");
  }
  const base::Fd made(
      open(path.c_str(), O_CREAT | O_EXCL | O_WRONLY | O_CLOEXEC | O_NOFOLLOW, 0600));
  if (made.valid() || errno == EEXIST) return Status();
  const Code code = errno == ENOSPC ? Code::kExhausted : Code::kNotFound;
  return Status(code, "sqlite:" + path + ": the file cannot be made: " + strerror(errno) +
                          "; its folder must exist and belong to this user");
}

}  // namespace

SqliteFile::~SqliteFile() { sqlite3_close_v2(database_); }

Status SqliteFile::open(const std::string& path, SqliteUse use) {
  path_ = path;
  if (use != SqliteUse::kRead) {
    const Status made = make_file(path);
    if (!made.ok()) return made;
  }
  const int access =
      use == SqliteUse::kRead ? SQLITE_OPEN_READONLY : SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE;
  const int code = sqlite3_open_v2(path.c_str(), &database_,
                                   access | SQLITE_OPEN_NOMUTEX | SQLITE_OPEN_EXRESCODE, nullptr);
  if (code != SQLITE_OK) return failure(code);
  struct stat found;
  if (stat(path.c_str(), &found) != 0)
    return base::errno_status(Code::kNotFound, ("sqlite:" + path).c_str(), errno);
  device_ = found.st_dev;
  inode_ = found.st_ino;
  sqlite3_db_config(database_, SQLITE_DBCONFIG_DEFENSIVE, 1, nullptr);
  sqlite3_db_config(database_, SQLITE_DBCONFIG_TRUSTED_SCHEMA, 0, nullptr);
  wait_at_most(Deadline(5000));
  const Status careful = run("PRAGMA cell_size_check=ON");
  if (use == SqliteUse::kRead || !careful.ok()) return careful;
  // FULL: each commit waits for the disk.
  return run(use == SqliteUse::kStore ? "PRAGMA journal_mode=WAL; PRAGMA synchronous=FULL;"
                                        "PRAGMA journal_size_limit=67108864"
                                      : "PRAGMA journal_mode=DELETE; PRAGMA synchronous=FULL");
}

Status SqliteFile::run(const char* text) {
  const int code = sqlite3_exec(database_, text, nullptr, nullptr, nullptr);
  return code == SQLITE_OK ? Status() : failure(code);
}

void SqliteFile::wait_at_most(const Deadline& deadline) {
  const int left_ms = deadline.left_ms();
  sqlite3_busy_timeout(database_, left_ms < 0 ? 60'000 : left_ms);
}

Status SqliteFile::failure(int code) const {
  const std::string who = "sqlite:" + path_ + ": ";
  const int error = database_ == nullptr ? 0 : sqlite3_system_errno(database_);
  const std::string system = error == 0 ? "" : std::string(" (") + strerror(error) + ")";
  switch (code & 0xff) {
    case SQLITE_FULL:
      return Status(Code::kExhausted, who + "the disk is full" + system +
                                          "; nothing more is stored until there is room");
    case SQLITE_NOMEM:
      return Status(Code::kExhausted, who + "there is no memory left");
    case SQLITE_BUSY:
    case SQLITE_LOCKED:
      return Status(Code::kUnavailable, who + "another process uses the file for too long");
    case SQLITE_IOERR:
      return Status(error == ENOSPC || error == EDQUOT ? Code::kExhausted : Code::kTimeout,
                    who + "the disk does not do what it must" + system);
    case SQLITE_CORRUPT:
    case SQLITE_NOTADB:
      return Status(Code::kInternal,
                    who + "the file is damaged (" + sqlite3_errstr(code) + "). " + advice_);
    case SQLITE_READONLY:
    case SQLITE_PERM:
    case SQLITE_AUTH:
      return Status(Code::kRefused, who + "this user may not write the file and its folder");
    case SQLITE_CANTOPEN:
      return Status(Code::kNotFound, who + "the file cannot be opened" + system +
                                         "; it and its folder must belong to this user");
    case SQLITE_TOOBIG:
      return Status(Code::kInvalid, who + "a value is too large");
    default:
      return Status(Code::kInternal, who + sqlite3_errstr(code) + ", " +
                                         (database_ == nullptr ? "" : sqlite3_errmsg(database_)));
  }
}

Status SqliteFile::still_there() const {
  struct stat found;
  const bool is_there = stat(path_.c_str(), &found) == 0;
  if (is_there && found.st_dev == device_ && found.st_ino == inode_) return Status();
  return Status(Code::kInternal, "sqlite:" + path_ + ": the file was " +
                                     (is_there ? "replaced" : "taken away") +
                                     " while it was used; put it back, or start again");
}

Statement::Statement(SqliteFile& file, const char* text) : file_(file) {
  code_ = sqlite3_prepare_v2(file.get(), text, -1, &statement_, nullptr);
}

Statement::~Statement() { sqlite3_finalize(statement_); }

Statement& Statement::bind(int at, const std::string& bytes) {
  const char* data = bytes.empty() ? "" : bytes.data();  // null would be NULL, not nothing
  if (code_ == SQLITE_OK)
    code_ = sqlite3_bind_blob64(statement_, at, data, bytes.size(), SQLITE_STATIC);
  return *this;
}

Statement& Statement::bind(int at, uint64_t number) {
  if (code_ == SQLITE_OK) code_ = sqlite3_bind_int64(statement_, at, sqlite3_int64(number));
  return *this;
}

Result<bool> Statement::step() {
  if (code_ != SQLITE_OK) return file_.failure(code_);
  const int code = sqlite3_step(statement_);
  if (code == SQLITE_ROW) return true;
  if (code == SQLITE_DONE) return false;
  code_ = code;
  return file_.failure(code);
}

Status Statement::run() {
  const Result<bool> done = step();
  sqlite3_reset(statement_);
  return done.ok() ? Status() : done.status();
}

std::string Statement::bytes(int column) const {
  const void* data = sqlite3_column_blob(statement_, column);
  const int size = sqlite3_column_bytes(statement_, column);
  return data == nullptr || size <= 0 ? std::string()
                                      : std::string(static_cast<const char*>(data), size_t(size));
}

uint64_t Statement::number(int column) const {
  return uint64_t(sqlite3_column_int64(statement_, column));
}

Transaction::~Transaction() {
  if (open_) sqlite3_exec(file_.get(), "ROLLBACK", nullptr, nullptr, nullptr);
}

Status Transaction::begin() {
  const Status begun = file_.run("BEGIN IMMEDIATE");
  open_ = begun.ok();
  return begun;
}

Status Transaction::commit() {
  const Status done = file_.run("COMMIT");
  // Some failures have rolled it back already, others leave it open.
  open_ = !done.ok() && sqlite3_get_autocommit(file_.get()) == 0;
  return done;
}

}  // namespace tendril::store
