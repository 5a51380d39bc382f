// SPDX-License-Identifier: Apache-2.0
// See audit.h.
#include "access/audit.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <thread>

#include "base/clock.h"
#include "base/fd.h"
#include "base/text.h"

namespace tendril::access {
namespace {

using base::Code;
using base::Status;

constexpr size_t kTextMax = 512;
constexpr size_t kDetailsMax = 12;
constexpr char kTooSlow[] = "the disk is too slow";

void append_quoted(const std::string& text, std::string* out) {
  *out += '"';
  size_t at = 0;
  while (at < text.size() && at < kTextMax) {
    const size_t bytes = base::character_bytes(text, at);
    const char first = text[at];
    if (bytes == 0 || static_cast<unsigned char>(first) < 0x20 || first == 0x7f) {
      *out += '?';
      ++at;
      continue;
    }
    if (first == '"' || first == '\\') *out += '\\';
    out->append(text, at, bytes);
    at += bytes;
  }
  *out += '"';
}

void append(const char* name, const std::string& value, std::string* out) {
  if (out->size() > 1) *out += ',';
  append_quoted(name, out);
  *out += ':';
  append_quoted(value, out);
}

std::string time_text(uint64_t unix_ms) {
  const auto seconds = static_cast<time_t>(unix_ms / 1000);
  tm parts;
  gmtime_r(&seconds, &parts);
  char text[32];
  strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%S", &parts);
  return base::format("%s.%03uZ", text, static_cast<unsigned>(unix_ms % 1000));
}

uint64_t now_unix_ms() {
  timespec now;
  clock_gettime(CLOCK_REALTIME, &now);
  return static_cast<uint64_t>(now.tv_sec) * 1000 + static_cast<uint64_t>(now.tv_nsec) / 1'000'000;
}

}  // namespace

std::string audit_line(const AuditEntry& entry, const std::string& server, uint64_t unix_ms) {
  std::string line = "{";
  append("time", time_text(unix_ms), &line);
  append("server", server, &line);
  append("who", entry.who.name, &line);
  append("id", entry.who.id, &line);
  append("role", role_name(entry.who.role), &line);
  append("proof", proof_name(entry.who.proof), &line);
  append("from", entry.who.from, &line);
  append("what", entry.what, &line);
  if (!entry.object.empty()) append("object", entry.object, &line);
  line += entry.decision.allowed ? ",\"allowed\":true" : ",\"allowed\":false";
  append("rule", entry.decision.rule, &line);
  if (!entry.decision.text.empty()) append("why", entry.decision.text, &line);
  size_t count = 0;
  for (const auto& [name, value] : entry.details) {
    if (++count > kDetailsMax) break;
    append(name.substr(0, 32).c_str(), value, &line);
  }
  line += "}\n";
  return line;
}

struct AuditLog::Line {
  enum class State : uint8_t { kWaiting, kAtDisk, kWritten, kLost };
  std::string text;
  uint64_t since_ns = 0;
  State state = State::kWaiting;  // guarded by Shared::mutex
};

struct AuditLog::Shared {
  struct File {
    base::Fd fd;
    bool broken_line = false;  // it ends inside a line; the thread's
  };

  void run();
  // The thread's. An empty answer: the text was written.
  std::string write_text(File* file, const std::string& text) const;
  std::string gap_line(uint64_t count, const std::string& why) const;
  // The caller holds the mutex. `tell_trouble` releases it for a while.
  void lose(const std::string& why);
  void tell_trouble(std::unique_lock<std::mutex>* hold);
  bool is_idle() const { return lines.empty() && at_disk == nullptr; }

  std::string server;
  Hooks hooks;
  std::thread thread;
  mutable std::mutex mutex;
  std::condition_variable changed, finished;
  std::deque<std::shared_ptr<Line>> lines;  // guarded by mutex, and so are those below
  std::shared_ptr<Line> at_disk;
  std::shared_ptr<File> file;
  bool stopping = false, stopped = false;
  uint64_t lost = 0, lost_untold = 0;
  bool trouble_told = false;
  std::string trouble;
  std::deque<Recent> recent;
  uint64_t recent_number = 0;
};

AuditLog::AuditLog(std::string path, std::string server, Hooks hooks)
    : path_(std::move(path)), server_(std::move(server)), shared_(std::make_shared<Shared>()) {
  shared_->server = server_;
  shared_->hooks = std::move(hooks);
}

AuditLog::~AuditLog() {
  if (!shared_->thread.joinable()) return;
  bool ended = false;
  {
    std::unique_lock<std::mutex> hold(shared_->mutex);
    shared_->stopping = true;
    shared_->changed.notify_all();
    ended = shared_->finished.wait_for(hold, std::chrono::milliseconds(kAuditPatienceMs),
                                       [this] { return shared_->stopped; });
    // Nobody who hears of trouble is there any more.
    if (!ended) shared_->hooks.trouble = nullptr;
  }
  if (ended)
    shared_->thread.join();
  else
    shared_->thread.detach();  // the disk hangs, and the process must be able to end
}

Status AuditLog::open() {
  if (path_.empty()) return Status();
  base::Fd fresh(::open(path_.c_str(),
                        O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0600));
  const std::string doing = "cannot append to the audit log '" + path_ + "'";
  if (!fresh.valid()) return base::errno_status(Code::kUnavailable, doing.c_str(), errno);
  struct stat facts;
  if (fstat(fresh.get(), &facts) != 0)
    return base::errno_status(Code::kUnavailable, doing.c_str(), errno);
  if (S_ISREG(facts.st_mode) && (facts.st_mode & 077) != 0) {
    return Status(Code::kInvalid, "others may read or write the audit log '" + path_ +
                                      "'; run: chmod 600 " + path_);
  }
  const auto file = std::make_shared<Shared::File>();
  file->fd = std::move(fresh);
  std::lock_guard<std::mutex> hold(shared_->mutex);
  shared_->file = file;
  if (!shared_->thread.joinable())
    shared_->thread = std::thread([shared = shared_] { shared->run(); });
  return Status();
}

void AuditLog::Shared::lose(const std::string& why) {
  ++lost;
  ++lost_untold;
  trouble = why;
}

void AuditLog::Shared::tell_trouble(std::unique_lock<std::mutex>* hold) {
  if (lost_untold == 0 || trouble_told || !hooks.trouble) return;
  trouble_told = true;
  const auto tell = hooks.trouble;
  const std::string why = trouble;
  hold->unlock();
  tell(why);
  hold->lock();
}

std::string AuditLog::Shared::write_text(File* to, const std::string& text) const {
  const std::string whole = to->broken_line ? "\n" + text : text;
  ssize_t wrote;
  do {
    wrote = hooks.append ? hooks.append(to->fd.get(), whole.data(), whole.size())
                         : ::write(to->fd.get(), whole.data(), whole.size());
  } while (wrote < 0 && errno == EINTR);
  if (wrote == static_cast<ssize_t>(whole.size())) {
    to->broken_line = false;
    return std::string();
  }
  if (wrote > 0) to->broken_line = true;
  return wrote < 0 ? strerror(errno) : "only a part of a line fitted";
}

std::string AuditLog::Shared::gap_line(uint64_t count, const std::string& why) const {
  AuditEntry gap;
  gap.who.name = gap.who.id = "tendrild";
  gap.what = "lost";
  gap.object = std::to_string(count) + " entries";
  gap.decision = {true, "audit", "they could not be written: " + why};
  return audit_line(gap, server, now_unix_ms());
}

void AuditLog::Shared::run() {
  pthread_setname_np(pthread_self(), "audit");
  std::unique_lock<std::mutex> hold(mutex);
  for (;;) {
    changed.wait(hold, [this] { return stopping || !lines.empty(); });
    if (lines.empty()) break;
    const std::shared_ptr<Line> line = at_disk = lines.front();
    lines.pop_front();
    line->state = Line::State::kAtDisk;
    const std::shared_ptr<File> to = file;
    const uint64_t missing = lost_untold;
    const std::string text = missing != 0 ? gap_line(missing, trouble) + line->text : line->text;
    hold.unlock();
    const std::string failed = write_text(to.get(), text);
    hold.lock();
    if (failed.empty()) {
      lost_untold -= missing;
      trouble_told = trouble_told && lost_untold != 0;
    } else {
      lose(failed);
    }
    line->state = failed.empty() ? Line::State::kWritten : Line::State::kLost;
    at_disk.reset();
    finished.notify_all();
    tell_trouble(&hold);
  }
  stopped = true;
  finished.notify_all();
}

std::shared_ptr<AuditLog::Line> AuditLog::add(const AuditEntry& entry) {
  const auto line = std::make_shared<Line>();
  const uint64_t at_ms = now_unix_ms();
  line->text = audit_line(entry, server_, at_ms);
  line->since_ns = base::now_ns();
  std::unique_lock<std::mutex> hold(shared_->mutex);
  shared_->recent.push_back({++shared_->recent_number, at_ms, entry.who.id, entry.what,
                             entry.decision.rule, line->text.substr(0, line->text.size() - 1)});
  if (shared_->recent.size() > kAuditRecentMax) shared_->recent.pop_front();
  if (path_.empty()) return line;
  if (shared_->file == nullptr || shared_->lines.size() >= kAuditLinesMax) {
    line->state = Line::State::kLost;
    shared_->lose(shared_->file == nullptr ? "it is not open" : kTooSlow);
    shared_->tell_trouble(&hold);
    return line;
  }
  shared_->lines.push_back(line);
  shared_->changed.notify_one();
  return line;
}

std::vector<AuditLog::Recent> AuditLog::recent(uint64_t after, size_t limit) const {
  std::lock_guard<std::mutex> hold(shared_->mutex);
  const std::deque<Recent>& all = shared_->recent;
  auto first = std::partition_point(all.begin(), all.end(),
                                    [after](const Recent& each) { return each.number <= after; });
  if (static_cast<size_t>(all.end() - first) > limit)
    first = all.end() - static_cast<std::ptrdiff_t>(limit);
  return std::vector<Recent>(first, all.end());
}

void AuditLog::note(const AuditEntry& entry) { add(entry); }

bool AuditLog::write(const AuditEntry& entry) {
  if (path_.empty()) {
    add(entry);
    return true;
  }
  const std::shared_ptr<Line> line = add(entry);
  std::unique_lock<std::mutex> hold(shared_->mutex);
  const auto is_over = [&] {
    return line->state == Line::State::kWritten || line->state == Line::State::kLost;
  };
  while (!is_over()) {
    const uint64_t first_ns =
        shared_->at_disk != nullptr ? shared_->at_disk->since_ns : line->since_ns;
    const uint64_t now_ns = base::now_ns();
    const uint64_t end_ns = first_ns + uint64_t{kAuditPatienceMs} * 1'000'000u;
    if (now_ns >= end_ns) break;
    shared_->finished.wait_for(hold, std::chrono::nanoseconds(end_ns - now_ns));
  }
  if (line->state == Line::State::kWaiting) {  // it must not be written when its action is refused
    auto& lines = shared_->lines;
    lines.erase(std::find(lines.begin(), lines.end(), line));
    line->state = Line::State::kLost;
    shared_->lose(kTooSlow);
    shared_->tell_trouble(&hold);
  }
  return line->state == Line::State::kWritten;
}

bool AuditLog::flush(int timeout_ms) {
  std::unique_lock<std::mutex> hold(shared_->mutex);
  return shared_->finished.wait_for(hold, std::chrono::milliseconds(timeout_ms),
                                    [this] { return shared_->is_idle(); });
}

uint64_t AuditLog::lost() const {
  std::lock_guard<std::mutex> hold(shared_->mutex);
  return shared_->lost;
}

}  // namespace tendril::access
