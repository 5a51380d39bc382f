// SPDX-License-Identifier: Apache-2.0
// A folder of files that could be made again: what the worker keeps of images, and the client of
// code that was compiled in its process. A file is written beside its place and renamed, so readers
// see all of it or nothing. Its time of modification is the time of its last use; the oldest go
// when the folder is over its limit. Several processes may use one folder. Whether a file is what
// its name says is for the reader to check. Any thread; every call may wait for a disk.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <string>

#include "base/fd.h"

namespace tendril::base {

class KeptFiles {
 public:
  // Without a folder there are no files and none can be written. `mode`: of the files.
  KeptFiles(std::string folder, std::string suffix, uint64_t bytes_max, unsigned mode = 0600);

  // Makes the folder and those above it, for this user only. When that fails (errno says why),
  // there is no folder any more.
  bool make();
  bool exists() const { return !folder_.empty(); }
  std::string path_of(const std::string& name) const;

  // A regular file, and how long it is; counts as a use. Not valid: there is none.
  Fd open(const std::string& name, uint64_t* bytes) const;
  struct Part {
    const void* data;
    uint64_t bytes;
  };
  // The parts one after the other. False, with errno, when the folder does not take it; nothing is
  // left of it then.
  bool write(const std::string& name, std::initializer_list<Part> parts) const;
  void remove(const std::string& name) const;

 private:
  void trim() const;

  std::string folder_, suffix_;
  uint64_t bytes_max_;
  unsigned mode_;
};

// Where this user's programs keep such folders: XDG_CACHE_HOME, or .cache in HOME; empty when
// neither is set.
std::string user_cache_folder();

// All of it or false.
bool read_all(int fd, void* into, uint64_t bytes);

}  // namespace tendril::base
