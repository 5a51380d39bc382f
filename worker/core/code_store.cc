// SPDX-License-Identifier: Apache-2.0
// See code_store.h.
#include "worker/core/code_store.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstring>
#include <new>

#include "base/content_hash.h"
#include "base/fd.h"
#include "base/kept_files.h"
#include "session/lane/service.h"

namespace tendril::worker {
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

ImageBytes receive_image(session::Service* service, uint64_t limit, uint64_t transfer,
                         uint64_t bytes, const wire::Bytes& inside) {
  ImageBytes image = bytes < limit ? make_image(bytes) : ImageBytes{};
  if (transfer == 0) {
    if (image.data == nullptr || inside.count != bytes) return {};
    if (bytes != 0) std::memcpy(image.data.get(), inside.data, bytes);
    return image;
  }
  if (image.data == nullptr) {
    service->end("an image of device code is too large for this server");
    return {};
  }
  for (uint64_t received = 0; received < bytes;) {
    session::Piece piece;
    if (!service->take(transfer, &piece)) return {};
    const bool good =
        piece.bytes != 0 && piece.offset <= bytes && piece.bytes <= bytes - piece.offset;
    if (good) std::memcpy(image.data.get() + piece.offset, piece.data, piece.bytes);
    received += piece.bytes;
    service->release(piece);
    if (!good) {
      service->end("a piece of device code lies outside of its image");
      return {};
    }
  }
  return image;
}

CodeStore::CodeStore(Exports* keeper, uint64_t bytes_max)
    : keeper_(keeper), bytes_max_(bytes_max) {}

CodeStore::Image CodeStore::find(const std::string& hash, uint64_t bytes) {
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

CodeStore::Image CodeStore::add(const std::string& hash, ImageBytes bytes) {
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

CodeStore::Image CodeStore::read(const std::string& hash, uint64_t bytes) {
  if (keeper_ == nullptr) return nullptr;
  const base::Fd fd = keeper_->find_image(hash, bytes);
  if (!fd.valid()) return nullptr;
  ImageBytes image = make_image(bytes);
  const bool good = image.data != nullptr && base::read_all(fd.get(), image.data.get(), bytes) &&
                    base::content_hash(image.data.get(), bytes) == hash;
  return good ? std::make_shared<const ImageBytes>(std::move(image)) : nullptr;
}

bool CodeStore::keep(const std::string& hash, const ImageBytes& bytes) {
  if (keeper_ == nullptr) return false;
  const base::Fd memory = sealed_memory(bytes);
  return memory.valid() && keeper_->keep_image(hash, bytes.bytes, memory.get());
}

void CodeStore::trim_memory() {
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

}  // namespace tendril::worker
