// SPDX-License-Identifier: Apache-2.0
// The file in which a machine's minutes are kept: SQLite, with tables that people may read, too
// (docs/monitoring.md). `tendril observe` writes it, `tendril plan` reads it, also while it is
// written. A file from elsewhere is untrusted. One thread.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/result.h"
#include "observe/minutes.h"

namespace tendril::observe {

class RecordFile {
 public:
  virtual ~RecordFile() = default;
  // All of them or none, and they are on the disk. What is there of the same minute is joined.
  virtual base::Status write(const std::vector<GpuMinute>& minutes) = 0;
  // Minutes that are older.
  virtual base::Status forget_before(int64_t at_s) = 0;

  // Makes the file, readable for this user only, if it is not there. `server`: this machine's name,
  // for a new file. kUnavailable: another process records into it. kUnsupported: it is another
  // program's, or a newer Tendril's.
  static base::Result<std::unique_ptr<RecordFile>> open(const std::string& path,
                                                        const std::string& server);
};

// One program on one GPU in one minute.
struct RecordRow {
  int64_t at_s = 0;
  std::string server, gpu, user, container, job;
  int64_t busy_millionths = -1;  // negative: unknown
  int64_t memory_bytes = 0;
};

// Whether the file begins as one of SQLite does.
bool is_record_file(const std::string& path);
// Calls `take` for each row, in order of time, until it answers with an error.
base::Status read_record_file(const std::string& path,
                              const std::function<base::Status(const RecordRow&)>& take);

}  // namespace tendril::observe
