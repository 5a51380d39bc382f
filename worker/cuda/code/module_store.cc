// SPDX-License-Identifier: Apache-2.0
// See module_store.h. A file is named by its hash.
#include "worker/cuda/code/module_store.h"

#include <errno.h>

#include <cstring>
#include <new>

#include "base/content_hash.h"
#include "base/log.h"
#include "base/text.h"

namespace tendril::worker::cuda {
namespace {

std::string name_of(const std::string& hash) { return base::hex(hash.data(), hash.size()); }

uint64_t limit(uint64_t bytes_max) {
  return bytes_max != 0 ? bytes_max
                        : uint64_t{base::env_u32("TENDRIL_MODULE_STORE_MB", 4096)} << 20;
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

ModuleStore::ModuleStore(const std::string& directory, uint64_t bytes_max)
    : files_(directory, ".image", limit(bytes_max), 0644),  // workers may be different users
      bytes_max_(limit(bytes_max)) {
  if (directory.empty() || files_.make()) return;
  base::log(base::LogLevel::kWarning,
            "module store %s cannot be made (%s): device code is kept in memory only",
            directory.c_str(), strerror(errno));
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
  uint64_t there = 0;
  const base::Fd fd = files_.open(name_of(hash), &there);
  if (!fd.valid()) return nullptr;
  ImageBytes image;
  if (there == bytes) image = make_image(bytes);
  const bool good = image.data != nullptr && base::read_all(fd.get(), image.data.get(), bytes) &&
                    base::content_hash(image.data.get(), bytes) == hash;
  if (!good) {
    base::log(base::LogLevel::kWarning, "module store: %s is not what its name says; removed",
              files_.path_of(name_of(hash)).c_str());
    files_.remove(name_of(hash));
    return nullptr;
  }
  return std::make_shared<const ImageBytes>(std::move(image));
}

bool ModuleStore::write(const std::string& hash, const ImageBytes& bytes) {
  if (!files_.exists() || bytes.bytes > bytes_max_) return false;
  if (files_.write(name_of(hash), {{bytes.data.get(), bytes.bytes}})) return true;
  base::log(base::LogLevel::kWarning, "module store: cannot write %s (%s): kept in memory",
            files_.path_of(name_of(hash)).c_str(), strerror(errno));
  return false;
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
