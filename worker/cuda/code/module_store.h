// SPDX-License-Identifier: Apache-2.0
// Stores images of device code by content. After one client of an owner has uploaded an image, no
// other client of that owner uploads it to this server again. tendrild keeps them (Exports:
// find_image, keep_image). Reading an image checks its hash, so a bad one is only a miss. What
// tendrild does not keep lives in this worker's memory. Executor thread only.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "worker/core/exports.h"
#include "worker/cuda/code/loaded_code.h"

namespace tendril::worker::cuda {

inline constexpr uint64_t kImageBytesMax = uint64_t{1} << 30;
inline constexpr uint64_t kHeldBytesMax = uint64_t{4} << 30;

// Not zeroed. So pages are used only as the bytes arrive.
struct ImageBytes {
  std::unique_ptr<uint8_t[]> data;
  uint64_t bytes = 0;
};
// Room for `bytes` and a NUL behind them. Null data: no memory, or `bytes` is too large.
ImageBytes make_image(uint64_t bytes);

class ModuleStore {
 public:
  // `keeper`: null if there is none. `bytes_max` limits the images that it does not keep.
  explicit ModuleStore(Exports* keeper, uint64_t bytes_max = kHeldBytesMax);
  using Image = std::shared_ptr<const ImageBytes>;
  // Null: not here. `hash` is base::content_hash of the bytes.
  Image find(const std::string& hash, uint64_t bytes);
  // Stores the bytes. Null: they do not match the hash.
  Image add(const std::string& hash, ImageBytes bytes);
  // What this session has loaded from the store.
  LoadedCode& code() { return code_; }

 private:
  struct Held {
    std::weak_ptr<const ImageBytes> image;
    Image kept;  // if the keeper does not have it
    uint64_t used = 0;
  };
  Image read(const std::string& hash, uint64_t bytes);
  bool keep(const std::string& hash, const ImageBytes& bytes);
  void trim_memory();

  Exports* const keeper_;
  const uint64_t bytes_max_;
  std::unordered_map<std::string, Held> images_;
  Image latest_;  // keeps an image from its upload to its load
  uint64_t clock_ = 0;
  LoadedCode code_;
};

}  // namespace tendril::worker::cuda
