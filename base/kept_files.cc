// SPDX-License-Identifier: Apache-2.0
// See kept_files.h.
#include "base/kept_files.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <vector>

#include "base/text.h"

namespace tendril::base {
namespace {

constexpr char kTemporary[] = ".part";
constexpr time_t kAbandonedSeconds = 600;  // a temporary file of this age has no writer any more

bool ends_with(const std::string& text, const std::string& end) {
  return text.size() >= end.size() && text.compare(text.size() - end.size(), end.size(), end) == 0;
}

bool write_all(int fd, const void* from, uint64_t bytes) {
  const char* data = static_cast<const char*>(from);
  while (bytes != 0) {
    const ssize_t done = ::write(fd, data, bytes);
    if (done < 0 && errno == EINTR) continue;
    if (done <= 0) return false;
    data += done;
    bytes -= static_cast<uint64_t>(done);
  }
  return true;
}

}  // namespace

bool read_all(int fd, void* into, uint64_t bytes) {
  char* data = static_cast<char*>(into);
  while (bytes != 0) {
    const ssize_t done = ::read(fd, data, bytes);
    if (done < 0 && errno == EINTR) continue;
    if (done <= 0) return false;
    data += done;
    bytes -= static_cast<uint64_t>(done);
  }
  return true;
}

std::string user_cache_folder() {
  const char* folder = getenv("XDG_CACHE_HOME");
  if (folder != nullptr && *folder != 0) return folder;
  const char* home = getenv("HOME");
  return home != nullptr && *home != 0 ? std::string(home) + "/.cache" : "";
}

KeptFiles::KeptFiles(std::string folder, std::string suffix, uint64_t bytes_max)
    : folder_(std::move(folder)), suffix_(std::move(suffix)), bytes_max_(bytes_max) {}

bool KeptFiles::make() {
  if (folder_.empty()) return false;
  for (size_t end = folder_.find('/', 1); end != std::string::npos;
       end = folder_.find('/', end + 1))
    mkdir(folder_.substr(0, end).c_str(), 0700);
  struct stat info;
  if ((mkdir(folder_.c_str(), 0700) == 0 || errno == EEXIST) && stat(folder_.c_str(), &info) == 0) {
    if (S_ISDIR(info.st_mode)) return true;
    errno = ENOTDIR;
  }
  folder_.clear();
  return false;
}

std::string KeptFiles::path_of(const std::string& name) const {
  return folder_ + "/" + name + suffix_;
}

Fd KeptFiles::open(const std::string& name, uint64_t* bytes) const {
  if (folder_.empty()) return Fd();
  Fd fd(::open(path_of(name).c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK));
  struct stat info;
  if (!fd.valid() || fstat(fd.get(), &info) != 0 || !S_ISREG(info.st_mode)) return Fd();
  *bytes = static_cast<uint64_t>(info.st_size);
  futimens(fd.get(), nullptr);  // if it fails, the file only looks older than it is
  return fd;
}

Fd KeptFiles::open_temporary(const std::string& path, std::string* temporary) {
  uint64_t word = 0;
  if (!random_bytes(&word, sizeof word)) return Fd();
  *temporary = path + "." + hex(&word, sizeof word) + kTemporary;
  return Fd(::open(temporary->c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600));
}

bool KeptFiles::finish(const std::string& temporary, const std::string& path, bool good) const {
  if (!good || rename(temporary.c_str(), path.c_str()) != 0) {
    const int why = errno;
    unlink(temporary.c_str());
    errno = why;
    return false;
  }
  trim();
  return true;
}

bool KeptFiles::write(const std::string& name, std::initializer_list<Part> parts) const {
  uint64_t bytes = 0;
  for (const Part& part : parts) bytes += part.bytes;
  if (folder_.empty() || bytes > bytes_max_) {
    errno = ENOSPC;
    return false;
  }
  std::string temporary;
  const Fd fd = open_temporary(path_of(name), &temporary);
  if (!fd.valid()) return false;
  bool good = true;
  for (const Part& part : parts) good = good && write_all(fd.get(), part.data, part.bytes);
  return finish(temporary, path_of(name), good);
}

bool KeptFiles::write_copy(const std::string& name, int from, uint64_t bytes) const {
  if (folder_.empty() || bytes > bytes_max_) {
    errno = ENOSPC;
    return false;
  }
  std::string temporary;
  const Fd fd = open_temporary(path_of(name), &temporary);
  if (!fd.valid()) return false;
  off_t at = 0;
  bool good = true;
  while (good && static_cast<uint64_t>(at) < bytes) {
    const ssize_t done = sendfile(fd.get(), from, &at, bytes - static_cast<uint64_t>(at));
    if (done < 0 && errno == EINTR) continue;
    if (done == 0) errno = EINVAL;  // it has fewer bytes
    good = done > 0;
  }
  return finish(temporary, path_of(name), good);
}

void KeptFiles::remove(const std::string& name) const { unlink(path_of(name).c_str()); }

void KeptFiles::trim() const {
  struct File {
    std::string path;
    uint64_t bytes;
    struct timespec used;
  };
  DIR* folder = opendir(folder_.c_str());
  if (folder == nullptr) return;
  std::vector<File> files;
  uint64_t total = 0;
  while (const dirent* entry = readdir(folder)) {
    const std::string path = folder_ + "/" + entry->d_name;
    struct stat info;
    const bool temporary = ends_with(path, kTemporary);
    if (!temporary && !ends_with(path, suffix_)) continue;
    if (lstat(path.c_str(), &info) != 0 || !S_ISREG(info.st_mode)) continue;
    if (temporary) {
      if (info.st_mtime + kAbandonedSeconds < time(nullptr)) unlink(path.c_str());
      continue;
    }
    files.push_back({path, static_cast<uint64_t>(info.st_size), info.st_mtim});
    total += files.back().bytes;
  }
  closedir(folder);
  if (total <= bytes_max_) return;
  std::sort(files.begin(), files.end(), [](const File& a, const File& b) {
    return a.used.tv_sec != b.used.tv_sec ? a.used.tv_sec < b.used.tv_sec
                                          : a.used.tv_nsec < b.used.tv_nsec;
  });
  for (const File& file : files) {
    if (total <= bytes_max_) break;
    if (unlink(file.path.c_str()) == 0) total -= file.bytes;
  }
}

}  // namespace tendril::base
