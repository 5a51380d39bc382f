// SPDX-License-Identifier: Apache-2.0
// See module_store.h.
#include "worker/cuda/code/module_store.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <new>

#include "base/content_hash.h"
#include "base/fd.h"
#include "base/kept_files.h"

namespace tendril::worker::cuda {
namespace {

// Whole in memory that nobody changes any more.
base::Fd sealed_memory(const ImageBytes& image) {
  base::Fd file(memfd_create("tendril-image", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  const uint8_t* data = image.data.get();
  for (uint64_t left = image.bytes; file.valid() && left != 0;) {
    const ssize_t done = write(file.get(), data, left);
    if (done < 0 && errno == EINTR) continue;
    if (done <= 0) return base::Fd();
    data += done;
    left -= static_cast<uint64_t>(done);
  }
  constexpr int kSeals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE | F_SEAL_SEAL;
  if (file.valid() && fcntl(file.get(), F_ADD_SEALS, kSeals) != 0) return base::Fd();
  return file;
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

ModuleStore::ModuleStore(Exports* keeper, uint64_t bytes_max)
    : keeper_(keeper), bytes_max_(bytes_max) {}

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
  if (!keep(hash, *image)) {
    held.kept = image;
    trim_memory();
  }
  return image;
}

ModuleStore::Image ModuleStore::read(const std::string& hash, uint64_t bytes) {
  if (keeper_ == nullptr) return nullptr;
  const base::Fd fd = keeper_->find_image(hash, bytes);
  if (!fd.valid()) return nullptr;
  ImageBytes image = make_image(bytes);
  const bool good = image.data != nullptr && base::read_all(fd.get(), image.data.get(), bytes) &&
                    base::content_hash(image.data.get(), bytes) == hash;
  return good ? std::make_shared<const ImageBytes>(std::move(image)) : nullptr;
}

bool ModuleStore::keep(const std::string& hash, const ImageBytes& bytes) {
  if (keeper_ == nullptr) return false;
  const base::Fd memory = sealed_memory(bytes);
  return memory.valid() && keeper_->keep_image(hash, bytes.bytes, memory.get());
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
