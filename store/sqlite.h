// SPDX-License-Identifier: Apache-2.0
// A store in one file on this machine's disk, for a pool with one scheduler. An acknowledged write
// is on the disk. Its lock is the kernel's lock on a second file (PATH.lock), so a scheduler that
// dies gives it back at once, and one that starts meanwhile hears who has it. Terms count up in
// the file itself. Any thread.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "base/result.h"
#include "store/store.h"

namespace tendril::store {

struct SqliteOptions {
  // The largest number of pages of 4 KiB that the file may have; 0: as many as fit on the disk.
  uint32_t pages_max = 0;
};

// Makes the file, readable for this user only, if it is not there; its folder must be. Looks
// through the whole file before it is used. kInternal: it is damaged; the message says what to do.
// kUnsupported: it belongs to a newer Tendril or to another program.
base::Result<std::unique_ptr<Store>> open_sqlite(const std::string& path,
                                                 const SqliteOptions& options = {});

}  // namespace tendril::store
