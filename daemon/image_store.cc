// SPDX-License-Identifier: Apache-2.0
// See image_store.h.
#include "daemon/image_store.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <filesystem>

#include "base/content_hash.h"
#include "base/kept_files.h"
#include "base/text.h"
#include "daemon/containment/known_images.h"
#include "daemon/log.h"

namespace tendril::daemon {
namespace {

using base::Code;
using base::KeptFiles;
using base::Status;

constexpr char kVariable[] = "TENDRIL_MODULE_STORE";
constexpr char kSuffix[] = ".image";
constexpr char kKnownPart[] = "known";
constexpr size_t kKeyBytes = 32;
// A worker waits for each answer. More than a few questions of one owner's workers come from a
// subverted one.
constexpr uint32_t kWaitingMax = 128;
constexpr int kEvictionsMax = 16;  // of parts, for one image
constexpr uint64_t kImageBytesMax = uint64_t{1} << 30;

std::string default_folder() {
  if (geteuid() == 0) return "/var/cache/tendril/code";
  const std::string cache = base::user_cache_folder();
  return cache.empty() ? "" : cache + "/tendril/code";
}

std::string chosen_folder(const std::string& wanted) {
  std::string folder = wanted;
  if (const char* value = getenv(kVariable); folder.empty() && value != nullptr) folder = value;
  if (folder.empty()) folder = default_folder();
  return folder == "off" ? "" : folder;
}

std::string hash_of(const wire::ExportRecord& record) {
  return std::string(reinterpret_cast<const char*>(record.content), base::kContentHashBytes);
}

// A file of another user, or one that others may write, is not ours.
bool is_ours(const struct stat& info) {
  return info.st_uid == geteuid() && (info.st_mode & 022) == 0;
}

// Sealed memory cannot change or shrink while it is read, and reading it never waits.
bool is_sealed_memory(int fd, uint64_t bytes) {
  const int seals = fcntl(fd, F_GET_SEALS);
  struct stat info;
  return seals >= 0 && (seals & F_SEAL_SHRINK) != 0 && (seals & F_SEAL_WRITE) != 0 &&
         fstat(fd, &info) == 0 && static_cast<uint64_t>(info.st_size) == bytes;
}

bool has_hash(int memory, uint64_t bytes, const std::string& hash) {
  void* at = mmap(nullptr, bytes, PROT_READ, MAP_SHARED, memory, 0);
  if (at == MAP_FAILED) return false;
  const bool good = base::content_hash(at, bytes) == hash;
  munmap(at, bytes);
  return good;
}

// Reads the key, or makes one. Without it the parts get names that nobody finds again.
std::string load_key(const std::string& path) {
  std::string key(kKeyBytes, 0);
  const base::Fd old(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK));
  struct stat info;
  if (old.valid() && fstat(old.get(), &info) == 0 && S_ISREG(info.st_mode) && is_ours(info) &&
      base::read_all(old.get(), key.data(), key.size()))
    return key;
  if (!base::random_bytes(key.data(), key.size())) return "";
  unlink(path.c_str());
  const base::Fd fresh(open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600));
  if (!fresh.valid() || write(fresh.get(), key.data(), key.size()) != kKeyBytes)
    log(Level::kWarning, "cannot write %s: images of device code are lost at the end",
        path.c_str());
  return key;
}

}  // namespace

base::Result<std::unique_ptr<ImageStore>> ImageStore::open(const ImageOptions& options) {
  const std::string folder = chosen_folder(options.folder);
  if (folder.empty()) return std::unique_ptr<ImageStore>();
  struct stat info;
  const bool made = KeptFiles(folder, "", 0).make();
  if (made) errno = EPERM;
  if (!made || stat(folder.c_str(), &info) != 0 || !is_ours(info)) {
    log(Level::kWarning,
        "device code is not kept, and each client sends its own: %s: %s (--images FOLDER chooses "
        "a folder that only this user may write)",
        folder.c_str(), strerror(errno));
    return std::unique_ptr<ImageStore>();
  }
  std::unique_ptr<ImageStore> store(new ImageStore(folder, options));
  const Status prepared = store->prepare(options.known);
  if (!prepared.ok()) return prepared;
  return store;
}

ImageStore::ImageStore(std::string folder, const ImageOptions& options)
    : folder_(std::move(folder)),
      bytes_max_(options.bytes_max != 0
                     ? options.bytes_max
                     : uint64_t{base::env_u32("TENDRIL_MODULE_STORE_MB", 4096)} << 20),
      bytes_per_owner_max_(options.bytes_per_owner_max != 0 ? options.bytes_per_owner_max
                                                            : bytes_max_ / 4) {}

Status ImageStore::prepare(const std::string& known) {
  auto read = read_known_images(known);
  if (!read.ok()) return read.status();
  known_ = read.take();
  key_ = load_key(folder_ + "/key");
  if (key_.empty()) return Status(Code::kExhausted, "the kernel gives no random bytes");
  thread_ = std::thread([this] { run(); });
  return Status();
}

ImageStore::~ImageStore() {
  {
    std::lock_guard<std::mutex> hold(mutex_);
    stopping_ = true;
    changed_.notify_all();
  }
  if (thread_.joinable()) thread_.join();
}

void ImageStore::find(const std::string& owner, const wire::ExportRecord& record, Answer answer) {
  add({owner, hash_of(record), record.bytes, {}, std::move(answer)});
}

void ImageStore::keep(const std::string& owner, const wire::ExportRecord& record, base::Fd memory,
                      Answer answer) {
  if (!memory.valid()) return answer(wire::ExportAnswer::kFull, {});
  add({owner, hash_of(record), record.bytes, std::move(memory), std::move(answer)});
}

void ImageStore::add(Work work) {
  {
    std::lock_guard<std::mutex> hold(mutex_);
    if (!stopping_ && waiting_[work.owner] < kWaitingMax) {
      ++waiting_[work.owner];
      queue_.push_back(std::move(work));
      changed_.notify_all();
      return;
    }
  }
  work.answer(wire::ExportAnswer::kFull, {});
}

void ImageStore::run() {
  std::unique_lock<std::mutex> hold(mutex_);
  for (;;) {
    changed_.wait(hold, [this] { return stopping_ || !queue_.empty(); });
    if (stopping_) return;
    Work work = std::move(queue_.front());
    queue_.pop_front();
    if (--waiting_[work.owner] == 0) waiting_.erase(work.owner);
    hold.unlock();
    if (work.memory.valid()) {
      work.answer(keep_now(work) ? wire::ExportAnswer::kDone : wire::ExportAnswer::kFull, {});
    } else {
      base::Fd image = find_now(work);
      const auto answer = image.valid() ? wire::ExportAnswer::kDone : wire::ExportAnswer::kUnknown;
      work.answer(answer, std::move(image));
    }
    hold.lock();
  }
}

std::string ImageStore::part_of(const Work& work) const {
  if (known_.count(work.hash) != 0) return folder_ + "/" + kKnownPart;
  const std::string keyed = key_ + work.owner;
  const std::string name = base::content_hash(keyed.data(), keyed.size());
  return folder_ + "/" + base::hex(name.data(), name.size() / 2);
}

base::Fd ImageStore::find_now(const Work& work) const {
  uint64_t bytes = 0;
  base::Fd image = KeptFiles(part_of(work), kSuffix, bytes_per_owner_max_)
                       .open(base::hex(work.hash.data(), work.hash.size()), &bytes);
  if (image.valid() && bytes != work.bytes) image.reset();
  return image;
}

bool ImageStore::keep_now(const Work& work) {
  const bool is_known = known_.count(work.hash) != 0;
  if (work.bytes == 0 || work.bytes > kImageBytesMax ||
      !is_sealed_memory(work.memory.get(), work.bytes))
    return false;
  // Others rely on it only if it is common to all.
  if (is_known && !has_hash(work.memory.get(), work.bytes, work.hash)) return false;
  KeptFiles part(part_of(work), kSuffix, is_known ? bytes_max_ : bytes_per_owner_max_);
  const bool kept = part.make() && part.write_copy(base::hex(work.hash.data(), work.hash.size()),
                                                   work.memory.get(), work.bytes);
  if (kept) {
    evict();
  } else if (!full_told_) {
    full_told_ = true;
    log(Level::kWarning, "cannot write an image of device code to %s (%s): kept in memory",
        folder_.c_str(), strerror(errno));
  }
  return kept;
}

// Takes from the part that has the most, so that nobody's code goes because of another's.
void ImageStore::evict() {
  namespace fs = std::filesystem;
  for (int round = 0; round < kEvictionsMax; ++round) {
    uint64_t total = 0, most = 0;
    std::string largest;
    std::error_code ignored;
    for (const auto& part : fs::directory_iterator(folder_, ignored)) {
      if (!part.is_directory(ignored)) continue;
      uint64_t bytes = 0;
      for (const auto& file : fs::directory_iterator(part.path(), ignored)) {
        const uint64_t size = file.file_size(ignored);
        bytes += ignored ? 0 : size;
      }
      total += bytes;
      if (bytes >= most) largest = part.path();
      most = std::max(most, bytes);
    }
    if (total <= bytes_max_ || most == 0) return;
    const uint64_t over = total - bytes_max_;
    KeptFiles(largest, kSuffix, most - std::min(most, over)).trim();
  }
}

}  // namespace tendril::daemon
