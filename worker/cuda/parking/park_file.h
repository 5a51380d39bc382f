// SPDX-License-Identifier: Apache-2.0
// A file that holds copies of device memory when the host's memory has no room: tendrild has made
// it, without a name, and large enough. What is written is encrypted and sealed with a key that is
// only in this process' memory, so it means nothing to anybody else, nor after this process has
// ended. copy_job.h writes and reads pieces, from several threads at once.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>

#include "base/fd.h"
#include "transport/sealed/cipher.h"

namespace tendril::worker::cuda {

class ParkFile {
 public:
  // What proves a piece; kept by who has written it.
  struct Seal {
    uint64_t number = 0;
    std::array<uint8_t, transport::kAeadTagBytes> tag = {};
  };

  // Null: the kernel gives no random bytes.
  static std::unique_ptr<ParkFile> open(base::Fd file);
  ~ParkFile();
  ParkFile(const ParkFile&) = delete;
  ParkFile& operator=(const ParkFile&) = delete;

  // `data` is encrypted in place. False: the disk does not take it.
  bool write(uint64_t offset, uint8_t* data, uint64_t bytes, Seal* seal);
  // False: the disk does not give it, or something else.
  bool read(uint64_t offset, uint8_t* data, uint64_t bytes, const Seal& seal) const;

 private:
  explicit ParkFile(base::Fd file) : file_(std::move(file)) {}

  const base::Fd file_;
  std::array<uint8_t, 16> key_ = {};
  std::atomic<uint64_t> next_{1};  // each piece is sealed under a number of its own
};

}  // namespace tendril::worker::cuda
