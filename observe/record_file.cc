// SPDX-License-Identifier: Apache-2.0
// See record_file.h.
#include "observe/record_file.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <cmath>
#include <cstring>

#include "base/fd.h"
#include "store/sqlite_file.h"

namespace tendril::observe {

using base::Code;
using base::Result;
using base::Status;
using store::SqliteFile;
using store::SqliteUse;
using store::Statement;

namespace {

constexpr uint64_t kApplication = 0x546e4f62;  // in the file's head
constexpr uint64_t kVersion = 1;
constexpr char kAdvice[] =
    "Keep a copy of the file. `sqlite3 FILE .recover` may save a part of it; move it away to begin "
    "a new one";

constexpr char kMakeTables[] =
    "CREATE TABLE about (server TEXT NOT NULL);"
    "CREATE TABLE gpus (gpu INTEGER PRIMARY KEY, uuid TEXT NOT NULL UNIQUE, name TEXT NOT NULL,"
    " memory_bytes INTEGER NOT NULL);"
    "CREATE TABLE programs (program INTEGER PRIMARY KEY, user TEXT NOT NULL,"
    " container TEXT NOT NULL, job TEXT NOT NULL, UNIQUE (user, container, job));"
    "CREATE TABLE gpu_minutes (at_s INTEGER, gpu INTEGER, seconds INTEGER NOT NULL,"
    " busy_millionths INTEGER NOT NULL, memory_bytes INTEGER NOT NULL,"
    " power_mw INTEGER NOT NULL, PRIMARY KEY (at_s, gpu)) WITHOUT ROWID;"
    "CREATE TABLE program_minutes (at_s INTEGER, gpu INTEGER, program INTEGER,"
    " seconds INTEGER NOT NULL, busy_millionths INTEGER NOT NULL, memory_bytes INTEGER NOT NULL,"
    " PRIMARY KEY (at_s, gpu, program)) WITHOUT ROWID;";

// Means of two parts of a minute, by their seconds. Negative: unknown.
#define TENDRIL_JOINED_MEAN(column)                                                  \
#column "=CASE WHEN excluded." #column "<0 THEN " #column " WHEN " #column         \
          "<0 THEN excluded." #column " ELSE (" #column "*seconds+excluded." #column \
          "*excluded.seconds)/(seconds+excluded.seconds) END,"
constexpr char kPutGpu[] =
    "INSERT INTO gpu_minutes VALUES(?1,?2,?3,?4,?5,?6) ON CONFLICT DO UPDATE "
    "SET " TENDRIL_JOINED_MEAN(busy_millionths) TENDRIL_JOINED_MEAN(power_mw)
    "memory_bytes=max(memory_bytes,excluded.memory_bytes),seconds=seconds+excluded.seconds";
constexpr char kPutProgram[] =
    "INSERT INTO program_minutes VALUES(?1,?2,?3,?4,?5,?6) ON CONFLICT DO UPDATE "
    "SET " TENDRIL_JOINED_MEAN(busy_millionths)
    "memory_bytes=max(memory_bytes,excluded.memory_bytes),seconds=seconds+excluded.seconds";
#undef TENDRIL_JOINED_MEAN

uint64_t millionths(double part) {
  return part < 0 ? uint64_t(int64_t{-1}) : static_cast<uint64_t>(std::lround(part * 1e6));
}

Result<uint64_t> number_of(SqliteFile& file, const char* question) {
  Statement asked(file, question);
  Result<bool> row = asked.step();
  if (!row.ok()) return row.status();
  return *row ? asked.number(0) : 0;
}

// Whether it is one of ours. `empty`: nothing is in it.
Status judge(SqliteFile& file, const std::string& path, bool* empty) {
  auto application = number_of(file, "PRAGMA application_id");
  if (!application.ok()) return application.status();
  auto version = number_of(file, "PRAGMA user_version");
  if (!version.ok()) return version.status();
  auto tables = number_of(file, "SELECT count(*) FROM sqlite_master");
  if (!tables.ok()) return tables.status();
  *empty = *application == 0 && *tables == 0;
  if (*empty) return {};
  if (*application != kApplication)
    return Status(Code::kUnsupported, path + " is no file of 'tendril observe'");
  if (*version > kVersion)
    return Status(Code::kUnsupported, path + " was written by a newer Tendril");
  return {};
}

class SqliteRecordFile : public RecordFile {
 public:
  Status open(const std::string& path, const std::string& server) {
    const std::string lock_path = path + ".lock";
    lock_ = base::Fd(::open(lock_path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600));
    if (!lock_.valid())
      return base::errno_status(Code::kRefused, ("opening " + lock_path).c_str(), errno);
    if (flock(lock_.get(), LOCK_EX | LOCK_NB) != 0)
      return Status(Code::kUnavailable, "another 'tendril observe' records into " + path +
                                            "; end it, or name another file");
    Status done = file_.open(path, SqliteUse::kRecords);
    bool empty = false;
    if (done.ok()) done = judge(file_, path, &empty);
    return done.ok() && empty ? make(server) : done;
  }

  Status write(const std::vector<GpuMinute>& minutes) override {
    Status done = file_.still_there();
    if (!done.ok()) return done;
    store::Transaction together(file_);
    done = together.begin();
    for (const GpuMinute& minute : minutes)
      if (done.ok()) done = put(minute);
    return done.ok() ? together.commit() : done;
  }

  Status forget_before(int64_t at_s) override {
    for (const char* const table : {"gpu_minutes", "program_minutes"}) {
      Statement old(file_, (std::string("DELETE FROM ") + table + " WHERE at_s<?").c_str());
      const Status done = old.bind(1, static_cast<uint64_t>(at_s)).run();
      if (!done.ok()) return done;
    }
    return file_.run(
        "DELETE FROM programs WHERE program NOT IN (SELECT program FROM program_minutes)");
  }

 private:
  Status make(const std::string& server) {
    store::Transaction together(file_);
    Status done = together.begin();
    if (done.ok()) done = file_.run(kMakeTables);
    Statement named(file_, "INSERT INTO about VALUES (CAST(? AS TEXT))");
    if (done.ok()) done = named.bind(1, server).run();
    const std::string head = "PRAGMA application_id=" + std::to_string(kApplication) +
                             ";PRAGMA user_version=" + std::to_string(kVersion);
    if (done.ok()) done = file_.run(head.c_str());
    return done.ok() ? together.commit() : done;
  }

  Result<uint64_t> gpu_number(const GpuMinute& minute) {
    Statement put(file_,
                  "INSERT INTO gpus (uuid,name,memory_bytes) VALUES (CAST(?1 AS TEXT),"
                  "CAST(?2 AS TEXT),?3) ON CONFLICT DO UPDATE SET name=excluded.name,"
                  "memory_bytes=excluded.memory_bytes");
    const Status done =
        put.bind(1, minute.gpu).bind(2, minute.name).bind(3, minute.memory_total_bytes).run();
    if (!done.ok()) return done;
    Statement found(file_, "SELECT gpu FROM gpus WHERE uuid=CAST(? AS TEXT)");
    Result<bool> row = found.bind(1, minute.gpu).step();
    if (!row.ok()) return row.status();
    return found.number(0);
  }

  Result<uint64_t> program_number(const Owner& owner) {
    for (const char* const text :
         {"INSERT INTO programs (user,container,job) VALUES (CAST(?1 AS TEXT),CAST(?2 AS TEXT),"
          "CAST(?3 AS TEXT)) ON CONFLICT DO NOTHING",
          "SELECT program FROM programs WHERE user=CAST(?1 AS TEXT) AND container=CAST(?2 AS TEXT)"
          " AND job=CAST(?3 AS TEXT)"}) {
      Statement one(file_, text);
      Result<bool> row = one.bind(1, owner.user).bind(2, owner.container).bind(3, owner.job).step();
      if (!row.ok()) return row.status();
      if (*row) return one.number(0);
    }
    return Status(Code::kInternal, file_.path() + " lost a row while it was written");
  }

  Status put(const GpuMinute& minute) {
    Result<uint64_t> gpu = gpu_number(minute);
    if (!gpu.ok()) return gpu.status();
    const auto at_s = static_cast<uint64_t>(minute.at_s);
    Statement whole(file_, kPutGpu);
    const double power_mw = minute.power_w < 0 ? -1 : minute.power_w * 1000;
    Status done = whole.bind(1, at_s)
                      .bind(2, *gpu)
                      .bind(3, uint64_t{minute.looks})
                      .bind(4, millionths(minute.busy))
                      .bind(5, minute.memory_bytes)
                      .bind(6, static_cast<uint64_t>(std::lround(power_mw)))
                      .run();
    for (const ProgramMinute& program : minute.programs) {
      if (!done.ok()) return done;
      Result<uint64_t> number = program_number(program.owner);
      if (!number.ok()) return number.status();
      Statement part(file_, kPutProgram);
      done = part.bind(1, at_s)
                 .bind(2, *gpu)
                 .bind(3, *number)
                 .bind(4, uint64_t{program.looks})
                 .bind(5, millionths(program.busy))
                 .bind(6, program.memory_bytes)
                 .run();
    }
    return done;
  }

  SqliteFile file_{kAdvice};
  base::Fd lock_;
};

}  // namespace

Result<std::unique_ptr<RecordFile>> RecordFile::open(const std::string& path,
                                                     const std::string& server) {
  auto file = std::make_unique<SqliteRecordFile>();
  const Status done = file->open(path, server);
  if (!done.ok()) return done;
  return std::unique_ptr<RecordFile>(std::move(file));
}

bool is_record_file(const std::string& path) {
  constexpr char kHead[] = "SQLite format 3";
  char head[sizeof kHead] = {};
  const base::Fd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  return file.valid() && read(file.get(), head, sizeof head) == sizeof head &&
         memcmp(head, kHead, sizeof head) == 0;
}

Status read_record_file(const std::string& path,
                        const std::function<Status(const RecordRow&)>& take) {
  SqliteFile file{kAdvice};
  Status done = file.open(path, SqliteUse::kRead);
  if (!done.ok()) return done;
  bool empty = false;
  done = judge(file, path, &empty);
  if (!done.ok()) return done;
  // What is no table could take any time.
  auto tables = number_of(file,
                          "SELECT count(*) FROM sqlite_master WHERE type='table' AND sql NOT LIKE "
                          "'CREATE VIRTUAL%' AND "
                          "name IN ('about','gpus','programs','program_minutes')");
  if (!tables.ok()) return tables.status();
  if (*tables != 4) return Status(Code::kInvalid, path + " has no records of 'tendril observe'");
  Statement rows(file,
                 "SELECT at_s, (SELECT server FROM about), uuid, user, container, job,"
                 " busy_millionths, program_minutes.memory_bytes FROM program_minutes"
                 " JOIN gpus USING (gpu) JOIN programs USING (program) ORDER BY at_s");
  for (;;) {
    Result<bool> found = rows.step();
    if (!found.ok()) return found.status();
    if (!*found) return {};
    RecordRow row;
    row.at_s = static_cast<int64_t>(rows.number(0));
    row.server = rows.bytes(1);
    row.gpu = rows.bytes(2);
    row.user = rows.bytes(3);
    row.container = rows.bytes(4);
    row.job = rows.bytes(5);
    row.busy_millionths = static_cast<int64_t>(rows.number(6));
    row.memory_bytes = static_cast<int64_t>(rows.number(7));
    const Status taken = take(row);
    if (!taken.ok()) return taken;
  }
}

}  // namespace tendril::observe
