// SPDX-License-Identifier: Apache-2.0
// Stores device code by content: images of modules, programs. After one client of an owner has
// uploaded an image, no other client of that owner uploads it to this server again. tendrild keeps
// them (Exports: find_image, keep_image). Reading an image checks its hash, so a bad one is only a
// miss. What tendrild does not keep lives in this worker's memory. Executor thread only.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "wire/message.h"
#include "worker/core/exports.h"

namespace tendril::session {
class Service;
}

namespace tendril::worker {

inline constexpr uint64_t kImageBytesMax = uint64_t{1} << 30;
inline constexpr uint64_t kHeldBytesMax = uint64_t{4} << 30;

// Not zeroed. So pages are used only as the bytes arrive.
struct ImageBytes {
  std::unique_ptr<uint8_t[]> data;
  uint64_t bytes = 0;
};
// Room for `bytes` and a NUL behind them. Null data: no memory, or `bytes` is too large.
ImageBytes make_image(uint64_t bytes);
// The bytes of an upload, from the message (`transfer` 0) or from a bulk transfer. Null data: no
// memory, `bytes` is not below `limit`, or the session ended because the peer sent a wrong
// transfer.
ImageBytes receive_image(session::Service* service, uint64_t limit, uint64_t transfer,
                         uint64_t bytes, const wire::Bytes& inside);
inline std::string hash_text(const wire::Bytes& hash) {
  return std::string(reinterpret_cast<const char*>(hash.data), hash.count);
}

class CodeStore {
 public:
  // `keeper`: null if there is none. `bytes_max` limits the images that it does not keep.
  explicit CodeStore(Exports* keeper, uint64_t bytes_max = kHeldBytesMax);
  using Image = std::shared_ptr<const ImageBytes>;
  // Null: not here. `hash` is base::content_hash of the bytes.
  Image find(const std::string& hash, uint64_t bytes);
  // Stores the bytes. Null: they do not match the hash.
  Image add(const std::string& hash, ImageBytes bytes);

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
};

}  // namespace tendril::worker
