// SPDX-License-Identifier: Apache-2.0
// See park_file.h.
#include "worker/cuda/parking/park_file.h"

#include <errno.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

#include <utility>

namespace tendril::worker::cuda {
namespace {

using transport::Aead;

// A number is used once under a key, so it may be the nonce.
std::array<uint8_t, transport::kAeadNonceBytes> nonce_of(uint64_t number) {
  std::array<uint8_t, transport::kAeadNonceBytes> nonce = {};
  memcpy(nonce.data(), &number, sizeof number);
  return nonce;
}

}  // namespace

std::unique_ptr<ParkFile> ParkFile::open(base::Fd file) {
  std::unique_ptr<ParkFile> made(new ParkFile(std::move(file)));
  const ssize_t got = getrandom(made->key_.data(), made->key_.size(), 0);
  if (got != static_cast<ssize_t>(made->key_.size())) return nullptr;
  return made;
}

ParkFile::~ParkFile() { transport::wipe(key_.data(), key_.size()); }

bool ParkFile::write(uint64_t offset, uint8_t* data, uint64_t bytes, Seal* seal) {
  Aead aead;  // of this thread
  aead.set_key(key_.data(), key_.size());
  seal->number = next_++;
  aead.seal(nonce_of(seal->number).data(), {nullptr, 0}, {data, bytes}, data, seal->tag.data());
  for (uint64_t at = 0; at < bytes;) {
    const ssize_t done =
        pwrite(file_.get(), data + at, bytes - at, static_cast<off_t>(offset + at));
    if (done < 0 && errno == EINTR) continue;
    if (done <= 0) return false;
    at += static_cast<uint64_t>(done);
  }
  return true;
}

bool ParkFile::read(uint64_t offset, uint8_t* data, uint64_t bytes, const Seal& seal) const {
  for (uint64_t at = 0; at < bytes;) {
    const ssize_t done = pread(file_.get(), data + at, bytes - at, static_cast<off_t>(offset + at));
    if (done < 0 && errno == EINTR) continue;
    if (done <= 0) return false;
    at += static_cast<uint64_t>(done);
  }
  Aead aead;
  aead.set_key(key_.data(), key_.size());
  return aead.open(nonce_of(seal.number).data(), {nullptr, 0}, {data, bytes}, data,
                   seal.tag.data());
}

}  // namespace tendril::worker::cuda
