// SPDX-License-Identifier: Apache-2.0
// The audit log: one JSON object per line, appended and never changed. It says who asked for what,
// from where, and which rule allowed or refused it. Any thread may write; a write blocks as long as
// the disk does.
//
// A full disk does not stop the server. What could not be written is counted, the log says so once,
// and the next line that can be written says how many are missing. A policy may ask for the
// opposite (audit_required): `write` then says false, and the daemon refuses the action.
#pragma once

#include <cstdint>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "access/decide.h"
#include "access/principal.h"
#include "base/fd.h"
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

class AuditLog {
 public:
  // An empty path: nothing is written. `server` is part of each line.
  AuditLog(std::string path, std::string server);
  base::Status open();
  // After the file was moved away: further lines go to a new file of the old name.
  base::Status reopen() { return open(); }
  bool enabled() const { return !path_.empty(); }
  const std::string& path() const { return path_; }

  // False if the line could not be written.
  bool write(const AuditEntry& entry);
  // Lines that could not be written so far.
  uint64_t lost() const;
  // True once after lines were lost, until a line can be written again: for one line in the log.
  bool take_trouble(std::string* why);

 private:
  bool write_line(const std::string& line);

  const std::string path_, server_;
  mutable std::mutex mutex_;
  base::Fd file_;
  bool broken_line_ = false;  // the file ends inside a line
  uint64_t lost_ = 0, lost_untold_ = 0;
  bool in_trouble_ = false, trouble_told_ = false;
  std::string trouble_;
};

}  // namespace tendril::access
