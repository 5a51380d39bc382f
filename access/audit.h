// SPDX-License-Identifier: Apache-2.0
// The audit log: one JSON object per line, appended and never changed. It says who asked for what,
// from where, and which rule allowed or refused it. A thread of its own writes the lines in their
// order, so that a slow disk stops nobody who need not wait. Any thread may call.
//
// A full disk does not stop the server. What could not be written, or found no room among the lines
// that wait, is counted. `trouble` hears of it once, and the next line that can be written says how
// many are missing. A policy may ask for the opposite (audit_required): `write` then says false,
// and the daemon refuses the action.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "access/decide.h"
#include "access/principal.h"
#include "base/result.h"

namespace tendril::access {

struct AuditEntry {
  Principal who;
  std::string what;    // "lease", "release", "start"
  std::string object;  // "lease 17"; empty: none
  Decision decision;
  // More that is worth keeping, as names and values: the claimed user, the program, the owner.
  std::vector<std::pair<std::string, std::string>> details;
};

// One line with its newline. Control characters, quotes and bytes that are not UTF-8 in any text
// are made harmless, and long ones are cut.
std::string audit_line(const AuditEntry& entry, const std::string& server, uint64_t unix_ms);

// The most lines that wait for the disk, and how long `write` waits for it.
inline constexpr size_t kAuditLinesMax = 4096;
inline constexpr int kAuditPatienceMs = 2000;
// The lines that are kept in memory for who looks, written to a file or not.
inline constexpr size_t kAuditRecentMax = 1000;

class AuditLog {
 public:
  struct Hooks {
    // Hears once why lines are lost, until all that is missing has been told. Any thread.
    std::function<void(const std::string& why)> trouble;
    std::function<ssize_t(int fd, const void* data, size_t bytes)> append;  // empty: write(2)
  };
  // An empty path: nothing is written. `server` is part of each line.
  AuditLog(std::string path, std::string server, Hooks hooks = Hooks());
  // Gives lines that wait a moment to be written.
  ~AuditLog();
  AuditLog(const AuditLog&) = delete;
  AuditLog& operator=(const AuditLog&) = delete;

  base::Status open();
  // After the file was moved away: further lines go to a new file of the old name.
  base::Status reopen() { return open(); }
  bool enabled() const { return !path_.empty(); }
  const std::string& path() const { return path_; }

  // Never waits for the disk.
  void note(const AuditEntry& entry);
  // Returns when the line is in the file. False: it could not be written in time. Once the disk has
  // kept one line waiting for so long, the others do not wait until it moves again.
  bool write(const AuditEntry& entry);
  // Waits until nothing waits. False: something still does.
  bool flush(int timeout_ms);
  // Lines that could not be written so far.
  uint64_t lost() const;

  struct Recent {
    uint64_t number = 0;  // counts the lines of this process, from 1
    uint64_t at_ms = 0;   // since 1970
    std::string id;       // of the principal
    std::string what, rule;
    std::string line;  // a JSON object, without a newline
  };
  // The newest lines after that number, `limit` at most, the oldest of them first. Also those that
  // no file has. Never waits for the disk.
  std::vector<Recent> recent(uint64_t after, size_t limit) const;

 private:
  struct Line;
  struct Shared;
  std::shared_ptr<Line> add(const AuditEntry& entry);

  const std::string path_, server_;
  const std::shared_ptr<Shared> shared_;  // with the thread, which may outlive a disk that hangs
};

}  // namespace tendril::access
