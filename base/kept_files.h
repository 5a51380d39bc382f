// SPDX-License-Identifier: Apache-2.0
// A folder of files that can be made again. The daemon keeps images in some, and the client keeps
// code that was compiled in its process. A file is written beside its place and renamed, so readers
// see all of it or nothing. Its time of modification is the time of its last use. When the folder
// is over its limit, the oldest files go. Several processes may use one folder. The reader must
// check that a file is what its name says. Any thread; every call may wait for a disk.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <string>

#include "base/fd.h"

namespace tendril::base {

class KeptFiles {
 public:
  // Without a folder there are no files, and none can be written.
  KeptFiles(std::string folder, std::string suffix, uint64_t bytes_max);

  // Makes the folder and its parents, for this user only. If that fails (errno says why), there is
  // no folder any more.
  bool make();
  bool exists() const { return !folder_.empty(); }
  std::string path_of(const std::string& name) const;

  // Opens a regular file and returns its length. Counts as a use. Not valid: there is no such file.
  Fd open(const std::string& name, uint64_t* bytes) const;
  struct Part {
    const void* data;
    uint64_t bytes;
  };
  // Writes the parts one after the other. False, with errno, if the folder does not take them; then
  // no file is left.
  bool write(const std::string& name, std::initializer_list<Part> parts) const;
  // The same with the content of another file, from its beginning.
  bool write_copy(const std::string& name, int from, uint64_t bytes) const;
  void remove(const std::string& name) const;
  // Removes the oldest files until the rest is within the limit.
  void trim() const;

 private:
  // Opens a new file beside `path`, with a name that nobody can foresee.
  static Fd open_temporary(const std::string& path, std::string* temporary);
  bool finish(const std::string& temporary, const std::string& path, bool good) const;

  std::string folder_, suffix_;
  uint64_t bytes_max_;
};

// Where this user's programs keep such folders: XDG_CACHE_HOME, or .cache in HOME. Empty if neither
// is set.
std::string user_cache_folder();

// Writes all of it, or returns false.
bool read_all(int fd, void* into, uint64_t bytes);

}  // namespace tendril::base
