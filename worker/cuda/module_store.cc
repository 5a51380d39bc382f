// SPDX-License-Identifier: Apache-2.0
// See module_store.h. A file is named by its hash, written beside and renamed, so readers see all
// of it or nothing. Its time of modification is the time of its last use; the oldest go when the
// directory is over its limit.
#include "worker/cuda/module_store.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <new>

#include "base/content_hash.h"
#include "base/fd.h"
#include "base/log.h"
#include "base/text.h"

namespace tendril::worker::cuda {
namespace {

constexpr char kSuffix[] = ".image";
constexpr char kTemporary[] = ".part";
constexpr time_t kAbandonedSeconds = 600;  // a temporary file this old has no writer any more

bool ends_with(const std::string& text, const std::string& end) {
  return text.size() >= end.size() && text.compare(text.size() - end.size(), end.size(), end) == 0;
}

bool write_all(int fd, const uint8_t* data, uint64_t bytes) {
  while (bytes != 0) {
    const ssize_t done = ::write(fd, data, bytes);
    if (done < 0 && errno == EINTR) continue;
    if (done <= 0) return false;
    data += done;
    bytes -= static_cast<uint64_t>(done);
  }
  return true;
}

bool read_all(int fd, uint8_t* into, uint64_t bytes) {
  while (bytes != 0) {
    const ssize_t done = ::read(fd, into, bytes);
    if (done < 0 && errno == EINTR) continue;
    if (done <= 0) return false;
    into += done;
    bytes -= static_cast<uint64_t>(done);
  }
  return true;
}

}  // namespace

ImageBytes make_image(uint64_t bytes) {
  ImageBytes image;
  if (bytes > kImageBytesMax) return image;
  image.data.reset(new (std::nothrow) uint8_t[bytes + 1]);
  if (image.data == nullptr) return image;
  image.data[bytes] = 0;
  image.bytes = bytes;
  return image;
}

ModuleStore::ModuleStore(std::string directory, uint64_t bytes_max)
    : directory_(std::move(directory)), bytes_max_(bytes_max) {
  if (bytes_max_ == 0) bytes_max_ = uint64_t{base::env_u32("TENDRIL_MODULE_STORE_MB", 4096)} << 20;
  if (directory_.empty()) return;
  if (mkdir(directory_.c_str(), 0700) != 0 && errno != EEXIST) {
    base::log(base::LogLevel::kWarning,
              "module store %s cannot be made (%s): device code is kept in memory only",
              directory_.c_str(), strerror(errno));
    directory_.clear();
  }
}

std::string ModuleStore::path_of(const std::string& hash) const {
  return directory_ + "/" + base::hex(hash.data(), hash.size()) + kSuffix;
}

ModuleStore::Image ModuleStore::find(const std::string& hash, uint64_t bytes) {
  if (hash.size() != base::kContentHashBytes || bytes > kImageBytesMax) return nullptr;
  const auto known = images_.find(hash);
  Image image = known != images_.end() ? known->second.image.lock() : nullptr;
  if (image == nullptr) image = read(hash, bytes);
  if (image == nullptr || image->bytes != bytes) return nullptr;
  Held& held = images_[hash];
  held.image = image;
  held.used = ++clock_;
  latest_ = image;
  return image;
}

ModuleStore::Image ModuleStore::add(const std::string& hash, ImageBytes bytes) {
  if (bytes.data == nullptr || base::content_hash(bytes.data.get(), bytes.bytes) != hash)
    return nullptr;
  const Image image = std::make_shared<const ImageBytes>(std::move(bytes));
  Held& held = images_[hash];
  held.image = image;
  held.used = ++clock_;
  held.kept = nullptr;
  latest_ = image;
  if (!write(hash, *image)) {
    held.kept = image;
    trim_memory();
  }
  return image;
}

ModuleStore::Image ModuleStore::read(const std::string& hash, uint64_t bytes) {
  if (directory_.empty()) return nullptr;
  const std::string path = path_of(hash);
  base::Fd fd(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK));
  struct stat info;
  if (!fd.valid() || fstat(fd.get(), &info) != 0) return nullptr;
  ImageBytes image;
  if (S_ISREG(info.st_mode) && static_cast<uint64_t>(info.st_size) == bytes)
    image = make_image(bytes);
  const bool good = image.data != nullptr && read_all(fd.get(), image.data.get(), bytes) &&
                    base::content_hash(image.data.get(), bytes) == hash;
  if (!good) {
    base::log(base::LogLevel::kWarning, "module store: %s is not what its name says; removed",
              path.c_str());
    unlink(path.c_str());
    return nullptr;
  }
  futimens(fd.get(), nullptr);  // may fail: then it only looks older than it is
  return std::make_shared<const ImageBytes>(std::move(image));
}

bool ModuleStore::write(const std::string& hash, const ImageBytes& bytes) {
  if (directory_.empty() || bytes.bytes > bytes_max_) return false;
  const std::string path = path_of(hash);
  const std::string temporary = path + base::format(".%d", getpid()) + kTemporary;
  base::Fd fd(open(temporary.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600));
  if (!fd.valid() || !write_all(fd.get(), bytes.data.get(), bytes.bytes) ||
      rename(temporary.c_str(), path.c_str()) != 0) {
    base::log(base::LogLevel::kWarning, "module store: cannot write %s (%s): kept in memory",
              path.c_str(), strerror(errno));
    unlink(temporary.c_str());
    return false;
  }
  trim_directory();
  return true;
}

void ModuleStore::trim_directory() {
  struct File {
    std::string path;
    uint64_t bytes;
    struct timespec used;
  };
  DIR* directory = opendir(directory_.c_str());
  if (directory == nullptr) return;
  std::vector<File> files;
  uint64_t total = 0;
  while (const dirent* entry = readdir(directory)) {
    const std::string path = directory_ + "/" + entry->d_name;
    struct stat info;
    const bool temporary = ends_with(path, kTemporary);
    if ((!temporary && !ends_with(path, kSuffix)) || lstat(path.c_str(), &info) != 0 ||
        !S_ISREG(info.st_mode))
      continue;
    if (temporary) {
      if (info.st_mtime + kAbandonedSeconds < time(nullptr)) unlink(path.c_str());
      continue;
    }
    files.push_back({path, static_cast<uint64_t>(info.st_size), info.st_mtim});
    total += files.back().bytes;
  }
  closedir(directory);
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

void ModuleStore::trim_memory() {
  uint64_t total = 0;
  for (auto it = images_.begin(); it != images_.end();) {
    if (it->second.kept != nullptr) total += it->second.kept->bytes;
    it = it->second.image.expired() ? images_.erase(it) : std::next(it);
  }
  while (total > bytes_max_) {
    Held* oldest = nullptr;
    for (auto& entry : images_) {
      if (entry.second.kept != nullptr && (oldest == nullptr || entry.second.used < oldest->used))
        oldest = &entry.second;
    }
    if (oldest == nullptr) return;
    total -= oldest->kept->bytes;
    oldest->kept = nullptr;
  }
}

}  // namespace tendril::worker::cuda
