// SPDX-License-Identifier: Apache-2.0
// Landlock, the kernel's way for a process without rights to give up the use of files and more.
// What a thread gives up, its later threads and children have given up as well, for ever. The
// worker gives up all files but a few; the daemon's supervisor gives up contact with other programs
// for the workers that it starts. The C library has no functions for this.
#pragma once

#include "base/fd.h"
#include "base/result.h"

namespace tendril::base {

// What may be done with a file, or with all that lies beneath a folder.
enum class FileUse {
  kRead,    // read, list, map as code
  kWrite,   // also write to files that are there
  kManage,  // also make and remove files
  kOwn,     // also make and remove folders, and move files between them
  kDevice,  // read, write and ioctl
};

class Landlock {
 public:
  // The version of the kernel's interface; 0: this kernel has none, or it is turned off.
  static int version();
  // From this version on, contact with processes outside can be given up.
  static constexpr int kScopesSince = 6;

  // Denies every use of files and, unless `networked`, TCP where the kernel can. Before version 3
  // of the interface a file that may be written at all may also be truncated, and before 5 ioctl is
  // not denied. `alone`: also what `outside` denies, where the kernel can.
  static Result<Landlock> files(bool networked = false, bool alone = false);
  // Denies connecting to abstract sockets of processes that are not in the same domain, and
  // signalling them. The processes that a thread starts afterwards are in one domain with it.
  static Result<Landlock> outside();

  // A path that is not there is not an error.
  Status allow(const char* path, FileUse use);
  // Applies to the calling thread. Also takes its chance of new privileges.
  Status restrict_thread();

 private:
  Landlock(Fd rules, unsigned long long handled) : rules_(std::move(rules)), handled_(handled) {}
  Fd rules_;
  unsigned long long handled_;
};

}  // namespace tendril::base
