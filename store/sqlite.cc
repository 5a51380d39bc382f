// SPDX-License-Identifier: Apache-2.0
// See sqlite.h. The lock on PATH.lock is one of an open file description, so that it can be asked
// about without being taken, and ends with the process.
#include "store/sqlite.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>

#include <cstring>
#include <mutex>
#include <utility>

#include "base/fd.h"
#include "base/text.h"
#include "store/sqlite_file.h"

namespace tendril::store {

using base::Code;
using base::Deadline;
using base::Fd;
using base::Result;
using base::Status;

namespace {

using Guard = std::lock_guard<std::mutex>;

constexpr uint64_t kApplication = 0x546e6472;  // "Tndr", in the file's head
constexpr uint64_t kVersion = 1;
constexpr size_t kPageBytesMax = 8u << 20;  // of one answer of `list`

constexpr const char* kMakeTables =
    "CREATE TABLE entries (key BLOB PRIMARY KEY NOT NULL, value BLOB NOT NULL,"
    " revision INTEGER NOT NULL) WITHOUT ROWID;"
    "CREATE TABLE state (id INTEGER PRIMARY KEY CHECK (id = 1), term INTEGER NOT NULL,"
    " holder BLOB NOT NULL, revision INTEGER NOT NULL);"
    "INSERT INTO state VALUES (1, 0, x'', 0);";

// The lock of PATH.lock.
class FileLock {
 public:
  explicit FileLock(std::string path) : path_(std::move(path)) {}

  bool held() const { return file_.valid(); }
  // True: this object has it.
  Result<bool> take() {
    Result<Fd> opened = open();
    if (!opened.ok()) return opened.status();
    struct flock whole = whole_file();
    if (fcntl(opened->get(), F_OFD_SETLK, &whole) == 0) {
      file_ = opened.take();
      return true;
    }
    if (errno == EAGAIN || errno == EACCES) return false;
    return base::errno_status(Code::kInternal, ("locking " + path_).c_str(), errno);
  }
  // Whether anybody has it.
  Result<bool> is_taken() {
    if (held()) return true;
    Result<Fd> opened = open();
    if (!opened.ok()) return opened.status();
    struct flock whole = whole_file();
    if (fcntl(opened->get(), F_OFD_GETLK, &whole) != 0)
      return base::errno_status(Code::kInternal, ("asking who locked " + path_).c_str(), errno);
    return whole.l_type != F_UNLCK;
  }
  void give_back() { file_.reset(); }

 private:
  static struct flock whole_file() {
    struct flock whole = {};
    whole.l_type = F_WRLCK;
    whole.l_whence = SEEK_SET;
    return whole;
  }
  Result<Fd> open() const {
    Fd opened(::open(path_.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600));
    if (opened.valid()) return opened;
    return Status(errno == ENOSPC ? Code::kExhausted : Code::kRefused,
                  path_ + " cannot be opened: " + strerror(errno));
  }

  const std::string path_;
  Fd file_;
};

class SqliteStore : public Store {
 public:
  explicit SqliteStore(const std::string& path) : lock_(path + ".lock") {}
  ~SqliteStore() override;

  Status open(const std::string& path, const SqliteOptions& options);

  std::string address() const override { return "sqlite:" + file_.path(); }
  Result<Entry> get(const std::string& key, const Deadline& deadline) override;
  Result<Page> list(const std::string& prefix, const std::string& after, size_t entries,
                    const Deadline& deadline) override;
  Status write(uint64_t term, const std::vector<Change>& changes,
               const Deadline& deadline) override;
  Result<Leadership> campaign(const std::string& holder, uint32_t ttl_ms,
                              const Deadline& deadline) override;
  Result<Leadership> keep(uint64_t term, const Deadline& deadline) override;
  Status resign(uint64_t term, const Deadline& deadline) override;
  Result<Leadership> leader(const Deadline& deadline) override;

 private:
  // All with mutex_ held.
  Status prepare();
  Result<bool> judge();
  Status give_back(uint64_t term);
  Status apply(uint64_t term, const std::vector<Change>& changes);
  Status check_revisions(const std::vector<Change>& changes, bool* done);
  Status put(const std::vector<Change>& changes);
  Result<Leadership> found();
  Status deposed(uint64_t term);
  std::string who() const { return "sqlite:" + file_.path() + ": "; }

  std::mutex mutex_;
  SqliteFile file_;
  FileLock lock_;
  uint64_t term_ = 0;  // ours, while lock_ is held
  uint32_t ttl_ms_ = 0;
};

SqliteStore::~SqliteStore() {
  const Guard guard(mutex_);
  if (!lock_.held()) return;
  file_.wait_at_most(Deadline(100));
  (void)give_back(term_).ok();
}

Status SqliteStore::open(const std::string& path, const SqliteOptions& options) {
  const Guard guard(mutex_);
  Status done = file_.open(path);
  if (done.ok() && options.pages_max != 0)
    done = file_.run(base::format("PRAGMA max_page_count=%u", options.pages_max).c_str());
  return done.ok() ? prepare() : done;
}

// Judges what is in the file, and makes the tables of a new one. Nothing is locked for a file that
// is in order, because its scheduler may be at work.
Status SqliteStore::prepare() {
  {
    Statement check(file_, "PRAGMA integrity_check(1)");
    Result<bool> row = check.step();
    if (!row.ok()) return row.status();
    if (!*row || check.bytes(0) != "ok") return file_.failure(SQLITE_CORRUPT);
  }
  Result<bool> is_ours = judge();
  if (!is_ours.ok() || *is_ours) return is_ours.status();
  Transaction transaction(file_);
  const Status begun = transaction.begin();
  if (!begun.ok()) return begun;
  is_ours = judge();  // another process may have been faster
  if (!is_ours.ok() || *is_ours) return is_ours.status();
  Status done = file_.run(kMakeTables);
  if (done.ok()) {
    done = file_.run(base::format("PRAGMA application_id=%llu; PRAGMA user_version=%llu",
                                  static_cast<unsigned long long>(kApplication),
                                  static_cast<unsigned long long>(kVersion))
                         .c_str());
  }
  return done.ok() ? transaction.commit() : done;
}

// True: a store of this version. False: an empty file.
Result<bool> SqliteStore::judge() {
  uint64_t application = 0, version = 0, tables = 0;
  for (auto [text, number] : {std::pair("PRAGMA application_id", &application),
                              std::pair("PRAGMA user_version", &version),
                              std::pair("SELECT count(*) FROM sqlite_schema", &tables)}) {
    Statement ask(file_, text);
    Result<bool> row = ask.step();
    if (!row.ok()) return row.status();
    *number = ask.number(0);
  }
  if (application == kApplication && version == kVersion) return true;
  if (application == kApplication && version > kVersion) {
    return Status(Code::kUnsupported,
                  who() + "a newer Tendril made this store; use that version, or another file");
  }
  if (application == 0 && tables == 0) return false;
  return Status(Code::kUnsupported,
                who() + "this is the database of another program; name another file");
}

Result<Entry> SqliteStore::get(const std::string& key, const Deadline& deadline) {
  const Status checked = check_key(key);
  if (!checked.ok()) return checked;
  const Guard guard(mutex_);
  file_.wait_at_most(deadline);
  Statement ask(file_, "SELECT value, revision FROM entries WHERE key = ?1");
  Result<bool> row = ask.bind(1, key).step();
  if (!row.ok()) return row.status();
  if (!*row) return Status(Code::kNotFound, who() + "there is no '" + base::printable(key) + "'");
  return Entry{key, ask.bytes(0), ask.number(1)};
}

Result<Page> SqliteStore::list(const std::string& prefix, const std::string& after, size_t entries,
                               const Deadline& deadline) {
  const Status checked = check_list(prefix, after, entries);
  if (!checked.ok()) return checked;
  const Guard guard(mutex_);
  file_.wait_at_most(deadline);
  Statement ask(file_,
                "SELECT key, value, revision FROM entries WHERE key > ?1 AND key >= ?2"
                " ORDER BY key LIMIT ?3");
  ask.bind(1, after).bind(2, prefix).bind(3, uint64_t{entries} + 1);
  Page page;
  size_t bytes = 0;
  for (;;) {
    Result<bool> row = ask.step();
    if (!row.ok()) return row.status();
    if (!*row) return page;
    Entry entry{ask.bytes(0), ask.bytes(1), ask.number(2)};
    if (entry.key.compare(0, prefix.size(), prefix) != 0) return page;
    bytes += entry.value.size();
    if (page.entries.size() == entries || (bytes > kPageBytesMax && !page.entries.empty())) {
      page.more = true;
      return page;
    }
    page.entries.push_back(std::move(entry));
  }
}

Status SqliteStore::write(uint64_t term, const std::vector<Change>& changes,
                          const Deadline& deadline) {
  const Status checked = check_write(changes);
  if (!checked.ok()) return checked;
  const Guard guard(mutex_);
  const Status there = file_.still_there();
  if (!there.ok()) return there;
  file_.wait_at_most(deadline);
  return apply(term, changes);
}

Status SqliteStore::apply(uint64_t term, const std::vector<Change>& changes) {
  Transaction transaction(file_);
  const Status begun = transaction.begin();
  if (!begun.ok()) return begun;
  Result<Leadership> now = found();
  if (!now.ok()) return now.status();
  if (!now->mine || now->term != term) return deposed(term);
  bool is_done = false;
  Status done = check_revisions(changes, &is_done);
  if (!done.ok() || is_done) return done;
  done = put(changes);
  return done.ok() ? transaction.commit() : done;
}

// kMismatch, unless everything is as the changes want it: then the write was applied before.
Status SqliteStore::check_revisions(const std::vector<Change>& changes, bool* done) {
  bool is_as_wanted = true;
  const Change* differs = nullptr;
  for (const Change& change : changes) {
    if (!change.revision.has_value() && differs == nullptr && !is_as_wanted) continue;
    Statement ask(file_, "SELECT value, revision FROM entries WHERE key = ?1");
    Result<bool> row = ask.bind(1, change.key).step();
    if (!row.ok()) return row.status();
    const uint64_t revision = *row ? ask.number(1) : 0;
    is_as_wanted = is_as_wanted && *row == change.value.has_value() &&
                   (!*row || ask.bytes(0) == *change.value);
    if (change.revision.has_value() && *change.revision != revision) differs = &change;
  }
  if (differs == nullptr) return Status();
  *done = is_as_wanted;
  if (is_as_wanted) return Status();
  return Status(Code::kMismatch,
                who() + "'" + base::printable(differs->key) + "' was changed by somebody else");
}

Status SqliteStore::put(const std::vector<Change>& changes) {
  Status done = file_.run("UPDATE state SET revision = revision + 1");
  if (!done.ok()) return done;
  Statement write(file_,
                  "INSERT OR REPLACE INTO entries VALUES (?1, ?2, (SELECT revision FROM state))");
  Statement erase(file_, "DELETE FROM entries WHERE key = ?1");
  for (const Change& change : changes) {
    done = change.value.has_value() ? write.bind(1, change.key).bind(2, *change.value).run()
                                    : erase.bind(1, change.key).run();
    if (!done.ok()) return done;
  }
  return Status();
}

// Who has the lock, by the kernel's lock and the row that its holder wrote.
Result<Leadership> SqliteStore::found() {
  const Result<bool> taken = lock_.is_taken();
  if (!taken.ok()) return taken.status();
  Leadership now;
  if (!taken.value()) return now;
  Statement ask(file_, "SELECT term, holder FROM state");
  Result<bool> row = ask.step();
  if (!row.ok()) return row.status();
  if (!*row) return file_.failure(SQLITE_CORRUPT);
  now.held = true;
  now.term = ask.number(0);
  now.holder = ask.bytes(1);
  now.mine = lock_.held() && now.term == term_;
  if (now.mine) now.certain_until_ns = base::now_ns() + uint64_t{ttl_ms_} * 1'000'000;
  return now;
}

Status SqliteStore::deposed(uint64_t term) {
  Result<Leadership> now = found();
  return Status(
      Code::kRefused,
      who() + base::format("term %llu is over: ", static_cast<unsigned long long>(term)) +
          (now.ok() && now->held ? base::printable(now->holder) +
                                       base::format(" schedules since term %llu",
                                                    static_cast<unsigned long long>(now->term))
                                 : "nobody schedules now"));
}

Result<Leadership> SqliteStore::campaign(const std::string& holder, uint32_t ttl_ms,
                                         const Deadline& deadline) {
  Status done = check_campaign(holder, ttl_ms);
  if (!done.ok()) return done;
  const Guard guard(mutex_);
  done = file_.still_there();
  if (!done.ok()) return done;
  file_.wait_at_most(deadline);
  if (lock_.held()) {
    Result<Leadership> now = found();
    if (!now.ok() || now->mine) return now;
    lock_.give_back();  // somebody took the lock's file away, and another has the term
  }
  Result<bool> taken = lock_.take();
  if (!taken.ok()) return taken.status();
  if (!*taken) return found();
  Transaction transaction(file_);
  done = transaction.begin();
  if (done.ok()) {
    Statement take(file_, "UPDATE state SET term = term + 1, holder = ?1");
    done = take.bind(1, holder).run();
  }
  if (done.ok()) done = transaction.commit();
  if (done.ok()) {
    Statement ask(file_, "SELECT term FROM state");
    Result<bool> row = ask.step();
    done = row.status();
    if (row.ok()) term_ = ask.number(0);
  }
  if (!done.ok()) {
    lock_.give_back();
    return done;
  }
  ttl_ms_ = ttl_ms;
  return found();
}

Result<Leadership> SqliteStore::keep(uint64_t term, const Deadline& deadline) {
  const Guard guard(mutex_);
  const Status there = file_.still_there();
  if (!there.ok()) return there;
  file_.wait_at_most(deadline);
  Result<Leadership> now = found();
  if (!now.ok() || (now->mine && now->term == term)) return now;
  return deposed(term);
}

Status SqliteStore::give_back(uint64_t term) {
  Statement clear(file_, "UPDATE state SET holder = x'' WHERE term = ?1");
  const Status cleared = clear.bind(1, term).run();
  lock_.give_back();
  return cleared;
}

Status SqliteStore::resign(uint64_t term, const Deadline& deadline) {
  const Guard guard(mutex_);
  if (!lock_.held() || term_ != term) return Status();
  file_.wait_at_most(deadline);
  (void)give_back(term).ok();  // the lock is free, whatever the row says
  return Status();
}

Result<Leadership> SqliteStore::leader(const Deadline& deadline) {
  const Guard guard(mutex_);
  file_.wait_at_most(deadline);
  return found();
}

}  // namespace

Result<std::unique_ptr<Store>> open_sqlite(const std::string& path, const SqliteOptions& options) {
  auto store = std::make_unique<SqliteStore>(path);
  const Status opened = store->open(path, options);
  if (!opened.ok()) return opened;
  return std::unique_ptr<Store>(std::move(store));
}

}  // namespace tendril::store
