// SPDX-License-Identifier: Apache-2.0
// See audit.h.
#include "access/audit.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/text.h"

namespace tendril::access {
namespace {

using base::Code;
using base::Status;

constexpr size_t kTextMax = 512;
constexpr size_t kDetailsMax = 12;

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

AuditLog::AuditLog(std::string path, std::string server)
    : path_(std::move(path)), server_(std::move(server)) {}

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
  std::lock_guard<std::mutex> hold(mutex_);
  file_ = std::move(fresh);
  broken_line_ = false;
  return Status();
}

bool AuditLog::write_line(const std::string& line) {
  const std::string whole = broken_line_ ? "\n" + line : line;
  ssize_t wrote;
  do {
    wrote = ::write(file_.get(), whole.data(), whole.size());
  } while (wrote < 0 && errno == EINTR);
  if (wrote == static_cast<ssize_t>(whole.size())) {
    broken_line_ = false;
    return true;
  }
  trouble_ = wrote < 0 ? strerror(errno) : "only a part of a line fitted";
  if (wrote > 0) broken_line_ = true;
  return false;
}

bool AuditLog::write(const AuditEntry& entry) {
  if (path_.empty()) return true;
  std::lock_guard<std::mutex> hold(mutex_);
  const uint64_t now_ms = now_unix_ms();
  std::string text = audit_line(entry, server_, now_ms);
  if (lost_untold_ != 0) {
    AuditEntry gap;
    gap.who.name = gap.who.id = "tendrild";
    gap.what = "lost";
    gap.object = std::to_string(lost_untold_) + " entries";
    gap.decision = {true, "audit", "they could not be written: " + trouble_};
    text = audit_line(gap, server_, now_ms) + text;
  }
  if (file_.valid() && write_line(text)) {
    lost_untold_ = 0;
    in_trouble_ = trouble_told_ = false;
    return true;
  }
  if (!file_.valid()) trouble_ = "it is not open";
  ++lost_;
  ++lost_untold_;
  in_trouble_ = true;
  return false;
}

uint64_t AuditLog::lost() const {
  std::lock_guard<std::mutex> hold(mutex_);
  return lost_;
}

bool AuditLog::take_trouble(std::string* why) {
  std::lock_guard<std::mutex> hold(mutex_);
  if (!in_trouble_ || trouble_told_) return false;
  trouble_told_ = true;
  *why = trouble_;
  return true;
}

}  // namespace tendril::access
